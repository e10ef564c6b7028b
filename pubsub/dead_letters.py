"""What becomes of events that a group could not handle: set aside, tried again, replayed or discarded."""

import logging
import traceback
from typing import Any

from django.db import connections, transaction

from .failures import is_the_handlers
from .reading import Place, PublishedTogether, event_from
from .sql import load
from .transactions import make_hooks_robust

logger = logging.getLogger("pubsub.dead_letters")


def bury(place: Place, together: PublishedTogether, error: BaseException) -> int:
    """Sets the events of a failed transaction aside, together, in the transaction that passes them."""
    first, last = together.ends
    delay = _delay_after(place, attempts=1)
    with connections[place.using].cursor() as cursor:
        cursor.execute(
            load("bury"),
            {
                **place.parameters,
                **_describe(place, error),
                "first_position": first.position,
                "last_position": last.position,
                "delay": delay,
            },
        )
        buried = int(cursor.rowcount)
    _report(place, first.offset, first.transaction_id, 1, delay, error)
    return buried


def retry_due(place: Place) -> int:
    """Tries the transaction again that has waited longest for it. Returns how many events were tried."""
    using = place.using
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        # The cursor's lock keeps a partition with one worker at a time; where another has it, that one will do this.
        cursor.execute(load("lock_cursor"), place.parameters)
        if cursor.fetchone() is None:
            return 0
        cursor.execute(load("lock_due_transaction"), place.parameters)
        rows = cursor.fetchall()
        if not rows:
            return 0
        ids = [row[0] for row in rows]
        try:
            with transaction.atomic(using=using):
                for row in rows:
                    place.declared.handler(event_from(place, row[2:], attempt=row[1] + 1))
                connections[using].check_constraints()
        except BaseException as error:
            if not is_the_handlers(error):
                raise
            attempts = rows[0][1] + 1
            delay = _delay_after(place, attempts)
            cursor.execute(load("bury_again"), {**_describe(place, error), "ids": ids, "delay": delay})
            _report(place, rows[0][2], rows[0][10], attempts, delay, error)
        else:
            cursor.execute(load("resolve"), {"ids": ids})
        make_hooks_robust(connections[using])
    return len(rows)


def replay(ids: list[int], using: str) -> int:
    """Gives dead letters another attempt, now. Returns how many events that are.

    The unit is the publisher's transaction, as far as it went to one partition: its events failed together and are
    tried together. Only those that are dead change, in one statement, so that two people who press at once replay once.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(load("replay"), {"ids": list(ids)})
        return int(cursor.rowcount)


def discard(ids: list[int], using: str) -> int:
    """Gives dead letters up, with the rest of their transactions. Returns how many events that are."""
    with connections[using].cursor() as cursor:
        cursor.execute(load("discard"), {"ids": list(ids)})
        return int(cursor.rowcount)


def _delay_after(place: Place, attempts: int) -> int | None:
    """Seconds until the next attempt; none if there is to be no further one."""
    delays = place.declared.retry
    return delays[attempts - 1] if attempts <= len(delays) else None


def _describe(place: Place, error: BaseException) -> dict[str, Any]:
    """The exception in a form that any text column takes."""
    texts = {
        "handler": place.declared.handler_name,
        "exception_class": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception_message": _message(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    return {name: text.replace("\x00", "\\x00").encode("utf-8", "replace").decode() for name, text in texts.items()}


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # an exception whose own __str__ fails must not block the partition
        return f"(its message could not be had: {type(second).__name__})"


def _report(
    place: Place, offset: int, transaction_id: Any, attempt: int, delay: int | None, error: BaseException
) -> None:
    what = "moved to the dead letters" if delay is None else f"to be tried again in {delay} s"
    logger.error(
        "%s: %s failed at offset %d, attempt %d (%s); its transaction is %s",
        place,
        place.declared.handler_name,
        offset,
        attempt,
        type(error).__name__,
        what,
        extra={
            "group": place.declared.group,
            "topic": place.declared.topic,
            "partition": place.partition_id,
            "offset": offset,
            "transaction_id": str(transaction_id),
            "attempt": attempt,
            "exception_class": type(error).__qualname__,
        },
    )
