"""The process that people run: numbers what was published, hands it to the handlers, waits for more."""

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pubsub.conf import conf
from pubsub.consuming.failing import LONGEST_REST_S
from pubsub.consuming.find_work import WorkFinder
from pubsub.consuming.kept import KeptEntries
from pubsub.consuming.lease_renewer import LeaseRenewer
from pubsub.consuming.mode import Mode, WorkerContext
from pubsub.consuming.modes import MODES
from pubsub.db.errors import is_transient
from pubsub.delivery import Delivery
from pubsub.errors import PubSubError
from pubsub.models import ConsumerOffset
from pubsub.sequencing.delayed import move_due_messages
from pubsub.sequencing.sequencer import sequence
from pubsub.sequencing.wake import Moved
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import of_topics, register_subscription
from pubsub.subscriptions.task import PartitionKey
from pubsub.topics.names import is_pattern
from pubsub.topics.registry import topic_ids

from .leader import Leader
from .maintenance import JOBS, URGENT, Maintenance
from .membership import Membership
from .news import News
from .sessions import Sessions, Share
from .threads import handing_over, tending_connections
from .watch import LOOK_S, HandlerWatch

logger = logging.getLogger(__name__)

NUMBERING_S = 0.5
"""How often a worker that no leader numbers for does so while there is much to do."""

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
        threads: int = 1,
        drain: bool = False,
        max_events: int | None = None,
        listen: bool = True,
        maintenance: bool = True,
        worker_id: str | None = None,
        liveness_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self.declared = list(declarations)
        self.declarations: dict[tuple[str, str], Declaration] = {}
        """What is declared, for each topic that a pattern means at present."""
        self._topic_ids: dict[str, int] = {}
        """The numbers of these topics."""
        self.using = using
        self.partitions = list(partitions) if partitions else None
        self.batch_size = batch_size or conf().batch_size
        self.wait_period_s = (wait_period_ms or conf().wait_period_ms) / 1000
        self.threads = threads
        self.drain = drain
        self.max_events = max_events
        self.worker_id = worker_id or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self.liveness_file = Path(liveness_file) if liveness_file else None
        self._has_run = False
        self._news = News()
        """When there may be something to do: a pass has numbered events, or a thread has its hands free."""
        self._numbered_at = float("-inf")
        self._looked_at = float("-inf")
        self._left_over = False
        """Whether the last look saw work that another worker has in hand, or that rests."""
        self._broken: BaseException | None = None
        self._finder: WorkFinder
        self._leases = LeaseRenewer(using=using)
        self._modes = self._make_modes()
        self._sessions = Sessions(
            self._modes,
            using=using,
            worker_id=self.worker_id,
            batch_size=self.batch_size,
            rest_s=self.wait_period_s,
            threads=threads,
            drain=drain,
            max_events=max_events,
            stop=self.stop,
            show_life=self._show_life if liveness_file else None,
        )
        self._stopping = self._sessions.stopping
        self._maintenance = Maintenance(using, JOBS if maintenance else ())
        self._leader = (
            Leader(using, self.wait_period_s, self._news, URGENT if maintenance else ())
            if listen and not drain
            else None
        )
        self._membership = Membership(using, self.worker_id, [])
        self._watch = HandlerWatch(using, self.worker_id, threads, self.stop)

    def _make_modes(self) -> dict[Delivery, Mode]:
        context = WorkerContext(
            using=self.using,
            worker_id=self.worker_id,
            leases=self._leases,
            kept=KeptEntries() if self._may_share_topics() else None,
            rest_s=self.wait_period_s,
        )
        return {delivery: MODES[delivery](context) for delivery in {declared.delivery for declared in self.declared}}

    def _may_share_topics(self) -> bool:
        """Whether a topic may be read by several groups of this process."""
        topics = [declared.topic for declared in self.declared]
        return len(set(topics)) < len(topics) or (len(topics) > 1 and any(map(is_pattern, topics)))

    @property
    def in_hand(self) -> list[PartitionKey]:
        return self._sessions.in_hand.keys

    @property
    def passed(self) -> int:
        return self._sessions.passed

    @property
    def failed(self) -> int:
        return self._sessions.failed

    @property
    def retried(self) -> int:
        return self._sessions.retried

    def stop(self) -> None:
        """Lets the batches in hand finish, and no other begin."""
        self._stopping.set()
        self._news.set()
        if self._leader:
            self._leader.stop(wait=False)

    def wait_until_listening(self, timeout_s: float) -> bool:
        """Whether, within this time, a leader sees to it that this worker hears of what is new."""
        until = time.monotonic() + timeout_s
        while self._leader and not self._leader.connected and time.monotonic() < until:
            time.sleep(0.001)
        return bool(self._leader and self._leader.connected)

    def run(self) -> None:
        """Works until stopped, once. A failure of the database is waited out; one of the set-up is raised."""
        if self._has_run:
            raise PubSubError("This worker has run already; make a new one.")
        self._has_run = True
        try:
            with handing_over(
                self._sessions.work_on,
                threads=self.threads,
                wait_period_s=self.wait_period_s,
                done=self._news.set,
                broken=self._break,
                begins=self._watch.attend,
            ) as take_on:
                self._run(take_on)
            if self._broken:
                raise self._broken
        finally:
            self.stop()
            self._leases.stop()
            if not self.drain:
                self._maintenance.stop()
            self._watch.stop()
            self._membership.stop()
            if self._leader:
                self._leader.stop()

    def _break(self, error: BaseException) -> None:
        self._broken = error
        self.stop()

    def _run(self, take_on: Callable[[Share], bool]) -> None:
        backoff_s = self.wait_period_s
        ready = False
        told = False
        tend_connections = tending_connections(self.wait_period_s)
        while not self._stopping.is_set():
            tend_connections()
            self._show_life()
            try:
                if not ready:
                    self._set_up()
                    ready = True
                busy = self._step(take_on, told) or self._maintain()
            except Exception as error:
                if not is_transient(error) and (self.drain or not ready):
                    raise
                self._sessions.give_up_connection(error, f"trying again in {backoff_s:.1f} s")
                self._stopping.wait(backoff_s)
                backoff_s = min(backoff_s * 2, LONGEST_REST_S)
                continue
            backoff_s = self.wait_period_s
            told = busy
            if busy:
                continue
            if not self.drain:
                told = self._wait()
            elif self._left_over or self._sessions.in_hand:
                self._news.wait(DRAIN_LOOK_S)
                self._news.take()
            else:
                return

    # Setting up

    def _set_up(self) -> None:
        self._register()
        self._warn_of_partitions()
        # Others must hear of it before its first maintenance, which may take long where much is to be done.
        self._membership.start()
        self._watch.start(after_s=LOOK_S)
        for mode in self._modes.values():
            mode.start()
        if self._leader:
            self._leader.start()

    def _register(self, *, again: bool = False) -> None:
        declarations = of_topics(self.declared, self.using)
        numbers = topic_ids({declared.topic for declared in declarations}, self.using)
        if again:
            # A topic that was made while this worked, perhaps in place of one that was removed, is read from its
            # beginning.
            declarations = [
                declared
                if self._topic_ids.get(declared.topic) == numbers.get(declared.topic)
                else replace(declared, start="earliest")
                for declared in declarations
            ]
        self._topic_ids = numbers
        for declared in declarations:
            try:
                register_subscription(declared, using=self.using)
            except PubSubError as error:
                if not again:
                    raise
                # Say, its topic has been removed: no reason to leave the others without their new partitions.
                logger.error("group %s cannot read topic %s: %s", declared.group, declared.topic, error)
        self.declarations = {declared.key: declared for declared in declarations}
        self._finder = WorkFinder(
            self.declarations,
            using=self.using,
            worker_id=self.worker_id,
            partitions=self.partitions,
            topic_ids=self._topic_ids,
        )
        self._membership.reads(self.declarations)

    def _warn_of_partitions(self) -> None:
        """A typo would wait for ever, and no operator would know what for."""
        topics = {topic for topic, _ in self.declarations}
        cursors = ConsumerOffset.objects.using(self.using).filter(topic__name__in=topics)
        there = set(cursors.values_list("partition_id", flat=True).distinct()) if self.partitions else set()
        if missing := sorted(set(self.partitions or ()) - there):
            logger.warning(
                "none of the topics %s has partition %s: there is nothing to do in it",
                ", ".join(sorted(topics)),
                ", ".join(map(str, missing)),
            )

    # One turn

    def _step(self, take_on: Callable[[Share], bool], told: bool) -> bool:
        """Takes on what there is to do, a session in each partition. Returns whether there was anything.

        Unless it knows that what is new has been numbered, it does so itself: polling alone is enough.
        """
        self._maintain(busy=True)
        busy = False
        self._left_over = bool(self._sessions.in_hand)  # it may publish more, before or behind this look
        begun = time.monotonic()
        others_number = told and self._leader and self._leader.connected
        has_time = told and begun < self._numbered_at + NUMBERING_S
        if not (others_number or has_time):
            busy = self._number()
            self._numbered_at = begun
        self._looked_at = begun
        found = self._finder.find()
        self._left_over |= bool(found)
        at: tuple[int, int] | None = None
        for share in self._sessions.plan(found):
            is_next = share[0].task.key[1:] != at
            if self._stopping.is_set() or (is_next and busy and self._sessions.took_long_since(begun)):
                break  # by now others are elsewhere; what has waited longest comes first at the next look
            at = share[0].task.key[1:]
            if taken := self._sessions.take(share):
                busy = take_on(taken) or busy
            elif self._sessions.in_hand.is_full:
                break
        if has_time and not busy and not others_number:
            self._numbered_at = float("-inf")  # nothing is left that has a number: time for what has none
            return True
        return busy

    def _number(self) -> bool:
        moved = move_due_messages(self.using)
        done = sequence(self.using)
        self._left_over |= done.outcome == "busy"
        return bool(moved or done.messages)

    def _maintain(self, *, busy: bool = False) -> bool:
        """Does maintenance if it is due; while there is something to handle, that goes before, for a while."""
        was_due = self._maintenance.step(busy=busy)
        if was_due:
            self._register(again=True)  # there may be more topics, or more partitions of them
        return was_due

    def _wait(self) -> bool:
        """Waits for something to do, for the wait period at most. Returns whether it was woken."""
        while self._news.wait(self.wait_period_s):
            if not self._has_handled(self._news.take()):
                return True
        return False

    def _has_handled(self, moved: Moved | None) -> bool:
        """Whether, where a pass has moved something, that was all that there was to do."""
        if moved is None or self.threads > 1 or time.monotonic() > self._looked_at + self.wait_period_s:
            return False
        return all(self._sessions.work_on_moved(share) for share in self._finder.moved(moved))

    def _show_life(self) -> None:
        """Where handlers hang this is no longer done, and what watches the file may act."""
        if self.liveness_file:
            try:
                self.liveness_file.touch()
            except OSError as error:
                logger.warning("the liveness file cannot be touched: %s", error)
