"""Pruning: finished rows are kept for a while so that you can look at them, then removed, some at a time."""

import logging
from collections.abc import Callable

from django.db import connections

from pubsub.conf import conf
from pubsub.db.sql import load

logger = logging.getLogger(__name__)

AT_ONCE = 5000
"""Rows removed in one transaction, so that none takes long."""

BATCHES_KEPT = 100
"""The latest batches of each stream, which are never removed."""

SINK_BATCHES_KEPT_S = 30 * 24 * 3600


def remove_finished_letters(using: str) -> int:
    """Remove dead letters that were resolved or discarded long ago, with their attempts.

    >>> remove_finished_letters("default")
    0
    """
    return _remove("remove_finished_letters", using, conf().dead_letter_retention_s)


def prune_audit_log(using: str) -> int:
    """Remove rows of the audit log that are too old.

    >>> prune_audit_log("default")
    0
    """
    return _remove("prune_audit_log", using, conf().audit_log_retention_s)


def remove_old_sink_batches(using: str) -> int:
    """Remove the records of batches that Spark streams published long ago, but never the latest ones.

    >>> remove_old_sink_batches("default")
    0
    """
    return _remove("remove_old_sink_batches", using, SINK_BATCHES_KEPT_S)


def forget_expired_keys(using: str) -> int:
    """Remove dedup keys whose window is over.

    >>> forget_expired_keys("default")
    0
    """
    return _remove("forget_expired_keys", using, 0)


JOBS: tuple[Callable[[str], int], ...] = (
    remove_finished_letters,
    prune_audit_log,
    remove_old_sink_batches,
    forget_expired_keys,
)


def _remove(statement: str, using: str, older_s: float) -> int:
    """Run a statement of this package until nothing is left to remove. Returns how many rows were removed."""
    removed, last = 0, AT_ONCE
    with connections[using].cursor() as cursor:
        while last == AT_ONCE:
            cursor.execute(load(f"retention/{statement}"), {"limit": AT_ONCE, "older_s": older_s, "keep": BATCHES_KEPT})
            last = int(cursor.rowcount)
            removed += last
    if removed:
        logger.debug("%s: %d rows", statement, removed)
    return removed
