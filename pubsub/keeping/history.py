"""What is over and done with: it is kept for a while, for people to look at, and then removed, some rows at a time."""

import logging
from collections.abc import Callable

from django.db import connections

from pubsub.conf import conf
from pubsub.sql import load

logger = logging.getLogger("pubsub.history")

AT_ONCE = 5000
"""Rows removed in one transaction, so that none is long."""

BATCHES_KEPT = 100
"""Batches of each stream that are never forgotten."""

SINK_BATCHES_KEPT_S = 30 * 24 * 3600


def remove_finished_letters(using: str) -> int:
    """Removes dead letters that were resolved or discarded long ago, and how their attempts went.

    >>> remove_finished_letters("default")
    0
    """
    return _remove("remove_finished_letters", using, conf().dead_letter_retention_s)


def remove_old_events(using: str) -> int:
    """Removes rows of the journal that are too old.

    >>> remove_old_events("default")
    0
    """
    return _remove("remove_old_events", using, conf().journal_retention_s)


def remove_old_sink_batches(using: str) -> int:
    """Forgets batches that streams have published long ago, but never the latest ones.

    >>> remove_old_sink_batches("default")
    0
    """
    return _remove("remove_old_sink_batches", using, SINK_BATCHES_KEPT_S)


def forget_expired_keys(using: str) -> int:
    """Removes dedup keys that are free again.

    >>> forget_expired_keys("default")
    0
    """
    return _remove("forget_expired_keys", using, 0)


JOBS: tuple[Callable[[str], int], ...] = (
    remove_finished_letters,
    remove_old_events,
    remove_old_sink_batches,
    forget_expired_keys,
)


def _remove(statement: str, using: str, older_s: float) -> int:
    """Returns how many rows were removed, in as many transactions as it takes."""
    removed, last = 0, AT_ONCE
    with connections[using].cursor() as cursor:
        while last == AT_ONCE:
            cursor.execute(load(statement), {"limit": AT_ONCE, "older_s": older_s, "keep": BATCHES_KEPT})
            last = int(cursor.rowcount)
            removed += last
    if removed:
        logger.debug("%s: %d rows", statement, removed)
    return removed
