"""Delayed messages: they get their offsets when they are due, not before."""

from typing import Any

from django.db import connections

from pubsub.db.sql import load
from pubsub.events import NAMES

_MOVE = load("sequencing/move_due_messages", columns=NAMES)


def move_due_messages(using: str, limit: int = 1000) -> int:
    """Move delayed messages that are due to the outbox. Returns how many."""
    with connections[using].cursor() as cursor:
        return move_due_on(cursor, limit)


def move_due_on(cursor: Any, limit: int = 1000) -> int:
    """The same on a cursor, Django's or psycopg's."""
    cursor.execute(_MOVE, {"limit": limit})
    return int(cursor.rowcount)
