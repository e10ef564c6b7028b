"""Reading a partition, batch after batch, a chunk at a time, so that no transaction is too large for memory."""

import bisect
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from django.db import connections

from pubsub.db.pipeline import execute_together
from pubsub.db.sql import load
from pubsub.events import Entry, columns_of
from pubsub.subscriptions.task import PartitionTask

from .cursor import Cursor
from .entries import Given
from .kept import KeptEntries, KeptRun

ENTRIES_OF_OTHERS = 1000
"""Entries read at once by a group that wants only some of them. Those of others come without content."""

REST = 16
"""Entries read at once where a batch lacks the end of a publisher's transaction: most often, few. Then ever more."""

SMALL_BATCH = 500_000
"""Characters. Where a batch is no larger than this, two are read at once."""

MOST_PASSED = 10_000
"""Events of others that a batch passes, at most, while it looks for its own."""

_COLUMNS = columns_of("message")
_READ_ALL = load("consuming/read_partition", columns=_COLUMNS)
_READ_LOCKED = load("consuming/read_locked", columns=_COLUMNS, partition="")
entry_of: Callable[[Iterable[Any]], Entry] = functools.partial(tuple.__new__, Entry)
"""What `Entry._make` does, without a call of Python's for each."""
_READ_SOME = columns_of("message", payload="(CASE WHEN mine.is_mine THEN message.payload END)")


class EntryReader:
    """The entries of a partition, from a position on.

    Entries never change, so nothing is read twice: what was read beyond a batch is kept for the next one. After an
    error of the database the reader goes on where it was.
    """

    def __init__(self, task: PartitionTask, batch_size: int, kept: KeptEntries | None = None) -> None:
        wants_all = task.wants_all
        self.is_plain = wants_all and not task.parks_keys
        """Whether the group reads every event of the topic, whatever has failed before."""
        self._using = task.using
        self._keeps = not task.parks_keys
        """Whether what was read still holds for the next batch: where keys are parked, it may have to wait by then."""
        declared = task.declared
        self._statement = (
            _READ_ALL
            if self.is_plain
            else load("consuming/read_filtered", filter=declared.filter.sql, columns=_READ_SOME)
        )
        self._parameters = {
            **task.parameters,
            **declared.filter.parameters,
            "parks_keys": task.parks_keys,
            "below_position": task.below_position,
            "for_all": False,
        }
        self._task = task
        self._kept = kept if self.is_plain else None
        """What other groups of this process have read, and will read."""
        self._batch_size = batch_size
        self._of_others = 1 if wants_all else ENTRIES_OF_OTHERS
        self._rest = REST if wants_all else self._chunk(1)
        self._batches = 1
        """How many to read at once."""
        self._start: int | None = None
        """Where the first of `_entries` stands; None while nothing is known of the partition."""
        self._entries: Sequence[Entry] = ()
        """The last ones that were read."""
        self._next = 0
        """Which of them is to be given next."""
        self._is_at_end = False
        """Whether nothing followed them when they were read."""
        self._limit = self._more = 0
        """How many entries the next statement reads, and the one after it."""
        self.may_have_more = True
        """Whether there is more in the partition, as far as is known."""
        self.holds_a_batch = False
        """Whether the next batch need not be read."""

    def _chunk(self, batches: int) -> int:
        """How many entries to read at once: one more than the batches, or many if most are only passed."""
        return max(self._batch_size * batches + 1, self._of_others)

    @property
    def chunk(self) -> int:
        return self._chunk(1)

    # What is read ahead

    def read_along(self, connection: Any, statements: Sequence[str], parameters: dict[str, Any]) -> Cursor | None:
        """Sends statements, the last of which locks the cursor, and in the same round trip reads what the next batch
        lacks. Returns the cursor; None where another worker has it. Where that needs another statement than the plain
        one, which may fail, it is left to the transaction in which that is noticed."""
        if self.holds_a_batch or not self.is_plain:
            row = execute_together(connection, statements, parameters).row()
            return Cursor(*row) if row else None
        position = self._entries[-1].position + 1 if self._entries else self._start
        # What is kept has to be known before the lock: a resize in it is then known to the lock.
        kept = self._kept and self._kept.of(self._task.topic_id, self._task.partition_id, position)
        if kept and len(kept.entries) > self._batch_size:
            return self._take_kept(connection, statements, parameters, kept)
        read = _READ_LOCKED if position is None else self._statement
        here = {**self.parameters_at(position, self._chunk(self._batches)), "for_all": self._kept is not None}
        answers = execute_together(connection, [*statements, read], {**parameters, **here})
        row = answers.row(-2)
        if row is None:
            return None
        cursor = Cursor(*row)
        rows = answers.rows(make=entry_of)
        if self._kept is not None:
            if not all(entry.is_mine for entry in rows):
                self._kept = None  # some are for one group alone: what this group gets of them has to be read
                return cursor
            self._kept.add(self._task.topic_id, self._task.partition_id, position or cursor.next_position, rows)
        self.add(rows, found_at=cursor.next_position)
        return cursor

    def _take_kept(
        self, connection: Any, statements: Sequence[str], parameters: dict[str, Any], kept: KeptRun
    ) -> Cursor | None:
        """Locks the cursor, and goes on with what another group has read."""
        row = execute_together(connection, statements, parameters).row()
        if row is None:
            return None
        cursor = Cursor(*row)
        position = self._entries[-1].position + 1 if self._entries else cursor.next_position
        if kept.start <= position < kept.upto and not cursor.is_bounded:
            self._start = cursor.next_position
            self._entries, self._is_at_end = [*self._entries, *kept.begin_at(position)], False
            self._look_ahead()
        return cursor

    def add(self, rows: Sequence[Entry], *, found_at: int) -> None:
        """What was read behind the entries that are kept; if none are, from where the cursor was found."""
        self._is_at_end = len(rows) < self._chunk(self._batches)
        if self._start is None:  # the first that is seen of the partition
            self._start = found_at
            characters = sum(len(entry.payload or "") + len(entry.metadata) for entry in rows)
            self._batches = 2 if characters <= SMALL_BATCH else 1
        self._entries = [*self._entries, *rows]
        self._look_ahead()

    def keep_from(self, position: int) -> None:
        """The cursor has been moved: what was read from there on is kept."""
        rest = self._entries[bisect.bisect_left(self._entries, position, key=_position_of) :]
        if rest and not self._keeps:
            rest, self._is_at_end = (), False
        self._entries, self._start, self._next = rest, position, 0
        self._look_ahead()

    def _look_ahead(self) -> None:
        self.may_have_more = bool(self._entries) or not self._is_at_end
        self.holds_a_batch = len(self._entries) > self._batch_size or (self._is_at_end and bool(self._entries))

    # Going through it

    def begin_at(self, position: int) -> Self:
        """Gives the entries from a position on: what is kept, if it begins there, and then what has to be read."""
        if position != self._start:
            self._entries, self._start, self._is_at_end = (), position, False
        self._next = 0
        self._limit, self._more = self._chunk(self._batches), self._rest
        return self

    def next_batch(self, position: int, size: int) -> "Batch":
        """From a position on, and so many at least, if there are."""
        self.begin_at(position)
        in_hand = self._batch_in_hand(size)
        return Batch(self, size) if in_hand is None else Batch.in_hand(in_hand)

    def _batch_in_hand(self, size: int) -> Sequence[Entry] | None:
        """The next batch, if all of it was read ahead and is for the group."""
        entries, end = self._entries, size
        if len(entries) <= size:
            if not (entries and self._is_at_end):
                return None
            end = len(entries)
        while end < len(entries) and entries[end].transaction_id == entries[end - 1].transaction_id:
            end += 1
        if end == len(entries) and not self._is_at_end:
            return None  # its last transaction may go on
        batch = entries[:end]
        return batch if all(entry.is_mine for entry in batch) else None

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        if self._next == len(self._entries):
            self._fetch()
        entry = self._entries[self._next]
        self._next += 1
        return entry

    def _fetch(self) -> None:
        if self._is_at_end:
            raise StopIteration
        limit = self._limit
        self._limit, self._more = min(self._more, self._chunk(self._batches)), 2 * self._more
        position = self._entries[-1].position + 1 if self._entries else self._start
        entries = execute_together(
            connections[self._using], [self._statement], self.parameters_at(position, limit)
        ).rows(make=entry_of)
        self._is_at_end = len(entries) < limit
        if not entries:
            raise StopIteration
        self._entries, self._next = entries, 0

    def parameters_at(self, position: int | None, limit: int | None = None) -> dict[str, Any]:
        """The parameters that read so many entries from a position on, or a batch and one."""
        return {**self._parameters, "position": position, "limit": limit or self.chunk}


def _position_of(entry: Entry) -> int:
    return entry.position


class Batch:
    """The entries of a batch: as many as are wanted, and then on to the end of the publisher's transaction."""

    def __init__(self, entries: Iterable[Entry], size: int) -> None:
        self._entries = iter(entries)
        self._size = size
        self.passed = 0
        self.mine = 0
        self.last: Entry | None = None
        self.entries: Iterable[Entry] = self
        """The same, as fast to go through as can be."""
        self._in_hand: Sequence[Entry] = ()
        """All of them, if they need not be read."""
        self._begins_with: Entry | None = None
        """The first of the transaction that was given last."""

    @classmethod
    def in_hand(cls, entries: Sequence[Entry]) -> Self:
        """One that is all there, and is for the group: faster to go through."""
        batch = cls((), len(entries))
        batch.entries, batch._in_hand = iter(entries), entries
        batch.passed = batch.mine = len(entries)
        batch.last = entries[-1]
        return batch

    def __iter__(self) -> Iterator[Entry]:
        return self if self.entries is self else iter(self.entries)

    def __next__(self) -> Entry:
        entry = next(self._entries)
        enough = self.mine >= self._size or self.passed >= MOST_PASSED
        if enough and self.last and entry.transaction_id != self.last.transaction_id:
            self._entries = iter(())
            raise StopIteration
        if self.last is None or entry.transaction_id != self.last.transaction_id:
            self._begins_with = entry
        self.last = entry
        self.passed += 1
        self.mine += entry.is_mine
        return entry

    @property
    def given(self) -> Given | None:
        """What was given last, if anything was."""
        if not self._in_hand:
            return Given(self._begins_with, self.last) if self._begins_with and self.last else None
        given = self._in_hand[: len(self._in_hand) - operator.length_hint(self.entries)]
        if not given:
            return None
        of_it = itertools.takewhile(lambda entry: entry.transaction_id == given[-1].transaction_id, reversed(given))
        *_, first = of_it
        return Given(first, given[-1])
