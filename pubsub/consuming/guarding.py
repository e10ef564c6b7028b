"""Attempts that survive their worker: where one seems to have died of an event, the next is counted before it is made.

A transaction that dies takes its traces with it, but one: the row lock on the cursor names it. Whoever finds that the
last one to lock a cursor came to nothing is on his guard: he goes on one publisher's transaction at a time, notes each
in `consumer_claims` before he begins, and sets it aside when too many have died of it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import Error, connections, transaction

from pubsub.errors import WorkerDied
from pubsub.sql import load

from .handling import connect_anew
from .holding import lock_cursor
from .reading import Place, PlaceKey

logger = logging.getLogger("pubsub.guarding")

MOST_DEATHS = 3
"""Attempts that may end with the worker's death, at least; more where `retry` allows for more attempts."""


@dataclass(frozen=True, kw_only=True)
class Guarded:
    attempt: int
    next_offset: int
    """Where the cursor stands."""
    deadly: WorkerDied | None = None
    """Why the first transaction with something for the group is not to be tried again."""


def count_attempt(place: Place, batch_size: int, worker_id: str) -> Guarded | None:
    """Notes, in a transaction of its own, that the next publisher's transaction is going to be tried."""
    with transaction.atomic(using=place.using), connections[place.using].cursor() as cursor:
        held = lock_cursor(cursor, place)
        if held is None:
            return None
        cursor.execute(
            load("count_attempt"),
            {
                **place.parameters,
                "position": held.next_position,
                "below_position": place.below_position,
                "limit": batch_size,
                "worker_id": worker_id,
            },
        )
        row = cursor.fetchone()
        if row is None:
            forget(cursor, place)
            return None
        (attempt,) = row
    if attempt > most_attempts(place):
        return Guarded(attempt=attempt - 1, next_offset=held.next_offset, deadly=died(attempt - 1))
    return Guarded(attempt=attempt, next_offset=held.next_offset)


def uncount_attempt(place: Place, guarded: Guarded) -> None:
    """Nobody has died of this attempt: it failed for another reason, or was not made."""

    def uncount() -> None:
        with connections[place.using].cursor() as cursor:
            cursor.execute(load("uncount_attempt"), {**place.parameters, "next_offset": guarded.next_offset})

    settle(place, uncount)


_unsettled: dict[tuple[str, PlaceKey], Callable[[], None]] = {}


def settle(place: Place, settling: Callable[[], None]) -> None:
    """Does what is left to do where an attempt was broken off, on a connection that no handler and no failure has
    touched. If the database is away, it is done before this process works on the place again."""
    if not connections[place.using].in_atomic_block:
        connect_anew(place.using)
    try:
        settling()
    except Error as error:
        logger.warning("%s: %s; what is left is done when the database is back", place, error, extra=place.facts)
        _unsettled[place.using, place.key] = settling


def settle_what_is_left(place: Place) -> None:
    if settling := _unsettled.pop((place.using, place.key), None):
        try:
            settling()
        except Error:
            _unsettled[place.using, place.key] = settling
            raise


def most_attempts(place: Place) -> int:
    return max(MOST_DEATHS, 1 + place.declared.retry.retries)


def died(attempts: int) -> WorkerDied:
    return WorkerDied(
        f"Workers died {attempts} times while they handled this transaction, or were killed. It is not tried again "
        f"unless somebody replays it."
    )


def forget(cursor: Any, place: Place) -> None:
    cursor.execute(load("forget_claim"), place.parameters)
