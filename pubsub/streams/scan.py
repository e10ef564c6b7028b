"""Scanning the log of several topics by position, for many filters at once: each is evaluated once per event."""

import functools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from pubsub.db.sql import load
from pubsub.errors import PubSubError
from pubsub.events import Entry, Event
from pubsub.subscriptions.filters import Filter
from pubsub.topics.names import matches

from .compose import Composed, chunks, compose

ROWS = 500
"""Events that one statement returns."""

MOST_POSITIONS = 10_000
"""Positions that one statement scans at most, so that no listener waits long for the past of another."""

SLOW_S = 0.5
"""A statement that takes longer is followed by one that scans half as many positions."""

MOST_BYTES = 8_000_000
"""Of memory that the events of one statement take, about; or one event, however large."""

BYTES_OF_A_VALUE = 72
"""Of memory, beside the text: an empty dict takes as much, and two characters of JSON."""

LIGHT_PARAMETERS = 10
"""A filter with more is costly: it is evaluated after the others, so that they do not wait for it."""


@dataclass(frozen=True)
class Interest:
    """What a listener wants to read: topics, by name or pattern, and which of their events."""

    topics: tuple[str, ...]
    filter: Filter

    def includes(self, topic: str) -> bool:
        return any(matches(name, topic) for name in self.topics)

    @functools.cached_property
    def parameters(self) -> int:
        """What it costs, roughly: how many values of an event are compared."""
        return len(self.filter.parameters)

    @property
    def is_costly(self) -> bool:
        return self.parameters > LIGHT_PARAMETERS


@dataclass(frozen=True)
class Tip:
    """Where the log ended at one moment."""

    position: int
    """The next one."""
    topics: dict[int, str]
    offsets: dict[str, int]
    """The next offset of each topic."""
    mark: str = ""
    """Of the last event; empty: unknown."""
    marks: dict[str, str] = field(default_factory=dict)
    """Of the last event of each topic, where it is known."""


class Item(NamedTuple):
    """An event that was read, and where it is."""

    position: int
    """In the log of all topics. What follows begins one further."""
    topic: str
    offset: int
    mark: str
    event: Event | None
    """None if Python cannot represent it."""
    error: str
    """Why not."""
    size: int
    """In bytes of memory, about."""


class Match(NamedTuple):
    """An event, and the interests that it matches."""

    item: Item
    interests: list[Interest]


class ReadSize:
    """How many positions the next statement scans: enough for a good number of events, and no more than takes long."""

    def __init__(self, least: int = 50) -> None:
        self.positions = ROWS
        self.least = least
        """A server that is slow by itself is not helped by ever smaller pieces; a costly filter is."""

    def adapt(self, matches: int, seconds: float) -> None:
        """Takes into account how many events the last statement has returned, and how long it took."""
        if seconds > SLOW_S:
            self.positions = max(self.least, self.positions // 2)
        elif matches >= ROWS:
            self.positions = max(ROWS, self.positions // 2)
        elif matches < ROWS // 4:
            self.positions = min(MOST_POSITIONS, self.positions * 2)


class Scanner:
    """Reads on a psycopg connection in autocommit mode."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.statements = 0
        """How many it has executed."""
        self._topics: dict[int, str] = {}
        self._included: dict[Interest, list[int]] = {}
        self._composed: dict[tuple[Interest, ...], Composed] = {}

    def tip(self) -> Tip:
        rows = self.fetch(load("streams/tip"), {})
        if not rows:
            raise PubSubError("The outbox's tables have not been prepared; run `manage.py migrate`.")
        return Tip(
            position=rows[0][0],
            topics={number: name for _, number, name, _ in rows},
            offsets={name: next_offset for _, _, name, next_offset in rows},
        )

    def marks(self, offsets: dict[int, int]) -> dict[int, tuple[int, str]]:
        """The position and the mark of one event of each topic, by topic id; of those that are still there."""
        wanted = {"topics": list(offsets), "offsets": list(offsets.values())}
        rows = self.fetch(load("streams/find_marks"), wanted) if offsets else []
        return {topic_id: (position, mark_of(event_id)) for topic_id, position, event_id in rows}

    def mark_at(self, position: int) -> str:
        """The mark of the event at a position; empty if it is gone."""
        rows = self.fetch(load("streams/find_mark_at_position"), {"position": position})
        return mark_of(rows[0][0]) if rows else ""

    def read(self, interests: Sequence[Interest], tip: Tip, position: int, until: int) -> tuple[list[Match], int]:
        """The events from a position on that match any of the interests, in order, and the position scanned up to."""
        self._forget_unless(tip)
        found: dict[int, Match] = {}
        for some in chunks(interests):
            statement, parameters = self._compose(some, tip)
            if not statement:
                continue
            parameters = {**parameters, "position": position, "until": until, "limit": ROWS}
            rows = size = 0
            with closing(self._stream(statement, parameters)) as coming:
                for numbers, topic_id, partition_id, *columns in coming:
                    entry = Entry(*columns)
                    matched = [some[number] for number in numbers]
                    if entry.position in found:
                        found[entry.position].interests.extend(matched)
                    else:
                        found[entry.position] = Match(_item(entry, tip.topics[topic_id], partition_id), matched)
                    rows += 1
                    size += found[entry.position].item.size
                    if rows == ROWS or size >= MOST_BYTES:
                        until = entry.position + 1
                        break
        return [found[position] for position in sorted(found) if position < until], until

    def _forget_unless(self, tip: Tip) -> None:
        """What has been worked out holds for the same topics."""
        if self._topics != tip.topics or len(self._included) > 10_000:
            self._topics = tip.topics
            self._included.clear()
            self._composed.clear()

    def _compose(self, interests: Sequence[Interest], tip: Tip) -> Composed:
        """The same interests are read for again and again."""
        key = tuple(interests)
        if key not in self._composed:
            if len(self._composed) >= 50:
                self._composed.clear()
            self._composed[key] = compose(interests, [self._topics_of(interest, tip) for interest in interests])
        return self._composed[key]

    def _topics_of(self, interest: Interest, tip: Tip) -> list[int]:
        if interest not in self._included:
            self._included[interest] = sorted(number for number, name in tip.topics.items() if interest.includes(name))
        return self._included[interest]

    def fetch(self, statement: Any, parameters: dict[str, Any]) -> list[Any]:
        self.statements += 1
        return self.connection.execute(statement, parameters).fetchall()

    def _stream(self, statement: Any, parameters: dict[str, Any]) -> Any:
        """Row by row: how many fit into memory is known when they come."""
        self.statements += 1
        return self.connection.cursor().stream(statement, parameters)


def mark_of(event_id: UUID) -> str:
    """A few digits of an event's id, by which a reader that comes back recognises the log."""
    return event_id.hex[-8:]


def _item(entry: Entry, topic: str, partition_id: int) -> Item:
    """One event that Python cannot represent is its listeners' failure, and no other's."""
    event: Event | None = None
    error = ""
    try:
        event = entry.as_event(topic, partition_id)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    return Item(entry.position, topic, entry.offset, mark_of(entry.id), event, error, _size_of(entry))


def _size_of(entry: Entry) -> int:
    texts = (entry.payload, entry.metadata)
    return 1000 + sum(
        len(text) + BYTES_OF_A_VALUE * (text.count(",") + text.count("{") + text.count("[")) for text in texts
    )
