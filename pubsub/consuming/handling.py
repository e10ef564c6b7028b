"""The two ways to handle a batch in the transaction that is open: as a whole, or one publisher's transaction at a time.

Each says whose fault a failure is: the handler's, or the database's, which may pass.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from django.db import connections, transaction

from pubsub.db.errors import is_the_handlers
from pubsub.db.guard import cannot_continue, check_still_in_transaction
from pubsub.db.sql import load
from pubsub.dead_letters.parking import or_parked, unblocked
from pubsub.dead_letters.set_aside import set_aside
from pubsub.errors import HandlerEndedTransaction, HandlerTimeout
from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionTask

from .call import Seen, handle
from .entries import Given, PublishedTogether
from .failing import Doomed, Failing, Interrupted, bear, forget_failures
from .mode import Outcome, go_through
from .parked import ToPark
from .reader import Batch


class HandlerFailed(Exception):
    """A handler has failed in a batch that is tried as a whole: all of it is undone."""


class Spoiled(Exception):
    """A handler has left nothing to go on in: neither a savepoint nor the transaction is there any more. What it had in
    hand is doomed."""


class Handling(Protocol):
    """A way to handle a batch in the transaction that is open."""

    def __call__(self, batch: Batch) -> Outcome: ...

    def judge(self, error: BaseException, given: Given | None) -> None:
        """Raises what the error means, where that is more than itself. `given` is what the handler was given last."""


@dataclass(kw_only=True)
class AllAtOnce:
    """Handles a batch as a whole."""

    task: PartitionTask
    at_once: int
    doomed: Doomed = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    seen: Seen = field(default_factory=partial(Seen, may_be_abandoned=True))

    def __call__(self, batch: Batch) -> Outcome:
        task = self.task
        to_park = ToPark(task) if task.parks_keys else None
        try:
            entries = to_park.without_those(batch) if to_park else batch.entries
            handle(task, entries, at_once=self.at_once, seen=self.seen)
        except BaseException as error:
            check_still_in_transaction(task.using, because=error)
            raise
        check_still_in_transaction(task.using)
        handling_s = time.monotonic() - self.began
        failed = to_park.park() if to_park else 0
        return Outcome(passed=batch.passed, failed=failed, last=batch.last, handling_s=handling_s)

    def judge(self, error: BaseException, given: Given | None) -> None:
        if not is_the_handlers(error, self.task.using):
            if given is None:
                return
            bear(error, self.task, given, self.began, None)
        if isinstance(error, HandlerTimeout) and given and not self.task.declared.batch:
            self.doomed[given.last.transaction_id] = error  # it would hang once more
        raise HandlerFailed(type(error).__name__) from error


@dataclass(kw_only=True)
class OneByOne:
    """Handles each publisher's transaction in a savepoint; one that fails is set aside, all of it."""

    task: PartitionTask
    at_once: int
    attempt: int = 1
    doomed: Doomed = field(default_factory=dict)
    poisoned: BaseException | None = None
    """Why none is that has something for the group. Those before it are passed."""
    failing: Failing | None = None
    """At what the database has failed before."""
    began: float = field(default_factory=time.monotonic)
    """When the transaction in hand was begun."""
    seen: Seen = field(default_factory=Seen)

    def __call__(self, batch: Batch) -> Outcome:
        to_park = ToPark(self.task)
        done = go_through(self.task, batch, lambda together: self._handle_or_set_aside(together, to_park))
        to_park.park()
        return done

    def judge(self, error: BaseException, given: Given | None) -> None:
        if given and not isinstance(error, Interrupted | Spoiled) and not is_the_handlers(error, self.task.using):
            bear(error, self.task, given, self.began, self.failing)
            self.doomed[given.last.transaction_id] = error
            raise Spoiled from error

    def _handle_or_set_aside(self, together: PublishedTogether, to_park: ToPark) -> int:
        """Returns how many events failed."""
        task = self.task
        connection = connections[task.using]
        if task.parks_keys and together.transaction_id not in self.doomed and (parked := to_park.takes(together)):
            self._forget_failures(together)
            return parked
        self.began = time.monotonic()
        try:
            with transaction.atomic(using=task.using):
                if together.transaction_id in self.doomed:
                    raise self.doomed[together.transaction_id]
                entries = unblocked(together, to_park.keys) if task.parks_keys else together
                if self.poisoned and any(entry.is_mine for entry in entries):
                    raise self.poisoned
                handle_in_savepoint(task, entries, self.at_once, self.attempt, self.seen)
        except BaseException as error:
            if together.transaction_id not in self.doomed and not is_the_handlers(error, task.using):
                if together.given is None:
                    raise
                bear(error, task, together.given, self.began, self.failing)
            if cannot_continue(connection):
                self.doomed[together.transaction_id] = error
                raise Spoiled from error
            at = together.reached(task)
            if task.parks_keys:
                error = or_parked(error, together, to_park.keys)
            to_park.park()  # what this transaction may wait for
            done = set_aside(task, *together.ends, error, attempts=self.attempt, at=at)
            to_park.keys.update(done.keys)
            self._forget_failures(together)
            return done.count
        return 0

    def _forget_failures(self, together: PublishedTogether) -> None:
        if self.failing:
            with connections[self.task.using].cursor() as db:
                forget_failures(db, self.task, together.first, self.failing)


def handle_in_savepoint(
    task: PartitionTask, entries: Iterable[Entry], at_once: int, attempt: int, seen: Seen | None = None
) -> None:
    """What would fail at the commit, or behind it, fails here, where it shows whose fault it is."""
    try:
        handle(task, entries, at_once=at_once, attempt=attempt, seen=seen)
    except BaseException as error:
        check_still_in_transaction(task.using, because=error)
        raise
    check_still_in_transaction(task.using)
    connections[task.using].check_constraints()
    # Nor may a handler have set something for the rest of the transaction, such as another search_path.
    with connections[task.using].cursor() as db:
        db.execute(load("consuming/still_reachable"), task.parameters)
        if db.fetchone() is None:
            raise HandlerEndedTransaction("The handler has made a table that hides consumer_offsets from the worker.")
