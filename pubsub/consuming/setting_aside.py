"""What becomes of events that a group could not handle: they are set aside, and tried again when it is time to.

An event is a dead letter when its attempts are used up. Until then, and until somebody has acted, those that are to
wait for it (`on_failure="park_key"`) are parked beside it, and go on in their order when it is done with.
"""

import logging
import traceback
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from django.db import connections, transaction

from pubsub.dead_letters.releasing import release_followers
from pubsub.delivery import Delivery
from pubsub.errors import HandlerEndedTransaction, NotHandled, Reject, RetryLater, WorkerDied
from pubsub.signals import event_failed, tell
from pubsub.sql import load
from pubsub.transactions import make_hooks_robust

from .failures import is_the_handlers
from .guarding import BELIEVED_S, settle, settle_what_is_left
from .handling import check_still_in_transaction, handle, in_our_transaction
from .holding import lock_cursor
from .reading import Entry, Place, PublishedTogether

logger = logging.getLogger("pubsub.setting_aside")


class Parked(NotHandled):
    """The event has to wait behind an earlier one of its key, which failed."""


class NotOurs(Exception):
    """Another worker has taken the place between two transactions of this one."""


def has_open(place: Place) -> bool:
    """Whether failed events of this place wait for another attempt, or for somebody to act."""
    with connections[place.using].cursor() as cursor:
        cursor.execute(load("has_open_letters"), place.parameters)
        return bool(cursor.fetchone()[0])


def must_wait(entry: Entry, blocked: set[str]) -> bool:
    return entry.is_mine and (entry.is_blocked or entry.ordering_key in blocked)


def unblocked(place: Place, together: Iterable[Entry], blocked: set[str]) -> Iterable[Entry]:
    """The entries of a transaction, until one of them has to wait: then all of them have to."""
    return _until_one_must_wait(together, blocked) if place.parks_keys else together


def _until_one_must_wait(together: Iterable[Entry], blocked: set[str]) -> Iterator[Entry]:
    for entry in together:
        if must_wait(entry, blocked):
            raise Parked(f'an earlier event of key "{entry.ordering_key}" has failed')
        yield entry


def bury(place: Place, together: PublishedTogether, error: BaseException, *, attempts: int, blocked: set[str]) -> int:
    """Sets the events of a failed transaction aside, together, in the transaction that passes them."""
    first, last = together.ends
    if isinstance(error, MemoryError):
        traceback.clear_frames(error.__traceback__)  # what has filled the memory may be in the handler's variables
    buried, delay, keys = bury_range(place, first.position, last.position, error, attempts=attempts)
    blocked.update(keys)
    if isinstance(error, Parked):
        logger.info("%s: %s; its transaction waits behind it", place, error, extra=place.facts)
    else:
        _report(place, first, attempts, delay, error, count=buried)
    return buried


def bury_range(
    place: Place, first_position: int, last_position: int, error: BaseException, *, attempts: int
) -> tuple[int, float | None, list[str]]:
    """The same, of any transactions. Returns how many events, the delay until they are retried, and their keys."""
    parked = isinstance(error, Parked)
    delay = None if parked else _delay_after(place, attempts, error)
    with connections[place.using].cursor() as cursor:
        cursor.execute(
            load("bury").replace("{chosen}", place.declared.chosen.sql),
            {
                **place.parameters,
                **place.declared.chosen.parameters,
                **_describe(place, None if parked else error),
                "first_position": first_position,
                "last_position": last_position,
                "attempts": 0 if parked else attempts,
                "state": "parked" if parked else _state(delay),
                "delay": delay,
            },
        )
        buried, keys = cursor.fetchone()
        if parked:
            # What they wait for may have been done with since it was read.
            cursor.execute(
                load("hold_blockers"), {"group_id": place.declared.group, "topic_id": place.topic_id, "keys": keys}
            )
            release_followers(cursor, place.declared.group, place.topic_id, keys)
    return buried, delay, keys


LETTERS_AT_ONCE = 500
"""Failed events that are read at once when they are tried again."""


class Letters:
    """The failed events of one transaction, in order. They are read while they are handled, however many they are."""

    def __init__(self, place: Place, rows: Sequence[tuple[int, int, str | None]]) -> None:
        self._place = place
        self.ids = [id_ for id_, _, _ in rows]
        self.attempts = rows[0][1] if rows else 0
        self.keys = sorted({key for _, _, key in rows if key is not None})

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Entry]:
        for first in range(0, len(self.ids), LETTERS_AT_ONCE):
            yield from self._read(self.ids[first : first + LETTERS_AT_ONCE])

    @property
    def ends(self) -> tuple[Entry, Entry]:
        both = self._read([self.ids[0], self.ids[-1]])
        return both[0], both[-1]

    def _read(self, ids: list[int]) -> list[Entry]:
        with connections[self._place.using].cursor() as cursor:
            cursor.execute(load("read_letters"), {"ids": ids})
            return [Entry(0, *columns) for columns in cursor.fetchall()]


def retry_due(place: Place, *, at_once: int, suspect: bool = False) -> int:
    """Tries the transaction again that has waited longest for it. Returns how many events were tried.

    Where a worker seems to have died of it (`suspect`), what another death would mean is written down before.
    """
    using = place.using
    settle_what_is_left(place)
    ids = None
    attempts = 0
    letters = Letters(place, [])
    try:
        if suspect:
            with transaction.atomic(using=using), connections[using].cursor() as cursor:
                if lock_cursor(cursor, place) is None:
                    return 0
                expected = expect_the_worst(cursor, place)
                ids = expected.ids
                attempts = expected.attempts + 1
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            letters = lock_due(cursor, place, ids) if lock_cursor(cursor, place) else letters
            if not letters:
                if ids:
                    raise NotOurs
                return 0
            attempts = letters.attempts + (not suspect)
            try:
                with in_our_transaction(using), transaction.atomic(using=using):
                    handle(place, letters, at_once=at_once, attempt=attempts)
                    check_still_in_transaction(using)
                    connections[using].check_constraints()
                    cursor.execute(load("still_there"), place.parameters)
            except BaseException as error:
                check_still_in_transaction(using, because=error)
                if not is_the_handlers(error):
                    raise
                bury_again(cursor, place, letters, error, attempts)
            else:
                resolve(cursor, place, letters, attempts)
            make_hooks_robust(connections[using])
    except HandlerEndedTransaction as error:
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            if again := lock_due(cursor, place, letters.ids):
                bury_again(cursor, place, again, error, attempts)
    except BaseException as error:
        if ids:
            settle(place, lambda: take_worst_back(place, ids, attempts))
        if not isinstance(error, NotOurs):
            raise
    return len(letters)


def expect_the_worst(cursor: Any, place: Place) -> Letters:
    """Counts an attempt before it is made, as one that ends with the worker's death. Returns what it is about. Nobody
    else counts another before this one had time to begin."""
    letters = lock_due(cursor, place)
    if letters:
        worst = WorkerDied("The worker died, or was killed, while it handled this transaction.")
        _note_failure(cursor, place, letters, worst, letters.attempts + 1, soonest_s=BELIEVED_S)
    return letters


def take_worst_back(place: Place, ids: Sequence[int], attempts: int) -> None:
    """The worker has not died, nor has the handler failed: the attempt does not count."""
    with connections[place.using].cursor() as cursor:
        cursor.execute(load("take_worst_back"), {"ids": list(ids), "attempts": attempts})


def lock_due(cursor: Any, place: Place, ids: Sequence[int] | None = None) -> Letters:
    """The events of the transaction that is due first, or those given, locked. The caller has the place's lock."""
    if ids is None:
        cursor.execute(load("lock_due_transaction"), place.parameters)
    else:
        cursor.execute(load("lock_letters"), {"ids": list(ids)})
    return Letters(place, cursor.fetchall())


def bury_again(cursor: Any, place: Place, letters: Letters, error: BaseException, attempts: int) -> None:
    """Notes that another attempt has failed, and when the next one is due, if any."""
    delay = _note_failure(cursor, place, letters, error, attempts)
    _report(place, letters.ends[0], attempts, delay, error, count=len(letters))


def _note_failure(
    cursor: Any, place: Place, letters: Letters, error: BaseException, attempts: int, *, soonest_s: float = 0
) -> float | None:
    delay = _delay_after(place, attempts, error)
    if delay is not None:
        delay = max(delay, soonest_s)
    cursor.execute(
        load("bury_again"),
        {
            **_describe(place, error),
            "ids": letters.ids,
            "attempts": attempts,
            "state": _state(delay),
            "delay": delay,
        },
    )
    return delay


def resolve(cursor: Any, place: Place, letters: Letters, attempts: int) -> None:
    """Notes that events were handled after all. Those that waited for them are next."""
    cursor.execute(load("resolve"), {"ids": letters.ids, "attempts": attempts})
    if place.parks_keys:
        release_followers(cursor, place.declared.group, place.topic_id, letters.keys)


def _state(delay: float | None) -> str:
    return "dead" if delay is None else "retrying"


def _delay_after(place: Place, attempts: int, error: BaseException) -> float | None:
    """Seconds until the next attempt; none if there is to be no further one."""
    if isinstance(error, RetryLater) and place.declared.delivery is not Delivery.AT_MOST_ONCE:
        return error.delay
    if isinstance(error, Reject):
        return None
    return place.declared.retry.delay_after(attempts)


def _describe(place: Place, error: BaseException | None) -> dict[str, Any]:
    """The exception in a form that any text column takes."""
    texts = {
        "handler": place.declared.handler_name,
        "exception_class": f"{type(error).__module__}.{type(error).__qualname__}" if error else "",
        "exception_message": _message(error) if error else "",
        "traceback": "".join(traceback.format_exception(error)) if error else "",
    }
    return {name: text.replace("\x00", "\\x00").encode("utf-8", "replace").decode() for name, text in texts.items()}


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # an exception whose own __str__ fails must not block the partition
        return f"(its message could not be had: {type(second).__name__})"


def _report(place: Place, first: Entry, attempt: int, delay: float | None, error: BaseException, *, count: int) -> None:
    """Tells the log, at once, and whoever observes, after the commit."""
    facts = {
        **place.facts,
        "offset": first.offset,
        "transaction_id": str(first.transaction_id),
        "attempt": attempt,
    }
    what = "moved to the dead letters" if delay is None else f"to be tried again in {delay:g} s"
    logger.error(
        "%s: %s failed at offset %d, attempt %d (%s); its transaction is %s",
        place,
        place.declared.handler_name,
        first.offset,
        attempt,
        type(error).__name__,
        what,
        extra={**facts, "exception_class": type(error).__qualname__},
    )
    if event_failed.receivers:
        told = partial(
            tell,
            event_failed,
            **facts,
            using=place.using,
            count=count,
            handler=place.declared.handler_name,
            exception=error,
            retry_in_s=delay,
        )
        transaction.on_commit(told, using=place.using, robust=True)
