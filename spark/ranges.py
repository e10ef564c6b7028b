"""Closed ranges of offsets, which can be read, divided and counted, and never change once they are below the tip."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import DEFAULT_DB_ALIAS, connections

from pubsub.db.sql import load
from pubsub.errors import UnknownTopic
from pubsub.suggest import hint

from .errors import InvalidRead, RangeNotThere


@dataclass(frozen=True, kw_only=True)
class LogRange:
    """The events of a topic from one offset to another, both included; empty if last is first - 1."""

    topic: str
    topic_id: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """The number of events: exact, because offsets have no gaps."""
        return self.last - self.first + 1

    def split(self, size: int) -> "list[LogRange]":
        """The same in pieces of at most `size` events.

        >>> [(piece.first, piece.last) for piece in LogRange(topic="a", topic_id=1, first=3, last=12).split(4)]
        [(3, 6), (7, 10), (11, 12)]
        """
        return [
            LogRange(topic=self.topic, topic_id=self.topic_id, first=first, last=min(first + size - 1, self.last))
            for first in range(self.first, self.last + 1, size)
        ]


@dataclass(frozen=True, kw_only=True)
class Extent:
    """What the log holds of a topic at one moment."""

    topic: str
    topic_id: int
    oldest: int
    tip: int
    partitions: int

    def range(self, start: int | None = None, end: int | None = None) -> LogRange:
        """The part from `start` to `end`, at most to the tip; raises :class:`RangeNotThere` if not all of it exists."""
        first = self.oldest if start is None else start
        last = self.tip if end is None else min(end, self.tip)
        held = (
            f'Of topic "{self.topic}" the log holds offsets {self.oldest} to {self.tip}'
            if self.tip >= self.oldest
            else f'Of topic "{self.topic}" the log holds nothing; the next offset is {self.tip + 1}'
        )
        if start is not None and end is not None and end < start - 1:
            raise InvalidRead(f"The range from {start} to {end} ends before it begins.")
        if first < self.oldest:
            raise RangeNotThere(f"{held}: a read cannot begin at {first}. Older events have been dropped.")
        if first > self.tip + 1:
            raise RangeNotThere(f"{held}: a read cannot begin at {first}, which no event has yet.")
        return LogRange(topic=self.topic, topic_id=self.topic_id, first=first, last=max(last, first - 1))


def extents(topics: str | Sequence[str] | None = None, using: str = DEFAULT_DB_ALIAS) -> list[Extent]:
    """What the log holds of some topics, or of all, at one moment.

    >>> [extent.topic for extent in extents("default")]
    ['default']
    """
    with connections[using].cursor() as cursor:
        cursor.execute(load("spark/topic_extents"))
        known = {
            row[1]: Extent(topic_id=row[0], topic=row[1], oldest=row[2], tip=row[3], partitions=row[4])
            for row in cursor.fetchall()
        }
    wanted = list(known) if topics is None else [topics] if isinstance(topics, str) else list(topics)
    for name in wanted:
        if name not in known:
            raise UnknownTopic(f'There is no topic "{name}". {hint(name, known)}')
    return [known[name] for name in dict.fromkeys(wanted)]


def log_range(topic: str, start: int | None = None, end: int | None = None, using: str = DEFAULT_DB_ALIAS) -> LogRange:
    """A topic's events from `start` (default: the oldest) to `end` (default, and at most: the current tip).

    >>> log_range("default").count
    0
    """
    (extent,) = extents(topic, using)
    return extent.range(start, end)
