"""What the two modes under a lease share: handlers run outside any transaction, for as long as they like.

A worker takes a lease on the next events of a partition, handles them, and acknowledges. While it works, its lease is
renewed. One that falls silent, or whose connection drops, is taken over by another worker.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import Error, connections, transaction

from pubsub.db.errors import is_the_handlers
from pubsub.db.guard import check_left_outside, forget
from pubsub.dead_letters.attempts import Letters, count_death, failed_again, lock_letters, resolve, uncount_death
from pubsub.dead_letters.parking import unblocked
from pubsub.errors import LeaseLost
from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionTask

from .call import Seen, handle
from .crashes import BELIEVED_S, forget_connection
from .cursor import Cursor
from .entries import PublishedTogether
from .failing import Failing, Interrupted, bear, forget_failures
from .find_work import Work
from .lease import HeldLease, OtherLease, lock_unless_leased
from .mode import Allowance, Outcome, WorkerContext, go_through
from .parked import ToPark

logger = logging.getLogger(__name__)


class Leased(ABC):
    """A mode whose handlers run under a lease."""

    def __init__(self, context: WorkerContext) -> None:
        self._leases = context.leases
        self._deferred = context.deferred
        self._worker_id = context.worker_id
        self._rest_s = context.rest_s
        self._doomed = context.doomed

    def start(self) -> None:
        self._leases.start()

    def work_on(self, work: Work, allowance: Allowance) -> Generator[Outcome]:
        task = work.task
        if self._deferred.left:
            self._deferred.finish(task)
        self._leases.wait_until_seen()
        retried = self.retry_due(task, allowance.batch_size, work.failing) if work.has_due else 0
        done = self.handle_batch(task, allowance.size, work.failing) if work.has_new else Outcome()
        self._doomed.pop(task.key, None)
        yield replace(done, retried=retried)

    def may_join(self, work: Work) -> bool:
        return False

    def work_on_several(self, works: Sequence[Work], allowance: Allowance) -> None:
        return None  # a lease is for one partition

    def broke_off(self, work: Work, error: Exception) -> None:
        """The lease says what this worker has left undone."""
        if isinstance(error, Interrupted):
            self._deferred.do(work.task, partial(error.count, self._rest_s))

    def handle_batch(self, task: PartitionTask, size: int, failing: Failing | None = None) -> Outcome:
        """Handles the next batch of a partition; nothing where another worker has it."""
        lease = self.take(task, size)
        if lease is None:
            return Outcome()
        lease.failing = failing
        try:
            return self.handle(lease, size)
        except LeaseLost as error:
            logger.warning("%s", error, extra=task.facts)
            self._deferred.do(task, lease.uncount)
            return Outcome()
        finally:
            self._leases.held.pop(task.key, None)

    def take(self, task: PartitionTask, size: int) -> HeldLease | None:
        """A lease on the next events; none where another worker has the partition, or nothing is left."""
        lease = None
        try:
            with transaction.atomic(using=task.using), connections[task.using].cursor() as db:
                found = lock_unless_leased(db, task, self._worker_id)
                if found:
                    lease = self.take_next(db, task, *found, size)
        except Error:
            if lease:
                self.may_have_taken(lease)  # the answer to the COMMIT is what got lost
            raise
        if lease:
            self._leases.held[task.key] = lease
        return lease

    # What the modes do in their own way

    @abstractmethod
    def take_next(
        self, db: Any, task: PartitionTask, cursor: Cursor, other: OtherLease | None, size: int
    ) -> HeldLease | None:
        """Takes a lease on what comes next, behind one that a dead worker may have left. The cursor is locked."""

    @abstractmethod
    def may_have_taken(self, lease: HeldLease) -> None:
        """It is not known whether the lease was taken."""

    @abstractmethod
    def handle(self, lease: HeldLease, size: int) -> Outcome:
        """Handles what is under the lease, and gives it back."""

    @abstractmethod
    def set_aside(self, lease: HeldLease, together: PublishedTogether, error: BaseException, blocked: set[str]) -> int:
        """Sets a failed transaction aside. Returns how many events failed."""

    @abstractmethod
    def pass_parked(self, db: Any, lease: HeldLease, last: Entry, count: int) -> None:
        """Passes so many events that have just been parked, if that was not done before."""

    @abstractmethod
    def is_failure(self, error: BaseException, task: PartitionTask) -> bool:
        """Whether the events failed by this error, so that they are set aside."""

    @abstractmethod
    def break_off(self, lease: HeldLease) -> None:
        """Something has failed that is no event's fault, or the process ends."""

    @abstractmethod
    def acknowledge(self, lease: HeldLease) -> None:
        """Gives the lease back, with what was handled."""

    @abstractmethod
    def may_retry(self, db: Any, task: PartitionTask, cursor: Cursor, other: OtherLease) -> bool:
        """Whether what has failed may be tried again though a dead worker has left a lease. The cursor is locked."""

    # What both do alike

    def new_lease(self, task: PartitionTask, cursor: Cursor, entries: list[Entry], **state: Any) -> HeldLease:
        return HeldLease(
            task=task,
            epoch=cursor.epoch + 1,
            worker_id=self._worker_id,
            next_offset=cursor.next_offset,
            entries=entries,
            runs_out_at=time.monotonic() + self._leases.lease_s,
            renew=self._leases.renew,
            **state,
        )

    def write_lease(self, db: Any, lease: HeldLease, first: int, last: int) -> None:
        lease.take(db, first=first, last=last, lock_key=self._leases.lock_key, lease_s=self._leases.lease_s)

    def handle_one_by_one(
        self, lease: HeldLease, entries: Iterator[Entry], at_once: int, seen: Seen | None = None
    ) -> Outcome:
        to_park = ToPark(lease.task)
        seen = seen or Seen()
        done = go_through(
            lease.task, entries, lambda together: self._handle_one(lease, together, to_park, at_once, seen)
        )
        self._park(lease, to_park)
        self.conclude(lease)
        return done

    def _handle_one(
        self, lease: HeldLease, together: PublishedTogether, to_park: ToPark, at_once: int, seen: Seen
    ) -> int:
        """Returns how many events failed."""
        task, blocked = lease.task, to_park.keys

        def call() -> None:
            self._park_before_it_begins(lease, together, blocked)
            attempt = lease.attempt if lease.last is None else 1
            entries = unblocked(together, blocked) if task.parks_keys else together
            handle(task, entries, at_once=at_once, attempt=attempt, seen=seen)

        doomed = self._doomed.setdefault(task.key, {})
        error = doomed.get(together.transaction_id)
        if task.parks_keys and error is None and (parked := self._takes(lease, together, to_park)):
            return parked
        self._park(lease, to_park)
        if error is None:
            error = self.failure_of(lease, call)
        if error is not None:
            doomed[together.transaction_id] = error
            try:
                failed = self.set_aside(lease, together, error, blocked)
            except Error:
                self.break_off(lease)
                raise
            lease.last, lease.unacknowledged = together.last, 0
            return failed
        lease.last, lease.unacknowledged = together.last, lease.unacknowledged + together.count
        return 0

    def _park(self, lease: HeldLease, to_park: ToPark) -> None:
        """Sets a row of transactions aside that have to wait, in the transaction that passes them."""
        if not to_park.taken:
            return
        task, taken, passed = lease.task, to_park.taken, to_park.passed
        last = taken[-1][1]
        try:
            with transaction.atomic(using=task.using), connections[task.using].cursor() as db:
                for first, _ in taken:
                    forget_failures(db, task, first, lease.failing)
                to_park.park()
                self.pass_parked(db, lease, last, passed)
        except Error:
            self.break_off(lease)
            raise
        lease.last, lease.unacknowledged = last, 0

    def _takes(self, lease: HeldLease, together: PublishedTogether, to_park: ToPark) -> int:
        try:
            return to_park.takes(together)
        except Error:  # the rest of a long transaction could not be read
            self.break_off(lease)
            raise

    def failure_of(self, lease: HeldLease, call: Callable[[], None]) -> BaseException | None:
        """Calls handlers outside any transaction. Returns the error by which the events failed; any other is raised."""
        task, began = lease.task, time.monotonic()
        try:
            call()
            check_left_outside(task.using)
        except LeaseLost:
            raise
        except BaseException as error:
            try:
                if not self.is_failure(error, task):
                    if lease.given is None:
                        raise
                    bear(error, task, lease.given, began, lease.failing)
            except BaseException:
                self.break_off(lease)
                raise
            forget(task.using)
            return error
        return None

    def _park_before_it_begins(self, lease: HeldLease, together: PublishedTogether, blocked: set[str]) -> None:
        """What a handler does outside a transaction cannot be undone when a later event turns out to have to wait."""
        if lease.task.parks_keys:
            of_it = (entry for entry in lease.entries if entry.transaction_id == together.transaction_id)
            for _ in unblocked(of_it, blocked):
                continue

    def conclude(self, lease: HeldLease) -> None:
        """Acknowledges what was handled, in whatever state the handlers have left the connection."""
        try:
            self.acknowledge(lease)
        except LeaseLost:
            # Unless temporary tables of a handler's have only hidden it from this connection.
            forget_connection(lease.task)
            self.acknowledge(lease)
        except Exception:
            logger.debug("%s: acknowledging on another connection", lease.task, exc_info=True)
            self.acknowledge_late(lease)

    def acknowledge_late(self, lease: HeldLease) -> None:
        """The same on another connection; when the database is back, if it is away."""

        def acknowledge() -> None:
            try:
                self.acknowledge(lease)
            except LeaseLost as error:
                logger.warning("%s", error, extra=lease.task.facts)
                lease.uncount()

        self._deferred.do(lease.task, acknowledge)

    def retry_due(self, task: PartitionTask, at_once: int, failing: Failing | None = None) -> int:
        """Tries the transaction again that has waited longest for it. Returns how many events were tried."""
        lease = None
        began = time.monotonic()
        try:
            with transaction.atomic(using=task.using), connections[task.using].cursor() as db:
                lease = self._take_due(db, task)
        except Error:
            if lease:  # it may have been taken: the answer to the COMMIT is what got lost
                self._deferred.do(task, partial(self._end_retry, lease, counts=False))
            raise
        if lease is None or lease.letters is None:
            return 0
        self._leases.held[task.key] = lease
        lease.failing = failing
        error: BaseException | None = None
        try:
            handle(task, lease.all_entries(), at_once=at_once, attempt=lease.attempt)
            check_left_outside(task.using)
        except LeaseLost as lost:
            logger.warning("%s", lost, extra=task.facts)
            self._deferred.do(task, partial(self._end_retry, lease, counts=False))
            return 0
        except BaseException as raised:
            try:
                if not is_the_handlers(raised, task.using):
                    if lease.given is None:
                        raise
                    bear(raised, task, lease.given, began, failing)
            except BaseException:
                self._deferred.do(task, partial(self._end_retry, lease, counts=False))
                raise
            error = raised
            forget(task.using)
        finally:
            self._leases.held.pop(task.key, None)
        try:
            self._end_retry(lease, error)
        except Exception:
            logger.debug("%s: noting what became of a retry on another connection", task, exc_info=True)
            self._deferred.do(task, partial(self._end_retry, lease, error))
        return len(lease.letters)

    def _take_due(self, db: Any, task: PartitionTask) -> HeldLease | None:
        found = lock_unless_leased(db, task, self._worker_id)
        if found is None:
            return None
        cursor, other = found
        if other and not self.may_retry(db, task, cursor, other):
            return None
        letters = count_death(db, task, soonest_s=BELIEVED_S)
        if not letters:
            return None
        lease = self.new_lease(task, cursor, [], attempt=letters.attempts + 1, letters=letters)
        first, last = letters.ends
        self.write_lease(db, lease, first.offset, last.offset)
        return lease

    def _end_retry(self, lease: HeldLease, error: BaseException | None = None, *, counts: bool = True) -> None:
        task, letters = lease.task, lease.letters
        assert letters is not None  # noqa: S101 - it was taken for them
        with transaction.atomic(using=task.using), connections[task.using].cursor() as db:
            if counts and lease.given:
                forget_failures(db, task, lease.given.first, lease.failing)
            is_ours = lease.drop(db)
            if counts and not is_ours:
                logger.warning("%s: another worker has taken over; this attempt does not count", task, extra=task.facts)
            if not (counts and is_ours):
                uncount_death(task, letters.ids, lease.attempt)
            elif still_there := lock_letters(db, task, letters.ids):
                at = lease.given.last if lease.given and not task.declared.batch else None
                _note_retry(db, task, still_there, error, lease.attempt, at)


def _note_retry(
    db: Any, task: PartitionTask, letters: Letters, error: BaseException | None, attempt: int, at: Entry | None
) -> None:
    if error:
        failed_again(db, task, letters, error, attempt, at)
    else:
        resolve(db, task, [(letters, attempt)])
