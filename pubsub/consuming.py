"""Consuming: claim a partition, handle its next events, move the cursor – in one transaction.

A worker holds the row lock on a partition's cursor for the length of a batch. The handlers' effects and the cursor's
move commit together, so they happen exactly once; a worker that dies leaves neither, and its lock goes with its
connection.
"""

import logging
from dataclasses import dataclass

from django.db import connections, transaction

from . import dead_letters
from .failures import is_the_handlers
from .reading import Place, PublishedTogether, Reader, by_transaction, event_from
from .sql import load
from .transactions import make_hooks_robust

logger = logging.getLogger("pubsub.consuming")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What became of a batch."""

    passed: int = 0
    """Events that the cursor moved over, those for other groups included."""
    failed: int = 0
    """Those of them that are now in the dead-letter queue."""


def consume(place: Place, batch_size: int) -> Batch:
    """Handles the next batch of a partition; nothing where another worker has it.

    A batch ends with a publisher's transaction, never inside one. If anything in it fails, it is run again transaction
    by transaction, so that only those that fail are set aside.
    """
    try:
        return _consume(place, batch_size, one_by_one=False)
    except BaseException as error:
        if not is_the_handlers(error):
            raise
        logger.debug("a batch of %s failed; trying its transactions one by one", place, exc_info=True)
    return _consume(place, batch_size, one_by_one=True)


def _consume(place: Place, batch_size: int, *, one_by_one: bool) -> Batch:
    passed = failed = 0
    last = None
    with transaction.atomic(using=place.using), connections[place.using].cursor() as cursor:
        cursor.execute(load("lock_cursor"), place.parameters)
        row = cursor.fetchone()
        if row is None:
            return Batch()
        for together in by_transaction(Reader(cursor, place, row[1], batch_size + 1)):
            if passed >= batch_size:
                break
            if one_by_one:
                failed += _handle_or_bury(place, together)
            else:
                _handle(place, together)
            passed += together.count
            last = together.last
        if last is None:
            return Batch()
        cursor.execute(
            load("move_cursor"),
            {
                **place.parameters,
                "next_offset": last.offset + 1,
                "next_position": last.position + 1,
                "count": passed,
            },
        )
        make_hooks_robust(connections[place.using])
    logger.debug(
        "%s: passed %d events, now behind offset %d",
        place,
        passed,
        last.offset,
        extra={"group": place.declared.group, "topic": place.declared.topic, "passed": passed, "failed": failed},
    )
    return Batch(passed=passed, failed=failed)


def _handle(place: Place, together: PublishedTogether) -> None:
    for entry in together:
        if entry.to_group is None or entry.to_group == place.declared.group:
            place.declared.handler(event_from(place, entry.columns))


def _handle_or_bury(place: Place, together: PublishedTogether) -> int:
    """Handles a publisher's transaction in a savepoint; if it fails, sets all of it aside. Returns how many failed."""
    try:
        with transaction.atomic(using=place.using):
            _handle(place, together)
            # A deferred constraint must fail here, where it can be told whose fault it is, and not at the commit.
            connections[place.using].check_constraints()
    except BaseException as error:
        if not is_the_handlers(error):
            raise
        together.skip_rest()
        return dead_letters.bury(place, together, error)
    return 0
