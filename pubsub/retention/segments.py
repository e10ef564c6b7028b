"""What the database knows about the log's storage: which segments are full, what they hold, who has not read them."""

from typing import Any

from django.db import connections

from pubsub.db.sql import load

from .plan import Segment, Storage, TablePartition, Unread


def note_full_segments(using: str) -> int:
    """Note the contents of segments that have become full. Returns how many."""
    with connections[using].cursor() as cursor:
        cursor.execute(load("retention/find_new_segments"))
        found = cursor.fetchall()
        for name, lower, upper in found:
            cursor.execute(load("retention/note_segment").format(segment=name), {"lower": lower, "upper": upper})
    return len(found)


def read_storage(cursor: Any) -> Storage:
    """The full segments of the log, and the partitions of its messages."""
    entries = {partition.lower: partition for partition in _partitions(cursor, "log_entry")}
    messages = _partitions(cursor, "outbox_message_t")
    cursor.execute(f"SELECT statement_timestamp(), ({load('retention/message_tip')})")
    now, tip = cursor.fetchone()
    cursor.execute(load("retention/find_segments"))
    segments: list[Segment] = []
    counted_up_to = 0
    for lower, upper, filled_at, expires_at, longest_topic, count, first_id, last_id in cursor.fetchall():
        if lower not in entries:
            continue
        # Messages count for the segment with which they would be dropped.
        freed = sum(each.bytes for each in messages if counted_up_to < each.upper - 1 <= last_id)
        counted_up_to = max(counted_up_to, last_id)
        segments.append(
            Segment(
                lower=lower,
                upper=upper,
                filled_at=filled_at,
                expires_at=expires_at,
                longest_topic=longest_topic,
                entries=count,
                first_message_id=first_id,
                last_message_id=last_id,
                log_bytes=entries[lower].bytes,
                message_bytes=freed,
            )
        )
    return Storage(now=now, segments=segments, messages=messages, last_message_id=tip or 0)


def find_unread(cursor: Any, storage: Storage) -> list[Unread]:
    """Where groups have not read everything that has expired."""
    if not storage.expired_up_to:
        return []
    cursor.execute(load("retention/find_unread"), {"before": storage.expired_up_to})
    names = [column.name for column in cursor.description]
    return [Unread(**dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


def next_position(cursor: Any) -> int:
    """The position that the next entry of the log gets."""
    cursor.execute("SELECT next_position FROM log_sequencer WHERE id = 1")
    row = cursor.fetchone()
    return int(row[0]) if row else 1


def least_message_id(cursor: Any, position: int) -> int | None:
    """The smallest id of a message whose entry is at a position or after it."""
    cursor.execute("SELECT min(message_id) FROM log_entry WHERE position >= %s", [position])
    row = cursor.fetchone()
    return row[0] if row else None


def _partitions(cursor: Any, table: str) -> list[TablePartition]:
    cursor.execute(load("retention/list_partitions"), [table])
    found = cursor.fetchall()
    return [TablePartition(name=name, lower=lower, upper=upper, bytes=size) for name, lower, upper, size in found]
