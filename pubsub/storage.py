"""The partitions of the two big tables: made well ahead, so that publishing never waits for them.

Both tables are cut by their own ascending number. Where nobody has prepared partitions, rows go to the default
partition and nothing fails; the next preparation turns what has gathered there into a partition of its own.
"""

import logging
from dataclasses import dataclass
from typing import Any

from django.db import OperationalError, connections, transaction

from .conf import conf
from .sql import load

logger = logging.getLogger("pubsub.storage")

AHEAD = 3
"""Partitions that stand ready beyond the one being filled."""

LOCK_TIMEOUT_MS = 200
"""How long making a partition may wait for a lock, and so hold anybody off."""


@dataclass(frozen=True)
class PartitionedTable:
    name: str
    column: str
    tip: str
    """The statement that tells the number that was given out last."""


TABLES = (
    PartitionedTable("outbox_message_t", "id", load("message_tip")),
    PartitionedTable("log_entry", "position", "SELECT next_position - 1 FROM log_sequencer WHERE id = 1"),
)


def make_partitions_ahead(using: str) -> list[str]:
    """Makes the partitions that are missing and returns their names. Harmless to repeat.

    Where a lock cannot be had at once, it gives up until the next time.
    """
    made: list[str] = []
    for table in TABLES:
        try:
            made += _make_ahead(table, using)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != "55P03":
                raise
            logger.info("no partition made for %s now: it is locked", table.name)
    if made:
        logger.info("made partitions %s", ", ".join(made))
    return made


def _make_ahead(table: PartitionedTable, using: str) -> list[str]:
    made = []
    with connections[using].cursor() as cursor:
        while True:
            lower, upper = _next_bounds(cursor, table)
            if upper is None:
                break
            overflowed = _scalar(cursor, f"SELECT EXISTS (SELECT FROM {table.name}_default)")  # noqa: S608
            if overflowed:
                _prove_bounds_of_default(cursor, table, using, lower, upper)
            with transaction.atomic(using=using):
                cursor.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                if not _scalar(cursor, "SELECT pg_try_advisory_xact_lock(hashtext('pubsub partitions'))"):
                    break  # another process is doing the same …
                if _end(cursor, table) != lower:
                    continue  # … or has just done it
                if overflowed:
                    _turn_default_into_partition(cursor, table, lower, upper)
                else:
                    cursor.execute("SELECT pubsub_add_partition_v1(%s, %s, %s)", [table.name, lower, upper])
            made.append(f"{table.name}_{lower}")
    return made


def _next_bounds(cursor: Any, table: PartitionedTable) -> tuple[int, int | None]:
    """Where the next partition begins and ends; it has no end if enough of them stand ready."""
    size = conf().partition_rows
    tip = _scalar(cursor, table.tip) or 0
    lower = _end(cursor, table)
    if lower > tip + AHEAD * size:
        return lower, None
    # Where ids have run past the last partition, this one takes in all that has gathered in the default one.
    return lower, max(lower, tip) + size


def _end(cursor: Any, table: PartitionedTable) -> int:
    return _scalar(cursor, load("partition_end"), [table.name]) or 1


def _prove_bounds_of_default(cursor: Any, table: PartitionedTable, using: str, lower: int, upper: int) -> None:
    """Under a lock that lets writers through, which spares a scan of all rows under one that does not."""
    default = f"{table.name}_default"
    for statement in (
        f"ALTER TABLE {default} DROP CONSTRAINT IF EXISTS bounds, "
        f"ADD CONSTRAINT bounds CHECK ({table.column} >= {lower} AND {table.column} < {upper}) NOT VALID",
        f"ALTER TABLE {default} VALIDATE CONSTRAINT bounds",
    ):
        with transaction.atomic(using=using):
            cursor.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
            cursor.execute(statement)


def _turn_default_into_partition(cursor: Any, table: PartitionedTable, lower: int, upper: int) -> None:
    default, child = f"{table.name}_default", f"{table.name}_{lower}"
    cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {default}")
    cursor.execute(f"ALTER TABLE {default} RENAME TO {child}")
    cursor.execute(f"ALTER TABLE {table.name} ATTACH PARTITION {child} FOR VALUES FROM ({lower}) TO ({upper})")
    cursor.execute(f"ALTER TABLE {child} DROP CONSTRAINT IF EXISTS bounds")
    cursor.execute("SELECT pubsub_add_default_partition_v1(%s)", [table.name])


def _scalar(cursor: Any, statement: str, parameters: list[Any] | None = None) -> Any:
    cursor.execute(statement, parameters)
    row = cursor.fetchone()
    return row[0] if row else None
