"""The process that people run: numbers what was published, hands it to the handlers, waits for more."""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from django.db import close_old_connections, connections

from pubsub.conf import conf
from pubsub.delivery import Delivery
from pubsub.errors import PubSubError
from pubsub.keeping.housekeeping import Housekeeper
from pubsub.keeping.members import Membership
from pubsub.models import ConsumerOffset
from pubsub.sequencing.coordinating import Coordinator
from pubsub.sequencing.numbering import move_due_messages, sequence
from pubsub.signals import batch_handled, tell
from pubsub.sql import load
from pubsub.statements import rendered, send
from pubsub.subscriptions.declaring import Declaration, enrol, of_topics

from . import setting_aside
from .claims import ALIVE
from .failures import is_transient
from .guarding import Guard, show_that_nobody_died
from .holding import Visit
from .leasing import Leaseholder
from .reading import Place, PlaceKey
from .transactional import Batch, consume

logger = logging.getLogger("pubsub.worker")

LONGEST_BACKOFF_S = 30

VISIT_S = 0.1
"""How long a worker goes on reading in a partition with a backlog before it looks at the others. Then it uses up what
it has read, for as long again at most."""

NUMBERING_S = 0.5
"""How often a worker that nobody else numbers for does so while there is much to do."""

DRAIN_LOOK_S = 0.05
"""How often a worker that is to drain looks whether the others have done what they have in hand."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A partition that has something to do."""

    place: Place
    has_new: bool
    has_due: bool
    suspect: bool
    """Whether a worker seems to have died here."""
    is_taken: bool
    """Whether another worker has it under a lease."""


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
        threads: int = 1,
        drain: bool = False,
        max_messages: int | None = None,
        listen: bool = True,
        worker_id: str | None = None,
        liveness_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self.declared = list(declarations)
        self.declarations: dict[tuple[str, str], Declaration] = {}
        """What is declared, for each topic that a pattern means at present."""
        self._finding: bytes | None = None
        """The statement that finds work for these. Putting it together takes half as long as its answer."""
        self.using = using
        self.partitions = list(partitions) if partitions else None
        self.batch_size = batch_size or conf().batch_size
        self.wait_period_s = (wait_period_ms or conf().wait_period_ms) / 1000
        self.threads = threads
        self.drain = drain
        self.max_messages = max_messages
        self.worker_id = worker_id or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.liveness_file = Path(liveness_file) if liveness_file else None
        self.passed = 0
        self.failed = 0
        self._has_run = False
        self._stopping = threading.Event()
        self._wake = threading.Event()
        """Set when there may be something to do: somebody has numbered, or a thread has its hands free."""
        self._numbered_at = float("-inf")
        self._left_over = False
        """Whether the last look saw work that another worker has in hand, or that rests."""
        self._lock = threading.Lock()
        """Guards what follows, and the counters above."""
        self._in_hand: set[PlaceKey] = set()
        self._failures: dict[PlaceKey, int] = {}
        self._resting: dict[PlaceKey, float] = {}
        """Until when a partition that failed is left alone."""
        self._broken: Exception | None = None
        self._housekeeper = Housekeeper(using)
        self._coordinator = Coordinator(using, self.wait_period_s, self._wake) if listen and not drain else None
        self._leases = Leaseholder(using=using, worker_id=self.worker_id)
        self._membership = Membership(using, self.worker_id, [])

    @property
    def in_hand(self) -> list[PlaceKey]:
        with self._lock:
            return sorted(self._in_hand)

    def stop(self) -> None:
        """Lets the batches in hand finish, and no other begin."""
        self._stopping.set()
        self._wake.set()
        if self._coordinator:
            self._coordinator.stop()

    def wait_until_listening(self, timeout_s: float) -> bool:
        """Says whether, in this time, somebody sees to it that this worker is told of what is new."""
        until = time.monotonic() + timeout_s
        while self._coordinator and not self._coordinator.connected and time.monotonic() < until:
            time.sleep(0.001)
        return bool(self._coordinator and self._coordinator.connected)

    def run(self) -> None:
        """Works until stopped, once. A failure of the database is waited out; one of the set-up is raised."""
        if self._has_run:
            raise PubSubError("This worker has run already; make a new one.")
        self._has_run = True
        try:
            if self.threads == 1:
                self._run(self._work_on)
            else:
                with self._hands() as hand_over:
                    self._run(hand_over)
            if self._broken:
                raise self._broken
        finally:
            self.stop()
            self._leases.stop()
            self._membership.stop()
            if self._coordinator and self._coordinator.ident:
                self._coordinator.join()

    def _run(self, take_on: Callable[[Work], bool]) -> None:
        backoff_s = self.wait_period_s
        ready = False
        told = False
        tend_connections = _tending_connections(self.wait_period_s)
        while not self._stopping.is_set():
            tend_connections()
            self._show_life()
            try:
                if not ready:
                    self._set_up()
                    ready = True
                busy = self._step(take_on, told) or self._keep_house()
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
            elif self._left_over or self.in_hand:
                self._wake.wait(DRAIN_LOOK_S)
                self._wake.clear()
            else:
                return

    def _set_up(self) -> None:
        self._enrol()
        self._warn_of_partitions()
        # Others must hear of it before it keeps house for the first time, which may take long where much is to be done.
        self._membership.start()
        if any(declared.delivery is not Delivery.TRANSACTIONAL for declared in self.declared):
            self._leases.start()
        if self._coordinator:
            self._coordinator.start()

    def _enrol(self, *, again: bool = False) -> None:
        declarations = of_topics(self.declared, self.using)
        if again:
            # What a pattern means by now has been made while this worked, and is read from its beginning.
            declarations = [
                replace(declared, start="earliest")
                if declared.pattern and declared.key not in self.declarations
                else declared
                for declared in declarations
            ]
        for declared in declarations:
            try:
                enrol([declared], self.using)
            except PubSubError as error:
                if not again:
                    raise
                # Say, its topic has been removed: no reason to leave the others without their new partitions.
                logger.error("group %s cannot read topic %s: %s", declared.group, declared.topic, error)
        self.declarations = {declared.key: declared for declared in declarations}
        self._finding = None
        self._membership.reads(self.declarations)

    def _warn_of_partitions(self) -> None:
        """A slip of the pen would wait for ever, and nobody would know what for."""
        topics = {topic for topic, _ in self.declarations}
        places = ConsumerOffset.objects.using(self.using).filter(topic__name__in=topics)
        there = set(places.values_list("partition_id", flat=True).distinct()) if self.partitions else set()
        if missing := sorted(set(self.partitions or ()) - there):
            logger.warning(
                "none of the topics %s has partition %s: there is nothing to do in it",
                ", ".join(sorted(topics)),
                ", ".join(map(str, missing)),
            )

    def _keep_house(self, *, busy: bool = False) -> bool:
        """Says whether it was time to. What there is to handle goes before, for a while."""
        kept = self._housekeeper.keep_house(busy=busy)
        if kept:
            self._enrol(again=True)  # there may be more topics, or more partitions of them
        return kept

    def _wait(self) -> bool:
        """Waits for something to do, for the wait period at most. Says whether it was told that there is something."""
        told = self._wake.wait(self.wait_period_s)
        self._wake.clear()
        return told

    def _step(self, take_on: Callable[[Work], bool], told: bool) -> bool:
        """Takes on what there is to do, a batch of each partition. Says whether there was anything.

        Unless it was told that somebody has numbered what is new, it does so itself: polling alone is enough.
        """
        self._keep_house(busy=True)
        busy = self._left_over = False
        begun = time.monotonic()
        others_number = told and self._coordinator and self._coordinator.connected
        has_time = told and begun < self._numbered_at + NUMBERING_S
        if not (others_number or has_time):
            busy = move_due_messages(self.using) > 0
            done = sequence(self.using)
            busy = busy or done.messages > 0
            self._left_over = done.outcome == "busy"
            self._numbered_at = begun
        for work in self._find_work():
            if self._stopping.is_set() or (busy and time.monotonic() > begun + VISIT_S):
                break  # by now others are elsewhere; what has waited longest comes first when it is looked for anew
            key = work.place.key
            with self._lock:
                self._left_over = True
                if work.is_taken or key in self._in_hand or self._resting.get(key, 0) > time.monotonic():
                    continue
                if len(self._in_hand) >= self.threads:
                    break
                self._in_hand.add(key)
            busy = take_on(work) or busy
        if has_time and not busy and not others_number:
            self._numbered_at = float("-inf")  # nothing is left that has a number: time for what has none
            return True
        return busy

    @contextmanager
    def _hands(self) -> Iterator[Callable[[Work], bool]]:
        """Threads that do what is handed over; each has a connection of its own."""
        handed_over: SimpleQueue[Work | None] = SimpleQueue()

        def hand_over(work: Work) -> bool:
            handed_over.put(work)
            return False  # when it is done, the thread says so

        def work() -> None:
            tend_connections = _tending_connections(self.wait_period_s)
            try:
                while (work := handed_over.get()) is not None:
                    tend_connections()
                    self._work_on(work)
                    self._wake.set()
            except Exception as error:
                self._broken = error
                self.stop()
            finally:
                connections.close_all()

        threads = [threading.Thread(target=work, name=f"pubsub-handlers-{n}") for n in range(self.threads)]
        for thread in threads:
            thread.start()
        try:
            yield hand_over
        finally:
            for _ in threads:
                handed_over.put(None)
            for thread in threads:
                thread.join()

    def _work_on(self, work: Work) -> bool:
        """What fails here, though no event is to blame, is left alone for a while: other partitions go on."""
        key = work.place.key
        begun = time.monotonic()

        def may_go_on(passed: int, reads: bool) -> bool:
            is_enough = self.max_messages and self.passed + passed >= self.max_messages
            in_time = time.monotonic() - begun < (VISIT_S if reads else 2 * VISIT_S)
            return in_time and not is_enough and not self._stopping.is_set()

        visit = Visit(work.place, self.batch_size, may_go_on=may_go_on)
        told: list[tuple[Batch, dict[str, Any]]] = []
        try:
            with visit, self._on_guard(work) as guard:
                did_something = self._handle_batch(work, visit, guard, told)
                while visit.goes_on and not self._stopping.is_set():
                    self._handle_batch(replace(work, has_due=False), visit, guard, told)
        except Exception as error:
            if self.drain and not is_transient(error):
                raise
            with self._lock:
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                rest_s = min(self.wait_period_s * 2 ** (failures - 1), LONGEST_BACKOFF_S)
                self._resting[key] = time.monotonic() + rest_s
            self._give_up_connection(error, f"{work.place} rests for {rest_s:.1f} s")
            if work.place.declared.delivery is Delivery.TRANSACTIONAL and not work.suspect:
                show_that_nobody_died(work.place)
            return False
        finally:
            with self._lock:
                self._in_hand.discard(key)
            self._show_life()
            for batch, facts in told:  # now that no transaction is open in which a receiver could be
                if batch.last:
                    logger.debug(
                        "%s: passed %d events, now behind offset %d",
                        work.place,
                        batch.passed,
                        batch.last.offset,
                        extra={**facts, "offset": batch.last.offset},
                    )
                tell(batch_handled, **facts)
        with self._lock:
            self._failures.pop(key, None)
            self._resting.pop(key, None)
        return did_something

    def _on_guard(self, work: Work) -> AbstractContextManager[Guard | None]:
        """Where a worker seems to have died, unless a transaction is open in which this one would take all with it."""
        leased = work.place.declared.delivery is not Delivery.TRANSACTIONAL
        if leased or not (work.suspect and work.has_new) or connections[self.using].in_atomic_block:
            return nullcontext()
        return closing(Guard(work.place, self.worker_id))

    def _handle_batch(
        self, work: Work, visit: Visit, guard: Guard | None, told: list[tuple[Batch, dict[str, Any]]]
    ) -> bool:
        """Says whether there was anything to do."""
        begun = time.monotonic()
        batch = self._batch_of(work, visit, guard)
        with self._lock:
            self.passed += batch.passed
            self.failed += batch.failed
            if self.max_messages and self.passed >= self.max_messages:
                self.stop()
        if batch.did_something:
            facts = {
                **work.place.facts,
                "using": self.using,
                "passed": batch.passed,
                "failed": batch.failed,
                "seconds": time.monotonic() - begun,
                "worker_id": self.worker_id,
            }
            told.append((batch, facts))
        return batch.did_something

    def _batch_of(self, work: Work, visit: Visit, guard: Guard | None) -> Batch:
        place = work.place
        retried = 0
        leased = place.declared.delivery is not Delivery.TRANSACTIONAL
        if work.has_due:
            if leased:
                retried = self._leases.retry_due(place, at_once=self.batch_size)
            else:
                retried = setting_aside.retry_due(place, at_once=self.batch_size, suspect=work.suspect)
        if not work.has_new:
            return Batch(retried=retried)
        size = self.batch_size
        if self.max_messages:
            size = max(1, min(size, self.max_messages - self.passed))
        batch = self._leases.consume(place, size) if leased else consume(place, size, guard=guard, visit=visit)
        return Batch(passed=batch.passed, failed=batch.failed, last=batch.last, retried=retried)

    def _show_life(self) -> None:
        """Where handlers hang, nobody does this any more, and whoever watches the file may act."""
        if self.liveness_file:
            try:
                self.liveness_file.touch()
            except OSError as error:
                logger.warning("the liveness file cannot be touched: %s", error)

    def _give_up_connection(self, error: Exception, what_then: str) -> None:
        logger.warning("%s: %s", what_then, error, exc_info=not is_transient(error))
        connections[self.using].close()

    def _find_work(self) -> list[Work]:
        connection = connections[self.using]
        if self._finding is None:
            parameters = {
                "topics": [topic for topic, _ in self.declarations],
                "groups": [group for _, group in self.declarations],
                "partitions": self.partitions,
                "worker_id": self.worker_id,
                "family": ALIVE,
            }
            self._finding = rendered(connection, load("find_work"), parameters)
        found = send(connection, self._finding).rows()
        return [
            Work(
                place=Place(
                    declared=self.declarations[topic, group],
                    topic_id=topic_id,
                    partition_id=partition_id,
                    using=self.using,
                    below_position=below_position,
                ),
                has_new=has_new,
                has_due=has_due,
                suspect=suspect,
                is_taken=is_taken,
            )
            for (
                group,
                topic,
                topic_id,
                partition_id,
                below_position,
                has_new,
                has_due,
                suspect,
                is_taken,
            ) in found
        ]


def _tending_connections(every_s: float) -> Callable[[], None]:
    """What Django does for its connections between two requests, at most so often: asking one whether it still answers
    is a round trip, and one that may not be kept is opened anew."""
    tended_at = float("-inf")

    def tend() -> None:
        nonlocal tended_at
        if time.monotonic() >= tended_at + every_s:
            close_old_connections()
            tended_at = time.monotonic()

    return tend
