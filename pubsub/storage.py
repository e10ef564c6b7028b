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
    connection = connections[using]
    size = conf().partition_rows
    with connection.cursor() as cursor:
        tip = _scalar(cursor, table.tip) or 0
        upper = _scalar(cursor, load("partition_end"), [table.name]) or 1
        if upper > tip + AHEAD * size:
            return []
        overflowed = _scalar(cursor, f"SELECT EXISTS (SELECT FROM {table.name}_default)")  # noqa: S608
    made = []
    if overflowed:
        lower, upper = upper, tip + size
        _turn_default_into_partition(table, lower, upper, using)
        made.append(f"{table.name}_{lower}")
    while upper <= tip + AHEAD * size:
        with transaction.atomic(using=using), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
            name = _scalar(cursor, "SELECT pubsub_add_partition_v1(%s, %s, %s)", [table.name, upper, upper + size])
        if name is None:
            break  # another process is doing the same
        made.append(name)
        upper += size
    return made


def _turn_default_into_partition(table: PartitionedTable, lower: int, upper: int, using: str) -> None:
    default, child = f"{table.name}_default", f"{table.name}_{lower}"
    bounds = f"{table.column} >= {lower} AND {table.column} < {upper}"
    with connections[using].cursor() as cursor:
        # Proving the bounds beforehand, under a lock that lets writers through, spares a scan under one that does not.
        cursor.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
        try:
            cursor.execute(f"ALTER TABLE {default} DROP CONSTRAINT IF EXISTS bounds")
            cursor.execute(f"ALTER TABLE {default} ADD CONSTRAINT bounds CHECK ({bounds}) NOT VALID")
            cursor.execute(f"ALTER TABLE {default} VALIDATE CONSTRAINT bounds")
            with transaction.atomic(using=using):
                cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {default}")
                cursor.execute(f"ALTER TABLE {default} RENAME TO {child}")
                cursor.execute(
                    f"ALTER TABLE {table.name} ATTACH PARTITION {child} FOR VALUES FROM ({lower}) TO ({upper})"
                )
                cursor.execute(f"ALTER TABLE {child} DROP CONSTRAINT bounds")
                cursor.execute("SELECT pubsub_add_default_partition_v1(%s)", [table.name])
        finally:
            cursor.execute("RESET lock_timeout")


def _scalar(cursor: Any, statement: str, parameters: list[Any] | None = None) -> Any:
    cursor.execute(statement, parameters)
    row = cursor.fetchone()
    return row[0] if row else None
