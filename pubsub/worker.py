"""The process that people run: numbers what was published, hands it to the handlers, waits for more."""

import logging
import threading
import time
from collections.abc import Sequence

from django.db import close_old_connections, connections

from . import dead_letters
from .conf import conf
from .consuming import consume
from .coordinating import Coordinator
from .errors import PubSubError
from .failures import is_transient
from .housekeeping import Housekeeper
from .reading import Place, PlaceKey
from .sequencing import move_due_messages, sequence
from .sql import load
from .subscribing import Declaration, enrol

logger = logging.getLogger("pubsub.worker")

LONGEST_BACKOFF_S = 30

DRAIN_LOOK_S = 0.05
"""How often a worker that is to drain looks whether the others have done what they have in hand."""


class Worker:
    """Works on the partitions of the given subscriptions until it is stopped, or until nothing is left to do.

    Any number of workers share the partitions: each takes what no other has at the moment.
    """

    def __init__(
        self,
        declarations: Sequence[Declaration],
        *,
        using: str,
        partitions: Sequence[int] | None = None,
        batch_size: int | None = None,
        wait_period_ms: int | None = None,
        drain: bool = False,
        listen: bool = True,
    ) -> None:
        self.declarations = {(declared.topic, declared.group): declared for declared in declarations}
        self.using = using
        self.partitions = list(partitions) if partitions else None
        self.batch_size = batch_size or conf().batch_size
        self.wait_period_s = (wait_period_ms or conf().wait_period_ms) / 1000
        self.drain = drain
        self.passed = 0
        self.failed = 0
        self._has_run = False
        self._stopping = threading.Event()
        self._left_over = False
        """Whether the last step saw work that another worker has in hand, or that rests."""
        self._failures: dict[PlaceKey, int] = {}
        self._resting: dict[PlaceKey, float] = {}
        """Until when a partition that failed is left alone."""
        self._housekeeper = Housekeeper(using)
        self._coordinator = Coordinator(using, self.wait_period_s) if listen and not drain else None

    def stop(self) -> None:
        """Lets the batch in hand finish, and no other begin."""
        self._stopping.set()
        if self._coordinator:
            self._coordinator.stop()

    def run(self) -> None:
        """Works until stopped, once. A failure of the database is waited out; one of the set-up is raised."""
        if self._has_run:
            raise PubSubError("This worker has run already; make a new one.")
        self._has_run = True
        try:
            self._run()
        finally:
            self.stop()
            if self._coordinator and self._coordinator.ident:
                self._coordinator.join()

    def _run(self) -> None:
        backoff_s = self.wait_period_s
        ready = False
        told = False
        while not self._stopping.is_set():
            close_old_connections()
            try:
                if not ready:
                    self._set_up()
                    ready = True
                busy = self.step(told)
            except Exception as error:
                if not is_transient(error) and (self.drain or not ready):
                    raise
                self._give_up_connection(error, f"trying again in {backoff_s:.1f} s")
                self._stopping.wait(backoff_s)
                backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
                continue
            backoff_s = self.wait_period_s
            told = busy
            if busy:
                continue
            if not self.drain:
                told = self._wait()
            elif self._left_over:
                self._stopping.wait(DRAIN_LOOK_S)
            else:
                return

    def _set_up(self) -> None:
        self._housekeeper.keep_house()
        enrol(list(self.declarations.values()), self.using)
        if self._coordinator:
            self._coordinator.start()

    def _wait(self) -> bool:
        """Waits for something to do, for the wait period at most. Says whether it was told that there is something."""
        if self._coordinator is None:
            self._stopping.wait(self.wait_period_s)
            return False
        told = self._coordinator.moved.wait(self.wait_period_s)
        self._coordinator.moved.clear()
        return told

    def step(self, told: bool = False) -> bool:
        """Handles a batch of each partition that has one. Says whether there was anything.

        Unless it was told that somebody has numbered what is new, it does so itself: polling alone is enough.
        """
        busy = self._left_over = False
        if self._housekeeper.keep_house():
            enrol(list(self.declarations.values()), self.using)  # topics may have got more partitions
        if not (told and self._coordinator and self._coordinator.connected):
            busy = move_due_messages(self.using) > 0
            done = sequence(self.using)
            busy = busy or done.messages > 0
            self._left_over = done.outcome == "busy"
        for place, has_new, has_due in self._find_work():
            self._left_over = True
            if self._stopping.is_set():
                break
            if self._resting.get(place.key, 0) <= time.monotonic():
                busy = self._work_on(place, has_new, has_due) or busy
        return busy

    def _work_on(self, place: Place, has_new: bool, has_due: bool) -> bool:
        """What fails here, though no event is to blame, is left alone for a while: other partitions go on."""
        busy = False
        try:
            if has_due and dead_letters.retry_due(place):
                busy = True
            if has_new:
                batch = consume(place, self.batch_size)
                self.passed += batch.passed
                self.failed += batch.failed
                busy = busy or batch.passed > 0
        except Exception as error:
            if self.drain and not is_transient(error):
                raise
            failures = self._failures[place.key] = self._failures.get(place.key, 0) + 1
            rest_s = min(self.wait_period_s * 2 ** (failures - 1), LONGEST_BACKOFF_S)
            self._resting[place.key] = time.monotonic() + rest_s
            self._give_up_connection(error, f"{place} rests for {rest_s:.1f} s")
        else:
            self._failures.pop(place.key, None)
            self._resting.pop(place.key, None)
        return busy

    def _give_up_connection(self, error: Exception, what_then: str) -> None:
        logger.warning("%s: %s", what_then, error, exc_info=not is_transient(error))
        connections[self.using].close()

    def _find_work(self) -> list[tuple[Place, bool, bool]]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(
                load("find_work"),
                {
                    "topics": [topic for topic, _ in self.declarations],
                    "groups": [group for _, group in self.declarations],
                    "partitions": self.partitions,
                },
            )
            return [
                (
                    Place(
                        declared=self.declarations[topic, group],
                        topic_id=topic_id,
                        partition_id=partition_id,
                        using=self.using,
                    ),
                    has_new,
                    has_due,
                )
                for group, topic, topic_id, partition_id, has_new, has_due in cursor.fetchall()
            ]
