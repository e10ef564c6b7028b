"""The partitions of the two big tables: made well ahead, so that publishing never waits for them.

Each table is partitioned by its own ascending number. If no partition was made in time, rows go to the default one and
nothing fails; the next run turns the default partition into an ordinary one.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, OperationalError, connections, transaction

from pubsub.conf import conf
from pubsub.db.errors import is_lock_not_available
from pubsub.db.locks import PARTITIONING, try_for_transaction
from pubsub.db.sql import load

logger = logging.getLogger(__name__)

AHEAD = 3
"""Partitions kept ready beyond the one being filled."""

OWN_ID = "outbox_message_t_own_id"
"""The trigger by which the default segment refuses ids that have not been given out."""

STEPS_AT_ONCE = 50
"""If more steps are needed, for example because a row was inserted with an arbitrary id, the next run continues."""

LOCK_TIMEOUT_MS = 200
"""How long making or dropping a partition may wait for a lock, which keeps other sessions waiting too."""


@dataclass(frozen=True, kw_only=True)
class PartitionedTable:
    name: str
    column: str
    tip: str
    """The query for the last number in use."""
    overflow_room: int
    """A partition that is made from the default one covers the numbers of this many partitions."""
    jump: str | None
    """The statement that skips to the end of such a partition, if numbers may be skipped, so that it need not fill."""

    @property
    def default(self) -> str:
        """The partition for rows that belong to no other."""
        return f"{self.name}_default"


TABLES = (
    PartitionedTable(
        name="outbox_message_t",
        column="id",
        tip=load("retention/message_tip"),
        # Enough that publishers cannot reach its end, even if the process that makes it dies half-way.
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
    """Make missing partitions. Returns their names. Safe to repeat.

    If a lock is not available at once, it gives up until the next run.
    """
    made: list[str] = []
    for table in TABLES:
        try:
            made += _make_ahead(table, using)
        except OperationalError as error:
            if not is_lock_not_available(error):
                raise
            logger.info("made no partition for %s this time: another session has locked it", table.name)
    if made:
        logger.info("made partitions %s", ", ".join(made))
    return made


def _make_ahead(table: PartitionedTable, using: str) -> list[str]:
    made = []
    with connections[using].cursor() as cursor:
        for _ in range(STEPS_AT_ONCE):
            if not _is_needed(cursor, table):
                break
            # One transaction per step. If a process dies between two, the next one continues from there.
            with suppress(IntegrityError), transaction.atomic(using=using):
                cursor.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                if not try_for_transaction(cursor, PARTITIONING):
                    break
                if _is_needed(cursor, table):
                    # IntegrityError: a publisher reached the default partition at this very moment. Look again.
                    made += _step(cursor, table)
    return made


def _is_needed(cursor: Any, table: PartitionedTable) -> bool:
    return _end(cursor, table) <= _tip(cursor, table) + AHEAD * conf().segment_rows


def _step(cursor: Any, table: PartitionedTable) -> list[str]:
    """Add a partition; or, if the default one has rows, do the next step of turning that into an ordinary one.

    Its bounds are declared and validated first, under locks that let writers through. This saves a scan of all rows
    under a lock that does not.
    """
    lower = _end(cursor, table)
    cursor.execute(load("retention/default_bounds"), [table.default])
    bounds = cursor.fetchone()
    if bounds is None:
        if not _scalar(cursor, f"SELECT EXISTS (SELECT FROM {table.default})"):  # noqa: S608
            return [_add(cursor, table, lower)]
        _declare_bounds(cursor, table, lower)
        return []
    lower, upper, validated = bounds
    if _tip(cursor, table) > upper - table.overflow_room * conf().segment_rows // 2:
        # Declared long ago, by a process that got no further. Publishers must not reach the end.
        cursor.execute(f"ALTER TABLE {table.default} DROP CONSTRAINT bounds")
        return []
    if not validated:
        cursor.execute(f"ALTER TABLE {table.default} VALIDATE CONSTRAINT bounds")
        return []
    return _turn_default_into_partition(cursor, table, lower, upper)


def _declare_bounds(cursor: Any, table: PartitionedTable, lower: int) -> None:
    upper = _tip(cursor, table) + table.overflow_room * conf().segment_rows
    condition = f"{table.column} >= {lower} AND {table.column} < {upper}"
    cursor.execute(f"ALTER TABLE {table.default} ADD CONSTRAINT bounds CHECK ({condition}) NOT VALID")


def _turn_default_into_partition(cursor: Any, table: PartitionedTable, lower: int, upper: int) -> list[str]:
    name = f"{table.name}_{lower}"
    cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {table.default}")
    cursor.execute(f"ALTER TABLE {table.default} RENAME TO {name}")
    cursor.execute(f"ALTER TABLE {table.name} ATTACH PARTITION {name} FOR VALUES FROM ({lower}) TO ({upper})")
    cursor.execute(f"ALTER TABLE {name} DROP CONSTRAINT bounds")
    cursor.execute(f"DROP TRIGGER IF EXISTS {OWN_ID} ON {name}")
    cursor.execute("SELECT pubsub_add_default_segment_v1(%s)", [table.name])
    if not table.jump:
        return [name]
    # First the partition that the next numbers belong to; publishers are still locked out.
    following = _add(cursor, table, upper)
    cursor.execute(table.jump, [upper - 1])
    return [name, following]


def _add(cursor: Any, table: PartitionedTable, lower: int) -> str:
    upper = lower + conf().segment_rows
    cursor.execute("SELECT pubsub_add_segment_v1(%s, %s, %s)", [table.name, lower, upper])
    return f"{table.name}_{lower}"


def _tip(cursor: Any, table: PartitionedTable) -> int:
    return _scalar(cursor, table.tip) or 0


def _end(cursor: Any, table: PartitionedTable) -> int:
    return _scalar(cursor, load("retention/partition_end"), [table.name]) or 1


def _scalar(cursor: Any, statement: str, parameters: list[Any] | None = None) -> Any:
    cursor.execute(statement, parameters)
    row = cursor.fetchone()
    return row[0] if row else None
