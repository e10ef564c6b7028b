"""Scanning the log of several topics by position, for many filters at once: each is evaluated once per event."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from pubsub.db.sql import load
from pubsub.errors import PubSubError
from pubsub.events import Entry, Event, columns_of
from pubsub.subscriptions.filters import Filter
from pubsub.topics.names import matches

ROWS = 500
"""Events that one statement returns."""

MOST_POSITIONS = 10_000
"""Positions that one statement scans at most, so that no listener waits long for the past of another."""

FILTERS = 500
"""Filters that one statement evaluates."""


@dataclass(frozen=True)
class Interest:
    """What a listener wants to read: topics, by name or pattern, and which of their events."""

    topics: tuple[str, ...]
    filter: Filter

    def includes(self, topic: str) -> bool:
        return any(matches(name, topic) for name in self.topics)


@dataclass(frozen=True)
class Tip:
    """Where the log ended at one moment."""

    position: int
    """The next one."""
    topics: dict[int, str]
    offsets: dict[str, int]
    """The next offset of each topic."""


@dataclass(frozen=True)
class Match:
    """An event, and the interests that it matches."""

    position: int
    interests: list[Interest]
    event: Event


class ReadSize:
    """How many positions the next statement scans: enough for a good number of events, and no more."""

    def __init__(self) -> None:
        self.positions = ROWS

    def adapt(self, matches: int) -> None:
        """Adapts to the number of events that the last statement returned."""
        if matches >= ROWS:
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

    def read(self, interests: Sequence[Interest], tip: Tip, position: int, until: int) -> tuple[list[Match], int]:
        """The events from a position on that match any of the interests, in order, and the position scanned up to."""
        found: dict[int, Match] = {}
        for some in _chunks(interests, FILTERS):
            statement, parameters = self._compose(some, tip)
            if not statement:
                continue
            rows = [
                (numbers, topic_id, partition_id, Entry(*columns))
                for numbers, topic_id, partition_id, *columns in self.fetch(
                    statement, {**parameters, "position": position, "until": until, "limit": ROWS}
                )
            ]
            if len(rows) == ROWS:
                until = rows[-1][-1].position + 1
            for numbers, topic_id, partition_id, entry in rows:
                matched = [some[number] for number in numbers]
                if entry.position in found:
                    found[entry.position].interests.extend(matched)
                else:
                    event = entry.as_event(tip.topics[topic_id], partition_id)
                    found[entry.position] = Match(entry.position, matched, event)
        return [found[position] for position in sorted(found) if position < until], until

    def _compose(self, interests: Sequence[Interest], tip: Tip) -> "Composed":
        """Cached, because the same interests are read again and again."""
        if self._topics != tip.topics or len(self._composed) > 1000:
            self._topics = tip.topics
            self._composed.clear()
        key = tuple(interests)
        if key not in self._composed:
            self._composed[key] = _compose(interests, tip)
        return self._composed[key]

    def fetch(self, statement: Any, parameters: dict[str, Any]) -> list[Any]:
        self.statements += 1
        return self.connection.execute(statement, parameters).fetchall()


def _chunks(interests: Sequence[Interest], size: int) -> Iterator[list[Interest]]:
    remaining = iter(interests)
    while some := list(itertools.islice(remaining, size)):
        yield some


Composed = tuple[str, dict[str, Any]]


def _compose(interests: Sequence[Interest], tip: Tip) -> Composed:
    """The statement that reads for these interests; empty if they include no topic. Only our own text becomes SQL."""
    included = [
        sorted(number for number, name in tip.topics.items() if interest.includes(name)) for interest in interests
    ]
    topics = sorted(set().union(*included))
    parameters: dict[str, Any] = {"topics": topics}
    conditions: list[str] = []
    for number, (interest, its_topics) in enumerate(zip(interests, included, strict=True)):
        if not its_topics:
            continue
        named = interest.filter.named(f"interest{number}")
        condition = named.sql
        parameters |= named.parameters
        if its_topics != topics:
            parameters[f"interest{number}_topics"] = its_topics
            condition = f"entry.topic_id = ANY (%(interest{number}_topics)s) AND ({condition})"
        conditions.append(f"CASE WHEN {condition} THEN {number} END")
    if not topics:
        return "", parameters
    return load("streams/scan", conditions=", ".join(conditions), columns=columns_of("message")), parameters
