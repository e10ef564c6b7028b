"""Walking the log of several topics by position, for many filters at once: each is evaluated once for each event."""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from pubsub.errors import PubSubError
from pubsub.events import Event
from pubsub.sql import load
from pubsub.subscriptions.filters import Filter
from pubsub.topics.patterns import matches

ROWS = 500
"""Events that one statement brings."""

LONGEST_SPAN = 10_000
"""Positions that one statement looks through at most, so that nobody waits long for another's past."""

FILTERS = 500
"""Filters that one statement evaluates."""


@dataclass(frozen=True)
class Wish:
    """What somebody wants to read: topics, by name or pattern, and which of their events."""

    topics: tuple[str, ...]
    chosen: Filter

    def wants(self, topic: str) -> bool:
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
class Found:
    """An event, and the wishes that it fulfils."""

    position: int
    wishes: list[Wish]
    event: Event


class Span:
    """How far one statement looks: as far as brings it a good number of events, and no further."""

    def __init__(self) -> None:
        self.positions = ROWS

    def learn(self, found: int) -> None:
        if found >= ROWS:
            self.positions = max(ROWS, self.positions // 2)
        elif found < ROWS // 4:
            self.positions = min(LONGEST_SPAN, self.positions * 2)


class Walk:
    """Reads on a connection of psycopg's, in autocommit mode."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.statements = 0
        self._topics: dict[int, str] = {}
        self._composed: dict[tuple[Wish, ...], Composed] = {}

    def tip(self) -> Tip:
        rows = self.fetch(load("follow_tip"), {})
        if not rows:
            raise PubSubError("The outbox's tables have not been prepared; run `manage.py migrate`.")
        return Tip(
            position=rows[0][0],
            topics={number: name for _, number, name, _ in rows},
            offsets={name: next_offset for _, _, name, next_offset in rows},
        )

    def read(self, wishes: Sequence[Wish], tip: Tip, position: int, until: int) -> tuple[list[Found], int]:
        """What fulfils any of the wishes from a position on, in order, and up to where it has looked."""
        found: dict[int, Found] = {}
        for some in _chunks(wishes, FILTERS):
            statement, parameters = self._compose(some, tip)
            if not statement:
                continue
            rows = self.fetch(statement, {**parameters, "position": position, "until": until, "limit": ROWS})
            if len(rows) == ROWS:
                until = rows[-1][0] + 1
            for place, numbers, topic_id, *columns in rows:
                wanting = [some[number] for number in numbers]
                if place in found:
                    found[place].wishes.extend(wanting)
                else:
                    found[place] = Found(place, wanting, _event(tip.topics[topic_id], columns))
        return [found[place] for place in sorted(found) if place < until], until

    def _compose(self, wishes: Sequence[Wish], tip: Tip) -> "Composed":
        """The same wishes are read for again and again."""
        if self._topics != tip.topics or len(self._composed) > 1000:
            self._topics = tip.topics
            self._composed.clear()
        key = tuple(wishes)
        if key not in self._composed:
            self._composed[key] = _compose(wishes, tip)
        return self._composed[key]

    def fetch(self, statement: Any, parameters: dict[str, Any]) -> list[Any]:
        self.statements += 1
        return self.connection.execute(statement, parameters).fetchall()


def _chunks(wishes: Sequence[Wish], size: int) -> Iterator[list[Wish]]:
    remaining = iter(wishes)
    while some := list(itertools.islice(remaining, size)):
        yield some


Composed = tuple[str, dict[str, Any]]


def _compose(wishes: Sequence[Wish], tip: Tip) -> Composed:
    """The statement that reads for these wishes, none if no topic is wanted. Its text is made of our own pieces."""
    topics = [sorted(number for number, name in tip.topics.items() if wish.wants(name)) for wish in wishes]
    wanted = sorted(set().union(*topics))
    parameters: dict[str, Any] = {"topics": wanted}
    conditions: list[str] = []
    for number, (wish, of_wish) in enumerate(zip(wishes, topics, strict=True)):
        if not of_wish:
            continue
        chosen = wish.chosen.named(f"wish{number}")
        condition = chosen.sql
        parameters |= chosen.parameters
        if of_wish != wanted:
            parameters[f"wish{number}_topics"] = of_wish
            condition = f"entry.topic_id = ANY (%(wish{number}_topics)s) AND ({condition})"
        conditions.append(f"CASE WHEN {condition} THEN {number} END")
    return (load("follow").format(conditions=", ".join(conditions)) if wanted else ""), parameters


def _event(topic: str, columns: Sequence[Any]) -> Event:
    partition, offset, event_id, type_, key, payload, metadata, host_id, user_id, transaction_id, created_at = columns
    return Event(
        topic=topic,
        offset=offset,
        partition=partition,
        id=event_id,
        type=type_,
        key=key,
        payload=json.loads(payload),
        metadata=json.loads(metadata),
        host_id=host_id,
        user_id=user_id,
        transaction_id=transaction_id,
        created_at=created_at,
        attempt=1,
        group="",
    )
