"""Exactly once in the database: handlers run in the transaction that moves the cursor.

A worker holds the row lock on a partition's cursor for the length of a batch. The handlers' effects and the cursor's
move commit together, so they happen exactly once; a worker that dies leaves neither, and its lock goes with its
connection.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial

from django.db import connections, transaction

from pubsub.db.guard import refusing_to_end
from pubsub.db.sql import load
from pubsub.db.transactions import in_atomic_block
from pubsub.dead_letters.attempts import Letters, count_death, lock_due_and_parked, try_alone, uncount_death
from pubsub.dead_letters.set_aside import has_open
from pubsub.subscriptions.task import PartitionTask

from .call import Seen
from .crashes import BELIEVED_S, Counted, CrashCounter, show_that_no_worker_died
from .cursor import lock_cursor
from .failing import Doomed, Failing, Interrupted
from .find_work import Work
from .handling import AllAtOnce, HandlerFailed, Handling, OneByOne, Spoiled
from .mode import Allowance, Outcome, Together, WorkerContext
from .session import PartitionSession
from .several import handle_several
from .try_again import HasToBeCounted, LostToAnother, TryAgain

logger = logging.getLogger(__name__)


class Transactional:
    """The mode of `Delivery.TRANSACTIONAL`."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context

    def start(self) -> None:
        """Nothing to prepare: a transaction is all it needs."""

    def work_on(self, work: Work, allowance: Allowance) -> Generator[Outcome]:
        task = work.task
        if self._context.deferred.left:
            self._context.deferred.finish(task)
        doomed = self._context.doomed.setdefault(task.key, {})
        seen = self._context.seen.pop(task.key, None)
        retried = self.retry_due(task, allowance.batch_size, work.crashed, work.failing) if work.has_due else 0
        if not work.has_new:
            yield Outcome(retried=retried)
            return
        session = PartitionSession(task, allowance.batch_size, kept=self._context.kept, may_go_on=allowance.may_go_on)
        with session, self._crash_counter(work) as counter:
            done = replace(handle_batch(session, allowance.size, counter, work.failing, doomed, seen), retried=retried)
            while session.goes_on:
                yield done
                done = handle_batch(session, allowance.size, counter, work.failing, doomed)
        doomed.clear()
        yield done

    def may_join(self, work: Work) -> bool:
        """Where nothing has failed or waits, and nothing is to be looked at but the events themselves."""
        task = work.task
        return (
            work.has_new
            and not (work.has_due or work.crashed or work.failing)
            and task.wants_all
            and not (task.parks_keys or task.stops or task.below_position)
            and not (self._context.doomed.get(task.key) or self._context.deferred.left)
        )

    def work_on_several(self, works: Sequence[Work], allowance: Allowance) -> Together | None:
        connection = connections[self._context.using]
        if in_atomic_block(connection) or not connection.get_autocommit():
            return None  # it is not ours to commit
        tasks = [work.task for work in works]
        try:
            only_plain = not all(work.was_found for work in works)
            handling_of = partial(self._all_at_once, allowance.size)
            done = handle_several(tasks, allowance.size, allowance.may_go_on, handling_of, only_plain=only_plain)
        except Exception:
            show_that_no_worker_died(*tasks)
            raise
        for task in tasks:
            self._context.seen.pop(task.key, None)
        return done

    def _all_at_once(self, size: int, task: PartitionTask) -> AllAtOnce:
        """What this leaves behind if it fails is for work_on()."""
        seen = Seen(offsets=self._context.seen.setdefault(task.key, set()), may_be_abandoned=True)
        doomed = self._context.doomed.setdefault(task.key, {})
        return AllAtOnce(task=task, at_once=size, doomed=doomed, seen=seen)

    def broke_off(self, work: Work, error: Exception) -> None:
        if isinstance(error, Interrupted):
            self._context.deferred.do(work.task, partial(error.count, self._context.rest_s))
        elif not work.crashed:
            show_that_no_worker_died(work.task)

    def _crash_counter(self, work: Work) -> AbstractContextManager[CrashCounter | None]:
        """Where a worker seems to have died, unless a transaction is open in which this one would take all with it."""
        if not work.crashed or in_atomic_block(connections[self._context.using]):
            return nullcontext()
        return CrashCounter(work.task, self._context.worker_id, self._context.deferred)

    def retry_due(
        self, task: PartitionTask, at_once: int, crashed: bool = False, failing: Failing | None = None
    ) -> int:
        """Tries again what is due. Returns how many events were tried.

        Where a worker seems to have died of it, another death is counted before.
        """
        counted: Letters | None = None
        doomed = self._context.doomed.setdefault(task.key, {})
        try:
            if not crashed:
                with suppress(HasToBeCounted):
                    return TryAgain(task=task, at_once=at_once, doomed=doomed, failing=failing)()
            with transaction.atomic(using=task.using), connections[task.using].cursor() as db:
                if lock_cursor(db, task) is None:
                    return 0
                if crashed and len(several := lock_due_and_parked(db, task, at_once)) > 1:
                    try_alone(db, task, max(several, key=lambda letters: letters.first.offset))
                counted = count_death(db, task, soonest_s=BELIEVED_S)
            return TryAgain(task=task, at_once=at_once, doomed=doomed, failing=failing, counted=counted)()
        except BaseException as error:
            if counted:
                self._context.deferred.do(task, partial(uncount_death, task, counted.ids, counted.attempts + 1))
            if isinstance(error, LostToAnother):
                return 0
            raise


def handle_batch(
    session: PartitionSession,
    size: int,
    counter: CrashCounter | None = None,
    failing: Failing | None = None,
    doomed: Doomed | None = None,
    seen: set[int] | None = None,
) -> Outcome:
    """Handles the next batch of a partition; nothing where another worker has it. `seen` are offsets that observers
    have seen in this attempt.

    A batch ends with a publisher's transaction, never inside one. If anything in it fails, it is run again transaction
    by transaction, so that only those that fail are set aside. Where a worker seems to have died of an event, one
    transaction is handled, and the attempt is counted before; where the database has failed, one is handled, too.
    """
    doomed = {} if doomed is None else doomed
    if counter:
        return _handle_counted(session, size, counter, failing, doomed)
    if failing and failing.is_ahead:
        return _handle_isolated(session, size, failing, doomed)
    task = session.task
    seen = set() if seen is None else seen
    if not doomed:
        handling = AllAtOnce(task=task, at_once=size, doomed=doomed, seen=Seen(offsets=seen, may_be_abandoned=True))
        try:
            return _in_one_transaction(session, size, handling)
        except HandlerFailed as failed:
            logger.debug("a batch of %s failed (%s); trying its transactions one by one", task, failed)
    return _one_by_one(OneByOne(task=task, at_once=size, doomed=doomed, seen=Seen(offsets=seen)), size)


def _handle_isolated(session: PartitionSession, size: int, failing: Failing, doomed: Doomed) -> Outcome:
    """Behind what the database has failed at, the next look goes on with whole batches."""
    session.goes_on = False
    done = _one_by_one(OneByOne(task=session.task, at_once=size, failing=failing, doomed=doomed), 1)
    if done.last and done.last.offset < failing.offset:
        session.may_follow(done.passed)
    return done


def _handle_counted(
    session: PartitionSession, size: int, counter: CrashCounter, failing: Failing | None, doomed: Doomed
) -> Outcome:
    session.goes_on = False
    counted = counter.count(size)
    if counted is None:
        return Outcome()
    one_by_one = OneByOne(
        task=session.task,
        at_once=size,
        attempt=counted.attempt,
        poisoned=counted.poisoned,
        failing=failing,
        doomed=doomed,
    )
    done = Outcome()
    try:
        done = _one_by_one(one_by_one, 1, counted)
    finally:
        if not done.passed:
            counter.uncount(counted)
    if done.last and done.last.offset < counted.last_offset:
        session.may_follow(done.passed)
    return done


def _one_by_one(one_by_one: "OneByOne", size: int, counted: Counted | None = None) -> Outcome:
    while True:
        try:
            with PartitionSession(one_by_one.task, size) as session:
                return _in_one_transaction(session, size, one_by_one, counted)
        except Spoiled:
            continue  # all is undone; what spoiled it is set aside this time, without another call


def _in_one_transaction(
    session: PartitionSession, size: int, handling: Handling, counted: Counted | None = None
) -> Outcome:
    task = session.task
    with session.batch() as cursor:
        if cursor is None or (task.stops and has_open(task)):
            return Outcome()
        if counted and cursor.next_offset != counted.next_offset:
            return Outcome()  # another worker has passed, since, what was counted
        batch = session.entries.next_batch(cursor.next_position, size)
        try:
            with refusing_to_end(task.using):
                done = handling(batch)
            if done.last:
                session.move(done.last, done.passed, also=load("consuming/pass_counted") if counted else None)
        except BaseException as error:
            handling.judge(error, batch.given)
            raise
    return done
