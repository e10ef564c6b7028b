"""Claims: what a worker has in hand, as the others see it, and how they see that it lives.

A place has one at most. It says who counted the last attempt, and under which epoch of the cursor, so that whoever
takes an attempt back takes back its own.
"""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from django.db import connections

from pubsub.sequencing.wakeup import can_listen
from pubsub.sql import load

from .reading import Place

ALIVE = 0x70756274
"""The family of advisory locks by which others see that a worker is still connected."""


class FoundClaim(NamedTuple):
    """A claim that is there already: of a worker that lives, or of one that has fallen silent."""

    is_alive: bool
    attempts: int
    first_offset: int
    last_offset: int


def show_alive(session: psycopg.Connection[Any]) -> int | None:
    """Takes a lock that goes with this connection. Returns its key; None where that cannot be had."""
    if not can_listen(session):
        return None
    key = random.randrange(2**31)  # noqa: S311
    session.execute("SELECT pg_advisory_lock(%s, %s)", [ALIVE, key])
    return key


def find_claim(cursor: Any, place: Place, worker_id: str) -> FoundClaim | None:
    cursor.execute(load("find_claim"), {**place.parameters, "worker_id": worker_id, "family": ALIVE})
    row = cursor.fetchone()
    return FoundClaim(*row) if row else None


def claims_in_hand(using: str, *, topic_id: int, group: str, partitions: Sequence[int] | None = None) -> dict[int, str]:
    """The partitions that workers which live have claimed, and who."""
    chosen: dict[str, Any] = {
        "topic_id": topic_id,
        "group_id": group,
        "partitions": None if partitions is None else list(partitions),
        "family": ALIVE,
    }
    with connections[using].cursor() as cursor:
        cursor.execute(load("claims_in_hand"), chosen)
        return dict(cursor.fetchall())


def forget_claim(cursor: Any, place: Place) -> None:
    cursor.execute(load("forget_claim"), place.parameters)
