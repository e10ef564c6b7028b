"""Taking storage partitions away: what they hold is noted when they are full; then they are detached, then dropped.

Detaching needs a moment in which nobody else uses the tables. It waits for it no longer than `LOCK_TIMEOUT_MS`, since
publishers queue up behind, and then takes a few milliseconds; dropping, which has files to remove, is done afterwards
and locks nobody out. Who reads meanwhile finishes first, or waits as long.
"""

import logging
from collections.abc import Sequence
from typing import Any

from django.db import OperationalError, connections, transaction

from pubsub.sql import load

from .storage import LOCK_TIMEOUT_MS

logger = logging.getLogger("pubsub.dropping")

TABLES = ("log_entry", "outbox_message_t")
"""In the order in which they are locked. Publishers never touch the first one, so it may be waited for before."""


def note_full_segments(using: str) -> int:
    """Notes what the storage partitions of the log hold that have become full. Returns how many those were."""
    with connections[using].cursor() as cursor:
        cursor.execute(load("find_unnoted_segments"))
        found = cursor.fetchall()
        for name, lower, upper in found:
            cursor.execute(load("note_segment").format(child=name), {"lower": lower, "upper": upper})
    return len(found)


def lock_out_everybody(cursor: Any, names: Sequence[str], timeout_ms: int) -> None:
    """Waits for a moment in which nobody uses the tables, in the open transaction."""
    cursor.execute(f"SET LOCAL lock_timeout = {int(timeout_ms)}")
    for table in TABLES:
        cursor.execute(f"LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE")
    # Vacuum may be at work on one. Waiting for it with all others waiting would be too long.
    cursor.execute(f"LOCK TABLE {', '.join(names)} IN ACCESS EXCLUSIVE MODE NOWAIT")


def detach(cursor: Any, names: Sequence[str]) -> None:
    """Detaches partitions and gives them a name by which they are known to be waste, whatever happens next."""
    for name in names:
        parent = name.rpartition("_")[0]
        cursor.execute(f"ALTER TABLE {parent} DETACH PARTITION {name}")
        cursor.execute(f"ALTER TABLE {name} RENAME TO {name}_retired")


def drop_detached(using: str) -> int:
    """Drops what has been detached, also by a process that then died. Returns how many partitions that were."""
    dropped = 0
    with connections[using].cursor() as cursor:
        cursor.execute(load("find_detached"))
        for (name,) in cursor.fetchall():
            try:
                with transaction.atomic(using=using):
                    cursor.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                    cursor.execute(f"DROP TABLE IF EXISTS {name}")
            except OperationalError as error:
                if not is_locked(error):
                    raise
                logger.info("%s is not dropped now: somebody has it locked", name)
            else:
                dropped += 1
    return dropped


def is_locked(error: BaseException) -> bool:
    return getattr(error.__cause__, "sqlstate", None) == "55P03"
