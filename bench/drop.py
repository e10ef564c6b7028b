"""Dropping storage while publishers run: how long the tables are locked, and what the publishers notice of it."""

import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import connections, transaction
from django.test import override_settings

from pubsub import publish
from pubsub.retention.drop import drop_expired
from pubsub.retention.partitions import make_partitions_ahead
from pubsub.sequencing.sequencer import sequence

from .publish import TOPIC, payload_of, running_leader

FILL = (
    "INSERT INTO outbox_message_t (topic_id, key, payload) "
    "SELECT 1, n::text, jsonb_build_object('n', n, 'text', %s::text) FROM generate_series(1, %s) AS n"
)


def measure(
    *, using: str, rows: int, clients: int, payload_bytes: int, rounds: int, say: Callable[[str], None]
) -> dict[str, float]:
    """Medians over the rounds, except what is called the longest."""
    results: list[dict[str, float]] = []
    with override_settings(PUBSUB={"segment_rows": rows}):
        _begin_anew(using)
        for number in range(1, rounds + 1):
            say(f"round {number} of {rounds}: filling a partition")
            _fill(using, rows, payload_bytes)
            say(f"round {number} of {rounds}: dropping it")
            results.append(_drop_beside_publishers(using, clients, payload_bytes))
    return {
        name: (max if "longest" in name else statistics.median)(result[name] for result in results)
        for name in results[0]
    }


def _begin_anew(using: str) -> None:
    """Partitions of the wanted size, from the first number on."""
    with connections[using].cursor() as cursor:
        for table in ("outbox_message_t", "log_entry"):
            cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [table])
            for (name,) in cursor.fetchall():
                if not name.endswith("_default"):
                    cursor.execute(f"DROP TABLE {name}")
    make_partitions_ahead(using)


def _fill(using: str, rows: int, payload_bytes: int) -> None:
    """A partition's worth of messages, numbered, noted and expired."""
    step = min(rows, 50_000)
    text = str(payload_of(payload_bytes)["text"])
    for _ in range(0, rows, step):
        with connections[using].cursor() as cursor:
            cursor.execute(FILL, [text, step])
        sequence(using)
        make_partitions_ahead(using)
    drop_expired(using)
    with connections[using].cursor() as cursor:
        cursor.execute("UPDATE log_segments SET filled_at = filled_at - interval '8 days'")
        # Dropping must not be charged with writing what was published.
        cursor.execute("CHECKPOINT")


def _drop_beside_publishers(using: str, clients: int, payload_bytes: int) -> dict[str, float]:
    connections.close_all()
    context = multiprocessing.get_context("fork")
    ready, over, answers = context.Barrier(clients + 1), context.Event(), context.SimpleQueue()
    publishers = [
        context.Process(target=_publish_on_and_on, args=(using, payload_bytes, ready, over, answers))
        for _ in range(clients)
    ]
    for process in publishers:
        process.start()
    ready.wait(timeout=60)
    with running_leader(using):
        threading.Event().wait(2)  # how publishing goes while nothing is dropped
        begun = time.monotonic()
        done = drop_expired(using)
        ended = time.monotonic()
    over.set()
    timings = [answers.get() for _ in publishers]
    for process in publishers:
        process.join()
    if not done.partitions:
        raise RuntimeError("Nothing could be dropped: another session has the tables locked.")
    latencies = [(start, 1000 * (end - start)) for each in timings for start, end in each]
    before = sorted(took for start, took in latencies if start < begun)
    meanwhile = [took for start, took in latencies if begun - took / 1000 <= start <= ended]
    return {
        "entries_dropped": done.entries,
        "megabytes_dropped": done.bytes / 1e6,
        "seconds_in_all": ended - begun,
        "ms_locked": done.locked_ms,
        "longest_ms_locked": done.locked_ms,
        "longest_publish_before_ms": max(before, default=0),
        "longest_publish_meanwhile_ms": max(meanwhile, default=0),
        "p99_publish_before_ms": before[int(0.99 * len(before))] if before else 0,
    }


def _publish_on_and_on(using: str, payload_bytes: int, ready: Any, over: Any, answers: Any) -> None:
    payload = payload_of(payload_bytes)
    took = []
    try:
        connections[using].ensure_connection()
        ready.wait(timeout=60)
        while not over.is_set():
            begun = time.monotonic()
            with transaction.atomic(using=using):
                publish(TOPIC, payload, key="k", using=using)
            took.append((begun, time.monotonic()))
    finally:
        answers.put(took)
        connections.close_all()
