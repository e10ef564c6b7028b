"""Searching a topic's log by hand, a page at a time. A search looks at so many messages at most, and counts nothing."""

import datetime as dt
import uuid
from dataclasses import dataclass
from typing import Any

from django.db import connections

from pubsub.db.sql import load
from pubsub.db.transactions import run_uncompiled

LOOKED_AT = 5000
"""How many messages one search with conditions looks at."""

PAYLOAD_CHARACTERS = 20_000
"""How much of a payload is read for a list."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """All of them have to hold; null matches anything."""

    partition: int | None = None
    type: str | None = None
    key: str | None = None
    """A message's key, or its host."""
    identifier: uuid.UUID | None = None
    """Of the event, or of its transaction."""
    until: dt.datetime | None = None

    @property
    def is_everything(self) -> bool:
        return self == Conditions()


@dataclass(frozen=True, kw_only=True)
class FoundEvent:
    offset: int
    position: int
    partition: int
    event_id: uuid.UUID
    type: str
    key: str | None
    host_id: str | None
    to_group: str | None
    transaction_id: uuid.UUID
    created_at: dt.datetime
    payload: str | None
    """As JSON; null if it was not asked for. Only its beginning, if `payload_length` is longer."""
    payload_length: int


@dataclass(frozen=True, kw_only=True)
class LogPage:
    """What was found, the newest first, and between which offsets the search has looked."""

    found: list[FoundEvent]
    low: int
    high: int
    oldest: int
    """The oldest offset that is kept; beyond the tip if the log is empty."""
    tip: int

    @property
    def looked_at(self) -> int:
        return max(0, self.high - self.low + 1)

    @property
    def older(self) -> int | None:
        """The offset before which the next older page begins; null if there is none."""
        return self.low if self.low > self.oldest else None

    @property
    def newer(self) -> int | None:
        """The offset after which the next newer page begins; null if there is none."""
        return self.high if self.high < self.tip else None


def oldest_and_tip(topic_id: int, using: str) -> tuple[int, int]:
    """The oldest offset that is kept, and the tip.

    >>> oldest_and_tip(1, "default")
    (1, 0)
    """
    with connections[using].cursor() as cursor:
        cursor.execute(load("monitoring/log_ends"), {"topic_id": topic_id})
        oldest, tip = cursor.fetchone()
    return (tip + 1 if oldest is None else oldest), tip


def offset_at(topic_id: int, moment: dt.datetime, using: str) -> int:
    """The first offset published at or after a time; the next free one if there is none.

    >>> offset_at(1, dt.datetime(2030, 1, 1, tzinfo=dt.UTC), "default")
    1
    """
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT pubsub_offset_at_v1(%s, %s)", [topic_id, moment])
        return int(cursor.fetchone()[0])


def search(
    topic_id: int,
    conditions: Conditions | None = None,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = 50,
    with_payload: bool = False,
    using: str,
) -> LogPage:
    """A page of the log: the newest messages, those before an offset, or those after one.

    >>> search(1, using="default").found
    []
    """
    conditions = conditions or Conditions()
    oldest, tip = oldest_and_tip(topic_id, using)
    length = limit if conditions.is_everything else max(LOOKED_AT, limit)
    if after is not None:
        low = max(oldest, after + 1)
        high = min(tip, low + length - 1)
    else:
        high = tip if before is None else min(tip, before - 1)
        low = max(oldest, high - length + 1)
    found: list[FoundEvent] = []
    if low <= high:
        _, rows = run_uncompiled(
            using,
            load("monitoring/search_log"),
            {
                "topic_id": topic_id,
                "low": low,
                "high": high,
                "partition": conditions.partition,
                "type": conditions.type,
                "key": conditions.key,
                "identifier": conditions.identifier,
                "until": conditions.until,
                "ascending": after is not None,
                "limit": limit,
                "with_payload": with_payload,
                "payload_characters": PAYLOAD_CHARACTERS,
            },
        )
        found = [_found(row) for row in rows]
    if len(found) == limit:
        # There may be more between these offsets: the next page begins behind the last event of this one.
        if after is not None:
            high = found[0].offset
        else:
            low = found[-1].offset
    return LogPage(found=found, low=low, high=high, oldest=oldest, tip=tip)


def _found(row: tuple[Any, ...]) -> FoundEvent:
    offset, position, partition, _, *rest = row
    names = ("event_id", "type", "key", "host_id", "to_group", "transaction_id", "created_at", "payload")
    values = dict(zip((*names, "payload_length"), rest, strict=True))
    return FoundEvent(offset=offset, position=position, partition=partition, **values)
