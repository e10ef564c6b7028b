"""Taking partitions out of the two tables: detach them, then drop them.

Detaching needs a moment in which no other session uses the tables. It waits for one only as long as its timeout allows,
because publishers queue up behind it, and then takes a few milliseconds. Dropping removes files; it comes afterwards
and locks nothing that other sessions use. A session that is reading finishes first; one that begins meanwhile waits.
"""

import datetime as dt
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import OperationalError, connections, transaction

from pubsub.db.errors import is_lock_not_available
from pubsub.db.sql import load

from .partitions import LOCK_TIMEOUT_MS

logger = logging.getLogger(__name__)

TABLES = ("log_entry", "outbox_message_t")
"""In locking order. Publishers never touch the first one, so waiting for it costs them nothing."""


@dataclass(frozen=True, kw_only=True)
class LockHolder:
    """A session that is currently using the tables."""

    pid: int
    user: str
    application: str
    state: str
    since: dt.datetime | None
    """When its transaction began; null if it has none."""
    query: str


def lock_out_others(cursor: Any, names: Sequence[str], timeout_ms: int) -> None:
    """Wait for a moment in which no other session uses the tables, in the open transaction."""
    cursor.execute(f"SET LOCAL lock_timeout = {int(timeout_ms)}")
    for table in TABLES:
        cursor.execute(f"LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE")
    # Vacuum may be working on one of these. Everything else would wait until it has finished.
    cursor.execute(f"LOCK TABLE {', '.join(names)} IN ACCESS EXCLUSIVE MODE NOWAIT")


def detach(cursor: Any, names: Sequence[str]) -> None:
    """Detach partitions and rename them, so that `drop_detached` finds them whatever happens next."""
    for name in names:
        parent = name.rpartition("_")[0]
        cursor.execute(f"ALTER TABLE {parent} DETACH PARTITION {name}")
        cursor.execute(f"ALTER TABLE {name} RENAME TO {name}_retired")


def drop_detached(using: str) -> int:
    """Drop detached partitions, including those of a process that died before it dropped them. Returns how many."""
    dropped = 0
    with connections[using].cursor() as cursor:
        cursor.execute(load("retention/find_detached"))
        for (name,) in cursor.fetchall():
            try:
                with transaction.atomic(using=using):
                    cursor.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                    cursor.execute(f"DROP TABLE IF EXISTS {name}")
            except OperationalError as error:
                if not is_lock_not_available(error):
                    raise
                logger.info("%s is not dropped now: another session has locked it", name)
            else:
                dropped += 1
    return dropped


def find_lock_holders(using: str) -> list[LockHolder]:
    """The sessions that currently keep partitions from being detached."""
    with connections[using].cursor() as cursor:
        cursor.execute(load("retention/find_lock_holders"))
        names = [column.name for column in cursor.description]
        return [LockHolder(**dict(zip(names, row, strict=True))) for row in cursor.fetchall()]
