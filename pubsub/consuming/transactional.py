"""Consuming: claim a partition, handle its next events, move the cursor – in one transaction.

A worker holds the row lock on a partition's cursor for the length of a batch. The handlers' effects and the cursor's
move commit together, so they happen exactly once; a worker that dies leaves neither, and its lock goes with its
connection.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.db import connections, transaction

from pubsub.sql import load
from pubsub.transactions import make_hooks_robust

from . import setting_aside
from .failures import is_the_handlers
from .guarding import Guard, Guarded, settle_what_is_left
from .handling import check_still_in_transaction, handle, in_our_transaction, was_lost
from .holding import Visit, holding
from .reading import BatchOfEntries, Entry, Place, PublishedTogether, Reader, by_transaction

logger = logging.getLogger("pubsub.consuming")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What became of a batch."""

    passed: int = 0
    """Events that the cursor moved over, those for other groups included."""
    failed: int = 0
    """Those of them that are now in the dead-letter queue."""
    retried: int = 0
    """Events that had failed before and were tried again."""
    last: Entry | None = None

    @property
    def did_something(self) -> bool:
        return bool(self.passed or self.retried)


class Spoiled(Exception):
    """A handler has left nothing to go on in: neither a savepoint nor the transaction is there any more."""

    def __init__(self, transaction_id: Any, error: BaseException) -> None:
        super().__init__(str(error))
        self.transaction_id = transaction_id
        self.error = error


def consume(place: Place, batch_size: int, *, guard: Guard | None = None, visit: Visit | None = None) -> Batch:
    """Handles the next batch of a partition; nothing where another worker has it. A visit makes it one of several.

    A batch ends with a publisher's transaction, never inside one. If anything in it fails, it is run again transaction
    by transaction, so that only those that fail are set aside. On its guard, where a worker seems to have died of an
    event, it handles one transaction, and counts the attempt before.
    """
    settle_what_is_left(place)
    visit = visit or Visit(place, batch_size)
    if guard:
        return _guardedly(place, batch_size, guard, visit)
    if not (place.parks_keys and setting_aside.has_open(place)):
        try:
            return _in_one_transaction(place, batch_size, lambda batch: _all_at_once(place, batch, batch_size), visit)
        except BaseException as error:
            if not is_the_handlers(error):
                raise
            logger.debug("a batch of %s failed; trying its transactions one by one", place, exc_info=True)
    return _one_by_one(place, batch_size, OneByOne(place=place, at_once=batch_size))


def _guardedly(place: Place, batch_size: int, guard: Guard, visit: Visit) -> Batch:
    visit.goes_on = False
    guarded = guard.count(batch_size)
    if guarded is None:
        return Batch()
    one_by_one = OneByOne(place=place, at_once=batch_size, attempt=guarded.attempt, deadly=guarded.deadly)
    done = Batch()
    try:
        done = _one_by_one(place, 1, one_by_one, guarded=guarded)
    finally:
        if not done.passed:
            guard.take_back(guarded)
    if done.last and done.last.offset < guarded.last_offset:
        visit.may_follow(done.passed)
    return done


def _one_by_one(place: Place, batch_size: int, one_by_one: "OneByOne", *, guarded: Guarded | None = None) -> Batch:
    while True:
        try:
            return _in_one_transaction(place, batch_size, one_by_one, Visit(place, batch_size), guarded=guarded)
        except Spoiled as spoiled:
            # All is undone. What spoiled it is set aside the next time, without another call.
            one_by_one.doomed[spoiled.transaction_id] = spoiled.error


def _in_one_transaction(
    place: Place,
    batch_size: int,
    work: Callable[[BatchOfEntries], Batch],
    visit: Visit,
    *,
    guarded: Guarded | None = None,
) -> Batch:
    with holding(place, visit) as held:
        if held is None or (place.declared.on_failure == "stop" and setting_aside.has_open(place)):
            return Batch()
        if guarded and held.next_offset != guarded.next_offset:
            return Batch()  # somebody has passed, since, what was counted
        with in_our_transaction(place.using):
            entries = Reader(place, held.next_position, visit.ahead.chunk, visit.ahead)
            done = work(BatchOfEntries.read(entries, batch_size))
        if done.last is None:
            return done
        entries.keep_rest(done.last.position + 1)
        make_hooks_robust(connections[place.using])
        held.move_behind(done.last, done.passed, guarded=guarded is not None)
    return done


def _all_at_once(place: Place, batch: BatchOfEntries, at_once: int) -> Batch:
    try:
        # What waits is known for sure only now that the place is locked.
        handle(place, setting_aside.unblocked(place, batch, set()), at_once=at_once)
    except BaseException as error:
        check_still_in_transaction(place.using, because=error)
        raise
    check_still_in_transaction(place.using)
    return Batch(passed=batch.passed, last=batch.last)


@dataclass(kw_only=True)
class OneByOne:
    """Handles each publisher's transaction in a savepoint; one that fails is set aside, all of it."""

    place: Place
    at_once: int
    attempt: int = 1
    doomed: dict[Any, BaseException] = field(default_factory=dict)
    """Transactions that are not to be tried, and why."""
    deadly: BaseException | None = None
    """Why none is that has something for the group. Those before it are passed."""

    def __call__(self, batch: BatchOfEntries) -> Batch:
        passed = failed = 0
        last = None
        blocked: set[str] = set()
        for together in by_transaction(batch):
            failed += self._handle_or_bury(together, blocked)
            passed += together.count
            last = together.last
            if failed and self.place.declared.on_failure == "stop":
                break
        return Batch(passed=passed, failed=failed, last=last)

    def _handle_or_bury(self, together: PublishedTogether, blocked: set[str]) -> int:
        """Returns how many events failed."""
        place = self.place
        connection = connections[place.using]
        try:
            with transaction.atomic(using=place.using):
                if together.transaction_id in self.doomed:
                    raise self.doomed[together.transaction_id]
                try:
                    entries = setting_aside.unblocked(place, together, blocked)
                    if self.deadly and any(entry.is_mine for entry in entries):
                        raise self.deadly
                    handle(place, entries, at_once=self.at_once, attempt=self.attempt)
                except BaseException as error:
                    check_still_in_transaction(place.using, because=error)
                    raise
                check_still_in_transaction(place.using)
                # A deferred constraint must fail here, where it can be told whose fault it is, and not at the commit.
                connection.check_constraints()
                # So must what a handler has set for the rest of the transaction, such as another search_path.
                with connection.cursor() as cursor:
                    cursor.execute(load("still_there"), place.parameters)
        except BaseException as error:
            if not is_the_handlers(error):
                raise
            if was_lost(place.using):
                raise psycopg.OperationalError("the connection was lost in a handler, which has hidden it") from error
            if connection.needs_rollback or connection.closed_in_transaction:
                raise Spoiled(together.transaction_id, error) from error
            return setting_aside.bury(place, together, error, attempts=self.attempt, blocked=blocked)
        return 0
