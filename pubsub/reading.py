"""Reading a partition: events in order, a chunk at a time, so that no transaction is too large for memory."""

import itertools
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .events import Event
from .sql import load
from .subscribing import Declaration

PlaceKey = tuple[str, int, int]


@dataclass(frozen=True, kw_only=True)
class Place:
    """One partition of a topic, for one group: the unit of work."""

    declared: Declaration
    topic_id: int
    partition_id: int
    using: str

    @property
    def key(self) -> PlaceKey:
        return self.declared.group, self.topic_id, self.partition_id

    @property
    def parameters(self) -> dict[str, Any]:
        return {"group_id": self.declared.group, "topic_id": self.topic_id, "partition_id": self.partition_id}

    def __str__(self) -> str:
        return f"{self.declared.group} on {self.declared.topic}/{self.partition_id}"


@dataclass(frozen=True, slots=True)
class Entry:
    """An event as it is stored. It is decoded where it is handled: if that fails, it is this event's own failure."""

    position: int
    to_group: str | None
    offset: int
    transaction_id: uuid.UUID
    columns: Sequence[Any]


class Reader:
    """All entries of a partition from a position on. After an error of the database it goes on where it was."""

    def __init__(self, cursor: Any, place: Place, position: int, chunk: int) -> None:
        self._cursor = cursor
        self._place = place
        self._position = position
        self._limit = chunk
        self._rows: Iterator[Sequence[Any]] = iter(())
        self._exhausted = False

    def __iter__(self) -> "Reader":
        return self

    def __next__(self) -> Entry:
        row = next(self._rows, None)
        if row is None:
            self._fetch()
            row = next(self._rows)
        position, to_group, *columns = row
        return Entry(position, to_group, offset=columns[0], transaction_id=columns[8], columns=columns)

    def _fetch(self) -> None:
        if self._exhausted:
            raise StopIteration
        parameters = {**self._place.parameters, "position": self._position, "limit": self._limit}
        self._cursor.execute(load("read_partition"), parameters)
        rows = self._cursor.fetchall()
        self._rows = iter(rows)
        self._exhausted = len(rows) < self._limit
        if rows:
            self._position = rows[-1][0] + 1


class PublishedTogether:
    """The events of one publisher's transaction, read while they are handled."""

    def __init__(self, entries: Iterator[Entry]) -> None:
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
        assert self.first  # noqa: S101
        assert self.last  # noqa: S101
        return self.first, self.last

    def skip_rest(self) -> None:
        for _ in self:
            pass


def by_transaction(entries: Iterator[Entry]) -> Iterator[PublishedTogether]:
    """Splits entries where the publisher's transaction changes; the events of one are contiguous."""
    for _, together in itertools.groupby(entries, key=lambda entry: entry.transaction_id):
        yield PublishedTogether(together)


def event_from(place: Place, columns: Sequence[Any], attempt: int = 1) -> Event:
    """The event in the columns that `read_partition.sql` and `lock_due_transaction.sql` both tell."""
    offset, event_id, type_, key, payload, metadata, host_id, user_id, transaction_id, created_at = columns
    return Event(
        topic=place.declared.topic,
        offset=offset,
        partition=place.partition_id,
        id=event_id,
        type=type_,
        key=key,
        payload=json.loads(payload),
        metadata=json.loads(metadata),
        host_id=host_id,
        user_id=user_id,
        transaction_id=transaction_id,
        created_at=created_at,
        attempt=attempt,
        group=place.declared.group,
    )
