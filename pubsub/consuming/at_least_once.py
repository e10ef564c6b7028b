"""At least once: lease, handle, acknowledge. What a dying worker had in hand is handled again by another one.

That one takes over one publisher's transaction at a time, and each attempt is counted, so that an event that kills its
workers becomes a dead letter.
"""

import itertools
import logging
from collections.abc import Iterator
from typing import Any

from django.db import connections, transaction

from pubsub.db.errors import is_the_handlers
from pubsub.dead_letters.parking import or_parked
from pubsub.dead_letters.set_aside import has_open, set_aside
from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionTask

from .call import Seen, handle
from .crashes import died, most_attempts
from .cursor import Cursor
from .entries import PublishedTogether
from .failing import forget_failures
from .lease import HeldLease, OtherLease, attempt_after, forget_lease
from .leased import Leased
from .mode import Outcome, go_through
from .reader import Batch, EntryReader

logger = logging.getLogger(__name__)


class AtLeastOnce(Leased):
    """The mode of `Delivery.AT_LEAST_ONCE`."""

    def take_next(
        self, db: Any, task: PartitionTask, cursor: Cursor, other: OtherLease | None, size: int
    ) -> HeldLease | None:
        if task.stops and has_open(task):
            return None
        reader = EntryReader(task, size).begin_at(cursor.next_position)
        # What a worker died of is found by going on one publisher's transaction at a time.
        entries = list(itertools.islice(Batch(reader, 1 if other else size), reader.chunk))
        if not entries:
            forget_lease(db, task)
            return None
        lease = self.new_lease(
            task,
            cursor,
            entries,
            attempt=attempt_after(other, cursor),
            is_whole=len(entries) < reader.chunk,
            taken_over=other is not None,
        )
        self.write_lease(db, lease, entries[0].offset, max(entries[-1].offset, other.last_offset if other else 0))
        return lease

    def may_have_taken(self, lease: HeldLease) -> None:
        self._deferred.do(lease.task, lease.uncount)

    def handle(self, lease: HeldLease, size: int) -> Outcome:
        task = lease.task
        entries = lease.all_entries()
        if lease.attempt > most_attempts(task):
            return self._set_poisoned_aside(lease, entries)
        has_failed, seen = lease.failing is not None and lease.failing.is_ahead, Seen()
        if task.declared.batch and not lease.taken_over and not has_failed:
            batch, tried = Batch(entries, size), Seen(may_be_abandoned=True)
            error = self.failure_of(lease, lambda: handle(task, batch, at_once=size, attempt=lease.attempt, seen=tried))
            if error is None:
                lease.last, lease.unacknowledged = batch.last, batch.passed
                self.conclude(lease)
                return Outcome(passed=batch.passed, last=batch.last)
            logger.debug("a batch of %s failed (%s); trying its transactions one by one", task, type(error).__name__)
            entries, seen.offsets = lease.all_entries(), tried.offsets
        return self.handle_one_by_one(lease, entries, size, seen)

    def is_failure(self, error: BaseException, task: PartitionTask) -> bool:
        return is_the_handlers(error, task.using)

    def set_aside(self, lease: HeldLease, together: PublishedTogether, error: BaseException, blocked: set[str]) -> int:
        """In the transaction that passes it, with what was handled before it, if the lease still holds."""
        task = lease.task
        with transaction.atomic(using=task.using), connections[task.using].cursor() as db:
            at = together.reached(task)
            if task.parks_keys:
                error = or_parked(error, together, blocked)
            first, last = together.ends
            forget_failures(db, task, first, lease.failing)
            done = set_aside(task, first, last, error, attempts=lease.attempt, at=at)
            blocked.update(done.keys)
            lease.move(db, last, lease.unacknowledged + together.count, keep=True)
        return done.count

    def pass_parked(self, db: Any, lease: HeldLease, last: Entry, count: int) -> None:
        lease.move(db, last, lease.unacknowledged + count, keep=True)

    def break_off(self, lease: HeldLease) -> None:
        """The rest is for the next worker."""
        self.acknowledge_late(lease)

    def acknowledge(self, lease: HeldLease) -> None:
        if lease.last is None:
            lease.uncount()
            return
        with connections[lease.task.using].cursor() as db:
            lease.move(db, lease.last, lease.unacknowledged, keep=False)

    def may_retry(self, db: Any, task: PartitionTask, cursor: Cursor, other: OtherLease) -> bool:
        """What a worker died of comes first, unless nothing behind a failure is handled."""
        return other.first_offset < cursor.next_offset or task.stops

    def _set_poisoned_aside(self, lease: HeldLease, entries: Iterator[Entry]) -> Outcome:
        """The first transaction with something for the group; those before it are passed."""

        def set_aside_or_pass(together: PublishedTogether) -> int:
            failed = 0
            if any(entry.is_mine for entry in together):
                failed = self.set_aside(lease, together, died(lease.attempt - 1), set())
                lease.unacknowledged = 0
            else:
                lease.unacknowledged += together.count
            lease.last = together.last
            return failed

        done = go_through(lease.task, entries, set_aside_or_pass)
        self.conclude(lease)
        return done
