"""At most once: move the cursor first, then handle. What a worker that dies had in hand is not handled again.

It may have been handled, so it becomes dead letters, which people may look at. There is no second attempt, whatever the
reason of a failure was.
"""

import itertools
import logging
from typing import Any

from django.db import connections, transaction

from pubsub.db.errors import is_ctrl_c
from pubsub.db.sql import load
from pubsub.dead_letters.parking import or_parked
from pubsub.dead_letters.set_aside import has_open, set_aside, set_range_aside
from pubsub.errors import WorkerDied
from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionTask

from .call import handle
from .cursor import Cursor
from .entries import PublishedTogether
from .lease import HeldLease, OtherLease, forget_lease
from .leased import Leased
from .mode import Outcome
from .reader import Batch, EntryReader

logger = logging.getLogger(__name__)


class AtMostOnce(Leased):
    """The mode of `Delivery.AT_MOST_ONCE`."""

    def take_next(
        self, db: Any, task: PartitionTask, cursor: Cursor, other: OtherLease | None, size: int
    ) -> HeldLease | None:
        if other:
            _set_left_aside(db, task, other)
        if task.stops and has_open(task):
            return None
        reader = EntryReader(task, size).begin_at(cursor.next_position)
        entries = list(itertools.islice(Batch(reader, size), reader.chunk - 1))
        if not entries:
            forget_lease(db, task)
            return None
        lease = self.new_lease(task, cursor, entries, attempt=1)
        self.write_lease(db, lease, entries[0].offset, entries[-1].offset)
        lease.move(db, entries[-1], len(entries), keep=True, keep_range=True)
        return lease

    def may_have_taken(self, lease: HeldLease) -> None:
        """Then it is a dead worker's: what is under it becomes dead letters."""

    def handle(self, lease: HeldLease, size: int) -> Outcome:
        task = lease.task
        if not task.declared.batch:
            return self.handle_one_by_one(lease, lease.all_entries(), size)
        batch = Batch(lease.all_entries(), size)
        error = self.failure_of(lease, lambda: handle(task, batch, at_once=size, attempt=lease.attempt))
        if error is not None:
            return self._set_all_aside(lease, error)
        lease.last = batch.last
        self.conclude(lease)
        return Outcome(passed=batch.passed, last=batch.last)

    def is_failure(self, error: BaseException, task: PartitionTask) -> bool:
        return not is_ctrl_c(error)

    def set_aside(self, lease: HeldLease, together: PublishedTogether, error: BaseException, blocked: set[str]) -> int:
        task = lease.task
        with transaction.atomic(using=task.using), connections[task.using].cursor() as db:
            at = together.reached(task)
            if task.parks_keys:
                error = or_parked(error, together, blocked)
            first, last = together.ends
            done = set_aside(task, first, last, error, attempts=lease.attempt, at=at)
            blocked.update(done.keys)
            if task.stops:
                # The cursor has moved already: it goes back to what has not been begun.
                behind = sum(entry.position > last.position for entry in lease.entries)
                lease.move(db, last, -behind, keep=False)
        return done.count

    def pass_parked(self, db: Any, lease: HeldLease, last: Entry, count: int) -> None:
        """The cursor has moved already."""

    def break_off(self, lease: HeldLease) -> None:
        """What was in hand becomes dead letters when the next worker finds its lease."""

    def acknowledge(self, lease: HeldLease) -> None:
        """The cursor has moved already."""
        with connections[lease.task.using].cursor() as db:
            lease.drop(db)

    def may_retry(self, db: Any, task: PartitionTask, cursor: Cursor, other: OtherLease) -> bool:
        _set_left_aside(db, task, other)
        return True

    def _set_all_aside(self, lease: HeldLease, error: BaseException) -> Outcome:
        """All that was in hand, after one call with all of it."""
        task, first, last = lease.task, lease.entries[0], lease.entries[-1]
        with transaction.atomic(using=task.using):
            done = set_aside(task, first, last, error, attempts=lease.attempt)
        lease.last = last
        self.conclude(lease)
        return Outcome(passed=len(lease.entries), failed=done.count, last=last)


def _set_left_aside(db: Any, task: PartitionTask, lease: OtherLease) -> None:
    """What a dead worker had in hand may have been handled. It is not handled again; people may look at it."""
    db.execute(load("consuming/positions_of_offsets"), {**task.parameters, **lease._asdict()})
    first, last = db.fetchone()
    if first is not None:
        error = WorkerDied("The worker died, or was killed, while it had this event in hand. It may have been handled.")
        done = set_range_aside(task, first, last, error, attempts=1)
        logger.error(
            "%s: a worker died with offsets %d to %d in hand, which may have been handled: %d dead letters",
            task,
            lease.first_offset,
            lease.last_offset,
            done.count,
            extra=task.facts,
        )
    forget_lease(db, task)
