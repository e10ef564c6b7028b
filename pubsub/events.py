"""An event: as it is stored, as a handler receives it, and as programs outside read it."""

import datetime as dt
import json
import operator
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isinf
from typing import Any, NamedTuple

from pubsub.errors import UnreadableEvent

LONGEST_TEXT = 2000
"""Bytes of a type, a key or an id. Indexes hold them, those of the dead letters too: an index's row has
to fit on a page with others."""

EARLIEST, LATEST = dt.datetime(1, 1, 2, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
"""The first time that an event may have, and the first too late for one: Python has those beyond in some zones only."""

COLUMNS = ("event_id", "type", "key", "payload", "metadata", "host_id", "user_id", "transaction_id", "created_at")
"""The columns of a message that its readers get, in the order of the last fields of :class:`Entry`."""

NAMES = ", ".join(COLUMNS)
"""The same for a statement that copies messages as they are."""


def _finite(text: str) -> float:
    """What a float cannot hold would be infinite, which no JSON can say."""
    number = float(text)
    if isinf(number):
        raise ValueError(f"a number of {len(text):,} characters exceeds what a float can hold")
    return number


_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""What PostgreSQL has written has nothing before it and nothing behind."""

_scan_long = json.JSONDecoder(parse_float=_finite).scan_once  # type: ignore[attr-defined]
SHORT = 309
"""Characters below which a text cannot hold a number beyond a float's range; looking at each number takes time."""


def native(text: str) -> Any:
    """The value in a text that PostgreSQL has made of a jsonb, as a handler gets it; or UnreadableEvent.

    >>> native('{"paid": 1.5}')
    {'paid': 1.5}
    """
    try:
        return (_scan if len(text) < SHORT else _scan_long)(text, 0)[0]
    except (ValueError, RecursionError) as error:
        raise UnreadableEvent(f"Python cannot hold the JSON of this event: {error}.") from error


@dataclass(frozen=True, kw_only=True)
class Event:
    """A message of the log, as one group sees it.

    >>> Event.__dataclass_params__.frozen
    True
    """

    topic: str
    offset: int
    """Gapless within the topic."""
    partition: int
    id: uuid.UUID
    """The same for every group and for ever: use it as the idempotency key of effects outside the database."""
    type: str
    key: str | None
    payload: Any
    metadata: dict[str, Any]
    host_id: str | None
    user_id: str | None
    transaction_id: uuid.UUID
    created_at: dt.datetime
    attempt: int
    """1 the first time, then one more with each retry or replay."""
    group: str

    def as_json(self) -> dict[str, Any]:
        """What programs outside read: everything but which group's it is, and which attempt."""
        return {
            "topic": self.topic,
            "offset": self.offset,
            "partition": self.partition,
            "id": str(self.id),
            "type": self.type,
            "key": self.key,
            "payload": self.payload,
            "metadata": self.metadata,
            "host_id": self.host_id,
            "user_id": self.user_id,
            "transaction_id": str(self.transaction_id),
            "created_at": self.created_at.isoformat(),
        }


class Entry(NamedTuple):
    """An event as it is stored. It is decoded one by one: if that fails, it is this event's own failure."""

    position: int
    offset: int
    is_mine: bool
    """Whether the group is meant, or only passes it."""
    is_blocked: bool
    """Whether an earlier event of its key has failed and waits."""
    id: uuid.UUID
    type: str
    key: str | None
    payload: str
    metadata: str
    host_id: str | None
    user_id: str | None
    transaction_id: uuid.UUID
    created_at: float
    """In seconds since 1970, exact to the microsecond: what turns a text into a time is slow, and fails on odd ones."""

    @property
    def ordering_key(self) -> str | None:
        return self.key if self.key is not None else self.host_id

    @property
    def name(self) -> str:
        """Which event it is, for people."""
        return f"offset {self.offset} (type {self.type!r}, key {self.key!r}, event {self.id})"

    def as_event(self, topic: str, partition: int, group: str = "", attempt: int = 1) -> Event:
        """Raises UnreadableEvent if Python cannot hold it."""
        return next(_made_of((self,), topic, partition, group, attempt))


_is_mine = operator.itemgetter(Entry._fields.index("is_mine"))


def events_of(
    entries: Iterable[Entry], topic: str, partition: int, group: str = "", attempt: int = 1
) -> Iterator[Event]:
    """The events among these entries that the group is meant to handle."""
    return _made_of(filter(_is_mine, entries), topic, partition, group, attempt)


def _made_of(entries: Iterable[Entry], topic: str, partition: int, group: str, attempt: int) -> Iterator[Event]:
    """The only way in which events are made of what is stored.

    The same as ``Event(…)`` in a fifth of the time: a frozen dataclass assigns one field after another.
    """
    make, assign, utc, at = object.__new__, object.__setattr__, dt.UTC, dt.datetime.fromtimestamp
    for _, offset, _, _, id_, type_, key, payload, metadata, host_id, user_id, transaction_id, created_at in entries:
        event = make(Event)
        fields = {
            "topic": topic,
            "offset": offset,
            "partition": partition,
            "id": id_,
            "type": type_,
            "key": key,
            "payload": native(payload),
            "metadata": native(metadata) if metadata != "{}" else {},
            "host_id": host_id,
            "user_id": user_id,
            "transaction_id": transaction_id,
            "created_at": at(created_at, utc),
            "attempt": attempt,
            "group": group,
        }
        assign(event, "__dict__", fields)
        yield event


def columns_of(source: str, **instead: str) -> str:
    """COLUMNS for a statement, as an Entry wants them, from a table or alias; some of them from another expression.

    >>> columns_of("message").split(", ")[3]
    'message.payload::text'
    """
    expressions = {name: f"{source}.{name}" for name in COLUMNS} | instead
    for name in ("payload", "metadata"):
        expressions[name] += "::text"
    expressions["created_at"] = f"date_part('epoch', {expressions['created_at']})"
    return ", ".join(expressions.values())
