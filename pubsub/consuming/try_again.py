"""Trying again what has failed before, in the transaction that notes what became of it.

Like new events, what is due is handled together as long as all goes well, and what is parked behind it along with it.
Otherwise it goes on one publisher's transaction at a time, so that only those that fail stay.
"""

import itertools
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db import connections, transaction

from pubsub.db.errors import is_the_handlers
from pubsub.db.guard import check_still_in_transaction, refusing_to_end, was_lost
from pubsub.db.transactions import make_hooks_robust
from pubsub.dead_letters.attempts import Letters, failed_again, lock_due_and_parked, lock_letters, read, resolve
from pubsub.errors import HandlerEndedTransaction, HandlerTimeout
from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionTask

from .call import Seen
from .cursor import lock_cursor
from .entries import PublishedTogether, by_transaction
from .failing import Doomed, Failing, bear, forget_failures
from .handling import HandlerFailed, Spoiled, handle_in_savepoint

logger = logging.getLogger(__name__)


class LostToAnother(Exception):
    """Another worker has taken the partition between two transactions of this one."""


class HasToBeCounted(Exception):
    """A worker may have died of what is due first: the next attempt is counted before it is made."""


@dataclass(kw_only=True)
class TryAgain:
    """Tries what is due in a partition, or what has been counted already."""

    task: PartitionTask
    at_once: int
    doomed: Doomed
    counted: Letters | None = None
    failing: Failing | None = None
    seen: Seen = field(default_factory=Seen)

    def __call__(self) -> int:
        """Returns how many events were tried."""
        together = self.counted is None and not self.doomed
        while True:
            try:
                tried = self._in_one_transaction(together)
            except (HandlerFailed, Spoiled) as failed:
                # All is undone. What has spoiled a transaction fails this time without another call.
                logger.debug("what was due in %s failed (%s); trying it one by one", self.task, type(failed).__name__)
                together = False
                continue
            for key in [key for key in self.doomed if _is_of_letters(key)]:
                del self.doomed[key]
            return tried

    def _in_one_transaction(self, together: bool) -> int:
        using = self.task.using
        with transaction.atomic(using=using), connections[using].cursor() as db:
            several = self._lock(db)
            if together and len(several) > 1:
                tried = self._handle_together(db, several)
            else:
                tried = self._handle_one_by_one(db, several)
            make_hooks_robust(connections[using])
        return tried

    def _lock(self, db: Any) -> list[Letters]:
        """What to try, in order."""
        is_mine = lock_cursor(db, self.task) is not None
        if self.counted is not None:
            letters = lock_letters(db, self.task, self.counted.ids) if is_mine else None
            if not letters:
                raise LostToAnother
            return [letters]
        several = lock_due_and_parked(db, self.task, self.at_once) if is_mine else []
        if several and several[0].first.is_alone:
            raise HasToBeCounted
        others = itertools.takewhile(lambda letters: not (letters.first.is_alone or self._failed_at(letters)), several)
        return list(others) or several[:1]

    def _failed_at(self, letters: Letters) -> bool:
        """Whether the database has failed there before."""
        return self.failing is not None and self.failing.offset == letters.first.offset

    def _attempt(self, letters: Letters) -> int:
        return letters.attempts + (self.counted is None)

    def _handle_together(self, db: Any, several: list[Letters]) -> int:
        task, began = self.task, time.monotonic()
        in_hand: list[PublishedTogether] = []
        seen = Seen(may_be_abandoned=True)

        def entries_of(run: Iterable[Letters]) -> Iterator[Entry]:
            for together in by_transaction(read(task, [id_ for letters in run for id_ in letters.ids])):
                in_hand[:] = [together]
                yield from together

        try:
            with refusing_to_end(task.using):
                for attempt, run in itertools.groupby(several, key=self._attempt):
                    handle_in_savepoint(task, entries_of(run), self.at_once, attempt, seen)
        except BaseException as error:
            if not is_the_handlers(error, task.using):
                if not (in_hand and in_hand[0].given):
                    raise
                bear(error, task, in_hand[0].given, began, None)
            self.seen.offsets |= seen.offsets
            if isinstance(error, HandlerTimeout) and not task.declared.batch:
                (hung,) = [it for it in several if it.first.transaction_id == in_hand[0].transaction_id]
                self.doomed[_key_of(hung)] = error  # it would hang once more
            raise HandlerFailed(type(error).__name__) from error
        resolve(db, task, [(letters, self._attempt(letters)) for letters in several])
        return sum(map(len, several))

    def _handle_one_by_one(self, db: Any, several: list[Letters]) -> int:
        handled: list[tuple[Letters, int]] = []
        tried = 0
        blocked: set[str] = set()
        for letters in several:
            if letters.first.state == "parked" and not blocked.isdisjoint(letters.keys):
                blocked.update(letters.keys)
                continue
            attempt = self._attempt(letters)
            together = PublishedTogether(None, iter(letters))
            error = self._failure_of(letters, together, attempt)
            if error is None:
                handled.append((letters, attempt))
            else:
                failed_again(db, self.task, letters, error, attempt, at=together.reached(self.task))
                blocked.update(letters.keys)
            if self.failing and self._failed_at(letters):
                forget_failures(db, self.task, letters.ends[0], self.failing)
            tried += len(letters)
        resolve(db, self.task, handled)
        return tried

    def _failure_of(self, letters: Letters, together: PublishedTogether, attempt: int) -> BaseException | None:
        """Handles a transaction in a savepoint. Returns what it failed of."""
        task, using, began = self.task, self.task.using, time.monotonic()
        key = _key_of(letters)
        try:
            with refusing_to_end(using), transaction.atomic(using=using):
                if key in self.doomed:
                    raise self.doomed[key]
                handle_in_savepoint(task, together, self.at_once, attempt, self.seen)
        except BaseException as error:
            if key in self.doomed:
                return error
            try:
                check_still_in_transaction(using, because=error)
            except (HandlerEndedTransaction, HandlerTimeout) as ended:
                self.doomed[key] = ended
                raise Spoiled from ended
            if not is_the_handlers(error, using):
                if together.given is None:
                    raise
                bear(error, task, together.given, began, self.failing)
                self.doomed[key] = error
                if was_lost(using):
                    raise Spoiled from error
            return error
        return None


def _key_of(letters: Letters) -> Any:
    return "letters", letters.ids[0]


def _is_of_letters(key: Any) -> bool:
    return isinstance(key, tuple)
