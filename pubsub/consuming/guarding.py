"""Attempts that survive their worker: where one seems to have died of an event, the next is counted before it is made.

A transaction that dies takes its traces with it, but one: the row lock on the cursor names it. Whoever finds that the
last one to lock a cursor came to nothing is on his guard: he goes on one publisher's transaction at a time, notes each
in `consumer_claims` before he begins, and sets it aside when too many have died of it.

Only deaths may count. So a guard has a connection of its own, which shows that the worker lives, whatever becomes of
the one on which its handlers work: until it has taken back what it had counted, nobody else counts.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import Error, connections, transaction

from pubsub.errors import WorkerDied
from pubsub.sequencing.wakeup import dedicated_connection
from pubsub.sql import load

from .claims import find_claim, forget_claim, show_alive
from .handling import connect_anew
from .holding import lock_cursor
from .reading import Place, PlaceKey

logger = logging.getLogger("pubsub.guarding")

MOST_DEATHS = 3
"""Attempts that may end with the worker's death, at least; more where `retry` allows for more attempts."""

BELIEVED_S = 5
"""How long the others keep away from an attempt that was counted behind a transaction pooler, where it does not show
whether its worker lives. By then it has the lock on the cursor, without which nobody counts, or has come to nothing."""

SHOWN_S = 24 * 60 * 60
"""And where it does show: for as long as any handler takes. A death is seen at once."""


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """An attempt that has been counted."""

    attempt: int
    epoch: int
    next_offset: int
    """Where the cursor stands."""
    last_offset: int
    """The end of what the worker that died may have had in hand."""
    taken_over: bool
    """Whether another was counted before, or there is more of what a worker that died may have had in hand."""
    deadly: WorkerDied | None = None
    """Why the first transaction with something for the group is not to be tried again."""


class Guard:
    """Counts one worker's attempts in a place, until it is closed."""

    def __init__(self, place: Place, worker_id: str) -> None:
        self._place = place
        self._worker_id = worker_id
        with ExitStack() as closing:
            self._session = closing.enter_context(dedicated_connection(place.using))
            self._lock_key = show_alive(self._session)
            self._closing = closing.pop_all()

    def close(self) -> None:
        self._closing.close()

    def count(self, batch_size: int) -> Guarded | None:
        """Notes that the next publisher's transaction is going to be tried. None where nothing is left, or another
        worker is at it."""
        place = self._place
        guarded = None
        try:
            with self._session.transaction(), self._session.cursor() as cursor:
                held = lock_cursor(cursor, place)
                claim = find_claim(cursor, place, self._worker_id) if held else None
                if held is None or (claim and claim.is_alive):
                    return None
                cursor.execute(
                    load("coming_range"),
                    {
                        **place.parameters,
                        "position": held.next_position,
                        "below_position": place.below_position,
                        "limit": batch_size,
                    },
                )
                first, last = cursor.fetchone() or (None, None)
                if first is None or last is None:
                    forget_claim(cursor, place)
                    return None
                attempt = claim.attempts + 1 if claim and claim.first_offset >= held.next_offset else 1
                is_deadly = attempt > most_attempts(place)
                guarded = Guarded(
                    attempt=attempt - is_deadly,
                    epoch=held.epoch + 1,
                    next_offset=held.next_offset,
                    last_offset=claim.last_offset if claim and claim.last_offset >= first else last,
                    taken_over=claim is not None,
                    deadly=died(attempt - 1) if is_deadly else None,
                )
                cursor.execute(
                    load("take_claim"),
                    {
                        **self._parameters(guarded),
                        "first_offset": first,
                        "last_offset": guarded.last_offset,
                        "lock_key": self._lock_key,
                        "attempts": attempt,
                        "lease_s": BELIEVED_S if self._lock_key is None else SHOWN_S,
                    },
                )
        except psycopg.Error:
            if guarded:  # it may have been counted: the answer to the COMMIT is what got lost
                self.take_back(guarded)
            raise
        return guarded

    def take_back(self, guarded: Guarded) -> None:
        """Nobody has died of this attempt: it failed for another reason, or was not made."""
        statement, parameters = load("give_claim_back"), self._parameters(guarded)

        def take_back() -> None:
            with connections[self._place.using].cursor() as cursor:
                cursor.execute(statement, parameters)

        try:
            self._session.execute(statement, parameters)
        except psycopg.Error:
            settle(self._place, take_back)

    def _parameters(self, guarded: Guarded) -> dict[str, Any]:
        return {
            **self._place.parameters,
            "worker_id": self._worker_id,
            "epoch": guarded.epoch,
            "next_offset": guarded.next_offset,
            "taken_over": guarded.taken_over,
        }


def show_that_nobody_died(place: Place) -> None:
    """What has failed here is no death. A lock that is committed says so to whoever looks at the cursor next."""
    _take_clean_connection(place)
    try:
        with transaction.atomic(using=place.using), connections[place.using].cursor() as cursor:
            lock_cursor(cursor, place)
    except Error as error:
        logger.debug("%s: who looks there next will be on his guard: %s", place, error)


_unsettled: dict[tuple[str, PlaceKey], Callable[[], None]] = {}


def settle(place: Place, settling: Callable[[], None]) -> None:
    """Does what is left to do where an attempt was broken off, on a connection that no handler and no failure has
    touched. If the database is away, it is done before this process works on the place again."""
    _take_clean_connection(place)
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


def _take_clean_connection(place: Place) -> None:
    if not connections[place.using].in_atomic_block:
        connect_anew(place.using)


def most_attempts(place: Place) -> int:
    return max(MOST_DEATHS, 1 + place.declared.retry.retries)


def died(attempts: int) -> WorkerDied:
    return WorkerDied(
        f"Workers died {attempts} times while they handled this transaction, or were killed. It is not tried again "
        f"unless somebody replays it."
    )
