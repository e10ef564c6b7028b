"""A log with small segments, and ways to make what is in them old."""

import datetime as dt
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

from pubsub import publish
from pubsub.models import LogEntry, LogPartitionCounter, OutboxMessage, SegmentContents, Subscription, Topic
from pubsub.retention.partitions import TABLES, make_partitions_ahead
from pubsub.sequencing.sequencer import sequence
from tests.log import insert
from tests.sessions import connect

ROWS = 10
"""Rows of a segment here."""


def sql(statement: str, *parameters: Any) -> list[Any]:
    named = parameters[0] if parameters and isinstance(parameters[0], dict) else parameters
    with connection.cursor() as cursor:
        cursor.execute(statement, named)
        return cursor.fetchall() if cursor.description else []


def names(table: str) -> list[str]:
    """The ordinary partitions, from the oldest on."""
    rows = sql("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", table)
    numbered = [name for (name,) in rows if not name.endswith("_default")]
    return sorted(numbered, key=lambda name: int(name.rpartition("_")[2]))


def drop_all_partitions() -> None:
    for table in TABLES:
        for name in names(table.name):
            sql(f"DROP TABLE {name}")


@contextmanager
def small_partitions() -> Iterator[None]:
    """Begins with an empty log, numbered from 1. Afterwards all is as `migrate` makes it."""
    drop_all_partitions()
    sql("ALTER TABLE outbox_message_t ALTER COLUMN id RESTART")
    make_partitions_ahead("default")
    try:
        yield
    finally:
        drop_all_partitions()
        sql("TRUNCATE outbox_message_t, log_entry, log_segments")
        for (name,) in sql("SELECT relname FROM pg_class WHERE relname ~ '_retired$'"):
            sql(f"DROP TABLE {name}")


@pytest.fixture
def small(transactional_db: None) -> Iterator[None]:
    """A log in segments of a few rows."""
    with override_settings(PUBSUB={"segment_rows": ROWS}), small_partitions():
        yield
    make_partitions_ahead("default")


def publish_events(topic: str, count: int, key: str | None = "k") -> None:
    for n in range(count):
        with transaction.atomic():
            publish(topic, {"n": n}, key=key)
        if n % ROWS == ROWS - 1 or n == count - 1:
            sequence("default")
            make_partitions_ahead("default")


def longest_insert(enough: threading.Event) -> float:
    """Publishes until it is enough, and returns how many seconds the slowest message took."""
    longest = 0.0
    with connect() as mine:
        while not enough.is_set():
            begun = time.monotonic()
            insert(mine, "any")
            longest = max(longest, time.monotonic() - begun)
    return longest


def make_old(days: float) -> None:
    sql("UPDATE log_segments SET filled_at = filled_at - make_interval(secs => %s)", days * 86400)


def topic(name: str, **options: Any) -> Topic:
    options.setdefault("total_partitions", 2)
    options.setdefault("retention", dt.timedelta(days=7))
    return Topic.objects.create(name=name, **options)


def check_storage() -> None:
    """What must hold of the log at any time."""
    ids = set(OutboxMessage.objects.values_list("id", flat=True))
    entries = list(LogEntry.objects.values_list("message_id", "position"))
    assert {message for message, _ in entries} <= ids, "entries whose messages are gone"
    positions = sorted(position for _, position in entries)
    assert positions == list(range(positions[0], positions[-1] + 1)) if positions else True
    for counter in LogPartitionCounter.objects.all():
        here = LogEntry.objects.filter(topic_id=counter.topic_id, partition_id=counter.partition_id).count()
        assert counter.entries - counter.retired == here, f"{counter}: {counter.retired} retired, {here} here"
    assert sql("SELECT count(*) FROM consumer_lag_v WHERE lag < 0") == [(0,)]
    behind = sql(
        "SELECT group_id, passed, retired FROM consumer_offsets"
        " JOIN log_partition_counter USING (topic_id, partition_id) WHERE passed < retired"
    )
    assert behind == [], f"cursors in what is gone: {behind}"


def state() -> Any:
    """All that retention decides about, to compare."""
    return (
        names("log_entry"),
        names("outbox_message_t"),
        sql("SELECT relname FROM pg_class WHERE relname ~ '_retired$' ORDER BY 1"),
        sorted(SegmentContents.objects.values_list("lower", "topic_id", "partition_id", "entries")),
        sorted(LogPartitionCounter.objects.values_list("topic_id", "partition_id", "entries", "retired")),
        sql(
            "SELECT group_id, topic_id, partition_id, next_offset, next_position, passed"
            " FROM consumer_offsets ORDER BY 1, 2, 3"
        ),
        sorted(Subscription.objects.values_list("group_id", "status", "misses"), key=str),
        sql("SELECT count(*) FROM operator_events"),
        sql("SELECT count(*) FROM dead_letter_queue"),
    )
