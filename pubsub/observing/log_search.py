"""Looking through a topic's log by hand: never more than a bounded stretch of it at a time, and nothing is counted."""

import datetime as dt
import uuid
from dataclasses import dataclass
from typing import Any

from django.db import connections

from pubsub.sql import load
from pubsub.transactions import run_uncompiled

LOOKED_AT = 5000
"""Messages that one search with conditions looks at."""

PAYLOAD_CHARACTERS = 20_000
"""Of a payload that are read for a list."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Conditions; all of them have to hold. Null: any."""

    partition: int | None = None
    type: str | None = None
    key: str | None = None
    """A message's key, or its host."""
    identifier: uuid.UUID | None = None
    """Of the event, or of its transaction."""
    until: dt.datetime | None = None

    @property
    def is_everything(self) -> bool:
        return self == Wanted()


@dataclass(frozen=True, kw_only=True)
class Found:
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
    """As JSON; null where it was not asked for. The beginning of it, where `payload_length` is longer."""
    payload_length: int


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What was found, the newest first, and which part of the log has been looked at for it."""

    found: list[Found]
    low: int
    high: int
    oldest: int
    """The oldest offset that is still there; beyond the tip, where the log is empty."""
    tip: int

    @property
    def looked_at(self) -> int:
        return max(0, self.high - self.low + 1)

    @property
    def older(self) -> int | None:
        """Where an older stretch begins: before this offset. Null: there is none."""
        return self.low if self.low > self.oldest else None

    @property
    def newer(self) -> int | None:
        """Where a newer stretch begins: after this offset. Null: there is none."""
        return self.high if self.high < self.tip else None


def ends(topic_id: int, using: str) -> tuple[int, int]:
    """The oldest offset that is still there, and the tip.

    >>> ends(1, "default")
    (1, 0)
    """
    with connections[using].cursor() as cursor:
        cursor.execute(load("log_ends"), {"topic_id": topic_id})
        oldest, tip = cursor.fetchone()
    return (tip + 1 if oldest is None else oldest), tip


def offset_at(topic_id: int, moment: dt.datetime, using: str) -> int:
    """The first offset published at or after a time; the next free one, if there is none.

    >>> offset_at(1, dt.datetime(2030, 1, 1, tzinfo=dt.UTC), "default")
    1
    """
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT pubsub_offset_at_v1(%s, %s)", [topic_id, moment])
        return int(cursor.fetchone()[0])


def search(
    topic_id: int,
    wanted: Wanted | None = None,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = 50,
    with_payload: bool = False,
    using: str,
) -> Stretch:
    """A page of the log: the newest messages, those before an offset, or those after one.

    >>> search(1, using="default").found
    []
    """
    wanted = wanted or Wanted()
    oldest, tip = ends(topic_id, using)
    span = limit if wanted.is_everything else max(LOOKED_AT, limit)
    if after is not None:
        low = max(oldest, after + 1)
        high = min(tip, low + span - 1)
    else:
        high = tip if before is None else min(tip, before - 1)
        low = max(oldest, high - span + 1)
    found: list[Found] = []
    if low <= high:
        _, rows = run_uncompiled(
            using,
            load("search_log"),
            {
                "topic_id": topic_id,
                "low": low,
                "high": high,
                "partition": wanted.partition,
                "type": wanted.type,
                "key": wanted.key,
                "identifier": wanted.identifier,
                "until": wanted.until,
                "ascending": after is not None,
                "limit": limit,
                "with_payload": with_payload,
                "payload_characters": PAYLOAD_CHARACTERS,
            },
        )
        found = [_found(row) for row in rows]
    if len(found) == limit:
        # There may be more of them in this stretch: the next one begins behind the last that is shown.
        if after is not None:
            high = found[0].offset
        else:
            low = found[-1].offset
    return Stretch(found=found, low=low, high=high, oldest=oldest, tip=tip)


def _found(row: tuple[Any, ...]) -> Found:
    offset, position, partition, _, *rest = row
    names = ("event_id", "type", "key", "host_id", "to_group", "transaction_id", "created_at", "payload")
    values = dict(zip((*names, "payload_length"), rest, strict=True))
    return Found(offset=offset, position=position, partition=partition, **values)
