"""Reading a partition: events in order, a chunk at a time, so that no transaction is too large for memory."""

import bisect
import datetime as dt
import itertools
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, Self

from django.db import connections

from pubsub.events import Event, make_event
from pubsub.sql import load
from pubsub.statements import execute_together
from pubsub.subscriptions.declaring import Declaration

PlaceKey = tuple[str, int, int]

_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""What PostgreSQL has written has nothing before it and nothing behind."""

ENTRIES_OF_OTHERS = 1000
"""Entries read at once by a group that wants only some of them. Those of others come without content."""

REST = 16
"""Entries read at once where a batch lacks the end of a publisher's transaction: most often, few. Then ever more."""

SMALL_BATCH = 500_000
"""Characters. Where a batch is no larger than this, two are read at once."""

MOST_PASSED = 10_000
"""Events of others that a batch passes, at most, while it looks for its own."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """One partition of a topic, for one group: the unit of work."""

    declared: Declaration
    topic_id: int
    partition_id: int
    using: str
    below_position: int | None = None
    """Where the topic was resized; what is behind waits until the group has passed all that is before."""

    @property
    def key(self) -> PlaceKey:
        return self.declared.group, self.topic_id, self.partition_id

    @property
    def parameters(self) -> dict[str, Any]:
        return {"group_id": self.declared.group, "topic_id": self.topic_id, "partition_id": self.partition_id}

    @property
    def takes_all(self) -> bool:
        """Whether the group wants every event of the topic."""
        return self.declared.chosen.is_trivial

    @property
    def parks_keys(self) -> bool:
        return self.declared.on_failure == "park_key"

    @property
    def statement(self) -> str:
        """The one that reads what is for this group."""
        if self.is_read_plainly:
            return load("read_partition")
        return load("read_chosen").replace("{chosen}", self.declared.chosen.sql)

    @property
    def is_read_plainly(self) -> bool:
        """Whether the group wants every event of the topic, whatever has failed before."""
        return self.takes_all and not self.parks_keys

    def reading(self, position: int | None, limit: int) -> dict[str, Any]:
        """The parameters of that statement: so many entries from a position on. None: from where the place was found
        when it was locked, which plain reading knows."""
        return {
            **self.parameters,
            **self.declared.chosen.parameters,
            "parks_keys": self.parks_keys,
            "position": position,
            "below_position": self.below_position,
            "limit": limit,
        }

    def chunk(self, batch_size: int) -> int:
        """How many entries to read at once: one more than a batch, or many if most are only passed."""
        return max(batch_size + 1, 1 if self.takes_all else ENTRIES_OF_OTHERS)

    @property
    def facts(self) -> dict[str, Any]:
        """For the log's `extra`."""
        return {"group": self.declared.group, "topic": self.declared.topic, "partition": self.partition_id}

    def __str__(self) -> str:
        return f"{self.declared.group} on {self.declared.topic}/{self.partition_id}"


class Entry(NamedTuple):
    """An event as it is stored. It is decoded where it is handled: if that fails, it is this event's own failure."""

    position: int
    offset: int
    transaction_id: uuid.UUID
    is_mine: bool
    """Whether the group is meant, or only passes it."""
    id: uuid.UUID
    type: str
    key: str | None
    payload: str
    metadata: str
    host_id: str | None
    user_id: str | None
    published_at: float
    """In seconds since 1970, exact to the microsecond: what turns a text into a time is slow, and fails on odd ones."""
    is_blocked: bool = False
    """Whether an earlier event of its key has failed and waits."""

    @property
    def ordering_key(self) -> str | None:
        return self.key if self.key is not None else self.host_id


class ReadAhead:
    """What was read of a place together with a batch, for those that follow.

    Entries never change, so nothing need be read twice as long as the group still stands where these begin.
    """

    def __init__(self, place: Place, batch_size: int) -> None:
        self._place = place
        self._batch_size = batch_size
        self._batches = 1
        """How many to read at once."""
        self._position: int | None = None
        """What follows begins here; None while nothing is known of the place."""
        self._rows: Sequence[Sequence[Any]] = ()
        self._exhausted = False

    def __bool__(self) -> bool:
        """Whether there is more, as far as is known."""
        return bool(self._rows) or not self._exhausted

    @property
    def holds_a_batch(self) -> bool:
        return len(self._rows) > self._batch_size or (self._exhausted and bool(self._rows))

    def missing(self) -> tuple[str, dict[str, Any]] | None:
        """The statement that reads what the next batch lacks, and its parameters; None where it lacks nothing. Others
        than plain ones may fail, and are left to the transaction in which that is noticed."""
        if self.holds_a_batch or not self._place.is_read_plainly:
            return None
        position = self._rows[-1][0] + 1 if self._rows else self._position
        return self._place.statement, self._place.reading(position, self.chunk)

    @property
    def chunk(self) -> int:
        return self._place.chunk(self._batch_size * self._batches)

    def add(self, rows: Sequence[Sequence[Any]], found_at: int) -> None:
        """What :meth:`missing` has read for a place that was found there."""
        self._exhausted = len(rows) < self.chunk
        if self._position is None:  # the first that is seen of the place
            self._position = found_at
            self._batches = 2 if sum(map(_size, rows)) <= SMALL_BATCH else 1
        self._rows = [*self._rows, *rows]

    def take(self, position: int) -> tuple[Sequence[Sequence[Any]], bool]:
        """What is there from this position on, and whether nothing followed it when it was read."""
        return (self._rows, self._exhausted) if position == self._position else ((), False)

    def keep(self, rows: Sequence[Sequence[Any]], position: int, exhausted: bool) -> None:
        """What was read from this position on. What may have to wait by then is read again."""
        rest = rows[bisect.bisect_left(rows, position, key=itemgetter(0)) :]
        waits = self._place.parks_keys and bool(rest)
        self._rows, self._exhausted = ((), False) if waits else (rest, exhausted)
        self._position = position


def _size(row: Sequence[Any]) -> int:
    return len(row[7] or "") + len(row[8])


class Reader:
    """All entries of a partition from a position on. After an error of the database it goes on where it was."""

    def __init__(self, place: Place, position: int, chunk: int, ahead: ReadAhead | None = None) -> None:
        self._place = place
        self._position = position
        self._ahead = ahead
        self._limits = _limits(chunk, REST if place.takes_all else chunk)
        self._rows: Sequence[Sequence[Any]] = ()
        self._exhausted = False
        self._entries: Iterator[Entry] = iter(())
        if ahead is not None:
            self._show(*ahead.take(position))

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        for entry in self._entries:
            return entry
        self._fetch()
        return next(self._entries)

    def batch_in_hand(self, size: int) -> list[Entry] | None:
        """The next batch, if all of it was read ahead and is for the group."""
        rows, end = self._rows, size
        if len(rows) <= size:
            if not (rows and self._exhausted):
                return None
            end = len(rows)
        while end < len(rows) and rows[end][2] == rows[end - 1][2]:
            end += 1
        if end == len(rows) and not self._exhausted:
            return None  # its last transaction may go on
        batch = list(itertools.starmap(Entry, rows[:end]))
        return batch if all(entry.is_mine for entry in batch) else None

    def keep_rest(self, position: int) -> None:
        """Keeps what was read from this position on for the next reader."""
        if self._ahead is not None:
            self._ahead.keep(self._rows, position, self._exhausted)

    def _fetch(self) -> None:
        if self._exhausted:
            raise StopIteration
        limit = next(self._limits)
        reading = self._place.reading(self._position, limit)
        rows = execute_together(connections[self._place.using], [self._place.statement], reading).rows()
        self._show(rows, len(rows) < limit)

    def _show(self, rows: Sequence[Sequence[Any]], exhausted: bool) -> None:
        self._rows = rows
        self._exhausted = exhausted
        self._entries = itertools.starmap(Entry, rows)
        if rows:
            self._position = rows[-1][0] + 1


def _limits(chunk: int, rest: int) -> Iterator[int]:
    yield chunk
    while True:
        yield min(rest, chunk)
        rest *= 2


class BatchOfEntries:
    """The entries of a batch: as many as are wanted, and then on to the end of the publisher's transaction."""

    def __init__(self, entries: Iterable[Entry], size: int) -> None:
        self._entries = iter(entries)
        self._size = size
        self.passed = 0
        self.mine = 0
        self.last: Entry | None = None
        self._in_hand: list[Entry] | None = None

    @classmethod
    def read(cls, reader: Reader, size: int) -> Self:
        """The next one; faster to go through if it is all there."""
        in_hand = reader.batch_in_hand(size)
        if in_hand is None:
            return cls(reader, size)
        batch = cls((), size)
        batch._in_hand = in_hand
        batch.passed = batch.mine = len(in_hand)
        batch.last = in_hand[-1]
        return batch

    def __iter__(self) -> Iterator[Entry]:
        return self if self._in_hand is None else iter(self._in_hand)

    def __next__(self) -> Entry:
        entry = next(self._entries)
        enough = self.mine >= self._size or self.passed >= MOST_PASSED
        if enough and self.last and entry.transaction_id != self.last.transaction_id:
            self._entries = iter(())
            raise StopIteration
        self.last = entry
        self.passed += 1
        self.mine += entry.is_mine
        return entry


class PublishedTogether:
    """The events of one publisher's transaction, read while they are handled."""

    def __init__(self, transaction_id: uuid.UUID, entries: Iterator[Entry]) -> None:
        self.transaction_id = transaction_id
        self._entries = entries
        self.first: Entry | None = None
        self.last: Entry | None = None
        self.count = 0

    def __iter__(self) -> Iterator[Entry]:
        for entry in self._entries:
            self.first = self.first or entry
            self.last = entry
            self.count += 1
            yield entry

    @property
    def ends(self) -> tuple[Entry, Entry]:
        """The first and the last one; of a transaction there is always one."""
        self.skip_rest()
        assert self.first  # noqa: S101
        assert self.last  # noqa: S101
        return self.first, self.last

    def skip_rest(self) -> None:
        for _ in self:
            pass


def by_transaction(entries: Iterable[Entry]) -> Iterator[PublishedTogether]:
    """Splits entries where the publisher's transaction changes; the events of one are contiguous."""
    for transaction_id, together in itertools.groupby(entries, key=lambda entry: entry.transaction_id):
        yield PublishedTogether(transaction_id, together)


def events_from(place: Place, entries: Iterable[Entry], attempt: int = 1) -> Iterator[Event]:
    """What the handler is given of them: the group's own."""
    topic, partition, group = place.declared.topic, place.partition_id, place.declared.group
    for entry in entries:
        (_, offset, transaction_id, mine, id_, type_, key, payload, metadata, host_id, user_id, published_at, _) = entry
        if mine:
            yield make_event(
                {
                    "topic": topic,
                    "offset": offset,
                    "partition": partition,
                    "id": id_,
                    "type": type_,
                    "key": key,
                    "payload": _scan(payload, 0)[0],
                    "metadata": _scan(metadata, 0)[0] if metadata != "{}" else {},
                    "host_id": host_id,
                    "user_id": user_id,
                    "transaction_id": transaction_id,
                    "created_at": dt.datetime.fromtimestamp(published_at, dt.UTC),
                    "attempt": attempt,
                    "group": group,
                }
            )
