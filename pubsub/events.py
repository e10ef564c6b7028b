"""What a handler receives."""

import datetime as dt
import uuid
from dataclasses import dataclass
from typing import Any

LONGEST_TEXT = 2000
"""Bytes of a type, a key, an id or a group's name. Indexes hold them, those of the dead letters too: an index's row has
to fit on a page with others."""


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
    """The same for everybody and for ever: use it as the idempotency key of effects outside the database."""
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


def make_event(fields: dict[str, Any]) -> Event:
    """The same as ``Event(**fields)`` in a fifth of the time: a frozen dataclass assigns one field after another."""
    event = object.__new__(Event)
    object.__setattr__(event, "__dict__", fields)
    return event
