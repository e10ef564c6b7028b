"""The process that people run: numbers what was published, hands it to the handlers, waits for more."""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.db import connections

from pubsub.conf import conf
from pubsub.consuming.failing import LONGEST_REST_S, Interrupted, interrupted_behind
from pubsub.consuming.find_work import Work, WorkFinder
from pubsub.consuming.lease_renewer import LeaseRenewer
from pubsub.consuming.mode import Allowance, Mode, Outcome, WorkerContext
from pubsub.consuming.modes import MODES
from pubsub.db.errors import is_transient
from pubsub.delivery import Delivery
from pubsub.errors import PubSubError
from pubsub.models import ConsumerOffset
from pubsub.sequencing.delayed import move_due_messages
from pubsub.sequencing.sequencer import sequence
from pubsub.signals import batch_handled, tell
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import of_topics, register_subscription
from pubsub.subscriptions.task import PartitionKey
from pubsub.topics.registry import topic_ids

from .in_hand import InHand
from .leader import Leader
from .maintenance import JOBS, URGENT, Maintenance
from .membership import Membership
from .threads import handing_over, tending_connections
from .watch import LOOK_S, HandlerWatch

logger = logging.getLogger(__name__)

SESSION_S = 0.1
"""How long a worker goes on reading in a partition with a backlog before it looks at the others. Then it uses up what
it has read, for as long again at most."""

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
        self.passed = 0
        self.failed = 0
        self._counters = threading.Lock()
        self._has_run = False
        self._stopping = threading.Event()
        self._wake = threading.Event()
        """Set when there may be something to do: a pass has numbered events, or a thread has its hands free."""
        self._numbered_at = float("-inf")
        self._left_over = False
        """Whether the last look saw work that another worker has in hand, or that rests."""
        self._in_hand = InHand(threads)
        self._broken: BaseException | None = None
        self._finder: WorkFinder
        self._leases = LeaseRenewer(using=using)
        self._modes = self._make_modes()
        self._maintenance = Maintenance(using, JOBS if maintenance else ())
        self._leader = (
            Leader(using, self.wait_period_s, self._wake, URGENT if maintenance else ())
            if listen and not drain
            else None
        )
        self._membership = Membership(using, self.worker_id, [])
        self._watch = HandlerWatch(using, self.worker_id, threads, self.stop)

    def _make_modes(self) -> dict[Delivery, Mode]:
        context = WorkerContext(
            using=self.using, worker_id=self.worker_id, leases=self._leases, rest_s=self.wait_period_s
        )
        return {delivery: MODES[delivery](context) for delivery in {declared.delivery for declared in self.declared}}

    @property
    def in_hand(self) -> list[PartitionKey]:
        return self._in_hand.keys

    def stop(self) -> None:
        """Lets the batches in hand finish, and no other begin."""
        self._stopping.set()
        self._wake.set()
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
                self._work_on,
                threads=self.threads,
                wait_period_s=self.wait_period_s,
                done=self._wake.set,
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

    def _run(self, take_on: Callable[[Work], bool]) -> None:
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
                self._give_up_connection(error, f"trying again in {backoff_s:.1f} s")
                self._stopping.wait(backoff_s)
                backoff_s = min(backoff_s * 2, LONGEST_REST_S)
                continue
            backoff_s = self.wait_period_s
            told = busy
            if busy:
                continue
            if not self.drain:
                told = self._wait()
            elif self._left_over or self._in_hand:
                self._wake.wait(DRAIN_LOOK_S)
                self._wake.clear()
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
            self.declarations, using=self.using, worker_id=self.worker_id, partitions=self.partitions
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

    def _step(self, take_on: Callable[[Work], bool], told: bool) -> bool:
        """Takes on what there is to do, a session in each partition. Returns whether there was anything.

        Unless it knows that what is new has been numbered, it does so itself: polling alone is enough.
        """
        self._maintain(busy=True)
        busy = False
        self._left_over = bool(self._in_hand)  # it may publish more, before or behind this look
        begun = time.monotonic()
        others_number = told and self._leader and self._leader.connected
        has_time = told and begun < self._numbered_at + NUMBERING_S
        if not (others_number or has_time):
            busy = self._number()
            self._numbered_at = begun
        for work in self._finder.find():
            if self._stopping.is_set() or (busy and time.monotonic() > begun + SESSION_S):
                break  # by now others are elsewhere; what has waited longest comes first at the next look
            self._left_over = True
            if not work.is_leased and not work.is_resting and self._in_hand.take(work.task.key):
                busy = take_on(work) or busy
            elif self._in_hand.is_full:
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
        told = self._wake.wait(self.wait_period_s)
        self._wake.clear()
        return told

    # One partition

    def _work_on(self, work: Work) -> bool:
        """Returns whether there was anything to do. What fails here, though no event is to blame, is left alone for a
        while: other partitions go on."""
        task = work.task
        mode = self._modes[task.declared.delivery]
        done: list[tuple[Outcome, float]] = []
        begun = time.monotonic()
        allowance = self._allowance(begun)
        try:
            with closing(mode.work_on(work, allowance)) as outcomes:
                for outcome in outcomes:
                    done.append((outcome, time.monotonic() - begun))
                    self._count(outcome, allowance)
                    if self._stopping.is_set():
                        break
                    begun = time.monotonic()
        except Exception as raised:
            error = interrupted_behind(raised)
            rest_s = self._in_hand.rest(task.key, self.wait_period_s)
            if self.drain and not is_transient(error):
                raise
            facts = error.facts if isinstance(error, Interrupted) else task.facts
            self._give_up_connection(error, f"{task} rests for {rest_s:.1f} s", facts)
            mode.broke_off(work, error)
            return False
        except BaseException:
            self._in_hand.release(task.key)
            raise
        else:
            self._in_hand.release(task.key)
            return bool(done and (done[0][0].passed or done[0][0].retried))
        finally:
            self._show_life()
            self._tell(work, done)  # now that no transaction is open in which a receiver could be

    def _allowance(self, begun: float) -> Allowance:
        def may_go_on(passed: int, reads: bool) -> bool:
            is_enough = self.max_events and self.passed + passed >= self.max_events
            in_time = time.monotonic() - begun < (SESSION_S if reads else 2 * SESSION_S)
            return in_time and not is_enough and not self._stopping.is_set()

        return Allowance(batch_size=self.batch_size, size=self._next_size(), may_go_on=may_go_on)

    def _next_size(self) -> int:
        if not self.max_events:
            return self.batch_size
        return max(1, min(self.batch_size, self.max_events - self.passed))

    def _count(self, outcome: Outcome, allowance: Allowance) -> None:
        with self._counters:
            self.passed += outcome.passed
            self.failed += outcome.failed
            allowance.size = self._next_size()
            if self.max_events and self.passed >= self.max_events:
                self.stop()

    def _tell(self, work: Work, done: Sequence[tuple[Outcome, float]]) -> None:
        for outcome, seconds in done:
            facts: dict[str, Any] = {
                **work.task.facts,
                "using": self.using,
                "passed": outcome.passed,
                "failed": outcome.failed,
                "seconds": seconds,
                "worker_id": self.worker_id,
            }
            if outcome.last:
                logger.debug(
                    "%s: passed %d events, now behind offset %d",
                    work.task,
                    outcome.passed,
                    outcome.last.offset,
                    extra={**facts, "offset": outcome.last.offset},
                )
            if batch_handled.receivers and (outcome.passed or outcome.retried):
                tell(batch_handled, **facts)

    def _show_life(self) -> None:
        """Where handlers hang this is no longer done, and what watches the file may act."""
        if self.liveness_file:
            try:
                self.liveness_file.touch()
            except OSError as error:
                logger.warning("the liveness file cannot be touched: %s", error)

    def _give_up_connection(self, error: Exception, what_then: str, facts: dict[str, Any] | None = None) -> None:
        logger.warning("%s: %s", what_then, error, exc_info=not is_transient(error), extra=facts)
        connections[self.using].close()
