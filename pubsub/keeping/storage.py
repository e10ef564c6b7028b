"""The partitions of the two big tables: made well ahead, so that publishing never waits for them.

Both tables are cut by their own ascending number. Where nobody has prepared partitions, rows go to the default
partition and nothing fails; the next preparation turns what has gathered there into a partition of its own.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, OperationalError, connections, transaction

from pubsub.conf import conf
from pubsub.sql import load

logger = logging.getLogger("pubsub.storage")

AHEAD = 3
"""Partitions that stand ready beyond the one being filled."""

STEPS_AT_ONCE = 50
"""What cannot be done, say because somebody has inserted an id of his own choice, is not tried for ever."""

LOCK_TIMEOUT_MS = 200
"""How long making a partition may wait for a lock, and so hold anybody off."""


@dataclass(frozen=True, kw_only=True)
class PartitionedTable:
    name: str
    column: str
    tip: str
    """The statement that tells the number that was given out last."""
    overflow_room: int
    """Partitions' worth of numbers that one takes in when it is made of what has gathered in the default partition."""
    jump: str | None
    """The statement that goes on numbering behind such a one, where numbers may be left out: it need not grow then."""


TABLES = (
    PartitionedTable(
        name="outbox_message_t",
        column="id",
        tip=load("message_tip"),
        # So many that publishers cannot run against its end, should whoever makes it be stopped half-way.
        overflow_room=1000,
        jump="SELECT setval(pg_get_serial_sequence('outbox_message_t', 'id'), %s)",
    ),
    PartitionedTable(
        name="log_entry",
        column="position",
        tip="SELECT next_position - 1 FROM log_sequencer WHERE id = 1",
        overflow_room=10,
        jump=None,
    ),
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
        for _ in range(STEPS_AT_ONCE):
            if not _is_needed(cursor, table):
                break
            # One step a transaction. Where a process was killed between two, the next one goes on from there.
            with suppress(IntegrityError), transaction.atomic(using=using):
                cursor.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                if not _scalar(cursor, "SELECT pg_try_advisory_xact_lock(hashtext('pubsub partitions'))"):
                    break  # another process is doing the same
                if _is_needed(cursor, table):
                    # An IntegrityError: publishers ran into the default partition this very moment. Look again.
                    made += _step(cursor, table)
    return made


def _is_needed(cursor: Any, table: PartitionedTable) -> bool:
    return _end(cursor, table) <= _tip(cursor, table) + AHEAD * conf().partition_rows


def _step(cursor: Any, table: PartitionedTable) -> list[str]:
    size, default, lower = conf().partition_rows, f"{table.name}_default", _end(cursor, table)
    cursor.execute(load("default_bounds"), [default])
    bounds = cursor.fetchone()
    if bounds is None and not _scalar(cursor, f"SELECT EXISTS (SELECT FROM {default})"):  # noqa: S608
        cursor.execute("SELECT pubsub_add_partition_v1(%s, %s, %s)", [table.name, lower, lower + size])
        return [f"{table.name}_{lower}"]
    # Saying the bounds and proving them first, under locks that let writers through, spares a scan of all that has
    # gathered under one that does not.
    if bounds is None:
        upper = _tip(cursor, table) + table.overflow_room * size
        said = f"{table.column} >= {lower} AND {table.column} < {upper}"
        cursor.execute(f"ALTER TABLE {default} ADD CONSTRAINT bounds CHECK ({said}) NOT VALID")
        return []
    lower, upper, proved = bounds
    if _tip(cursor, table) > upper - table.overflow_room * size // 2:
        # Said long ago, by a process that came no further; nobody must ever run against it.
        cursor.execute(f"ALTER TABLE {default} DROP CONSTRAINT bounds")
        return []
    if not proved:
        cursor.execute(f"ALTER TABLE {default} VALIDATE CONSTRAINT bounds")
        return []
    child = f"{table.name}_{lower}"
    cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {default}")
    cursor.execute(f"ALTER TABLE {default} RENAME TO {child}")
    cursor.execute(f"ALTER TABLE {table.name} ATTACH PARTITION {child} FOR VALUES FROM ({lower}) TO ({upper})")
    cursor.execute(f"ALTER TABLE {child} DROP CONSTRAINT bounds")
    cursor.execute("SELECT pubsub_add_default_partition_v1(%s)", [table.name])
    made = [child]
    if table.jump:
        # First the partition that the next numbers belong to; publishers are still locked out for this moment.
        cursor.execute("SELECT pubsub_add_partition_v1(%s, %s, %s)", [table.name, upper, upper + size])
        cursor.execute(table.jump, [upper - 1])
        made.append(f"{table.name}_{upper}")
    return made


def _tip(cursor: Any, table: PartitionedTable) -> int:
    return _scalar(cursor, table.tip) or 0


def _end(cursor: Any, table: PartitionedTable) -> int:
    return _scalar(cursor, load("partition_end"), [table.name]) or 1


def _scalar(cursor: Any, statement: str, parameters: list[Any] | None = None) -> Any:
    cursor.execute(statement, parameters)
    row = cursor.fetchone()
    return row[0] if row else None
