"""Draining a backlog, by one group or several, beside as many of the plainest readers there are.

Those read ranges of one table and update a row of their progress after each; both decode the payloads and call a
function for each event.
"""

import json
import multiprocessing
import statistics
import time
import uuid
from collections.abc import Callable
from typing import Any

from django.db import connections, transaction

from pubsub import publish_many
from pubsub.delivery import Delivery
from pubsub.sequencing.sequencer import sequence
from pubsub.signals import batch_handled
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from pubsub.worker.worker import Worker

from .publish import TOPIC, open_raw, payload_of
from .rounds import wal_position

AT_ONCE = 10_000
"""Events that are numbered at once."""

Runner = Callable[[Any], tuple[int, float]]
"""Waits for the others by calling what it is given, and drains. Returns how many events, and when it was done with
the last one."""


def fill(*, using: str, events: int, together: int, size: int, groups: int, say: Callable[[str], None]) -> float:
    """Publishes the backlog, and copies it into one table for the raw readers. Returns the bytes of WAL of an event."""
    payload = payload_of(size)
    before = wal_position(using)
    for first in range(0, events, AT_ONCE):
        say(f"publishing: {first:,} of {events:,}")
        upto = min(first + AT_ONCE, events)
        for begin in range(first, upto, together):
            numbers = range(begin, min(begin + together, upto))
            with transaction.atomic(using=using):
                publish_many(
                    TOPIC, ({"payload": payload, "type": "order.placed", "key": str(n)} for n in numbers), using=using
                )
        sequence(using)
    wal = wal_position(using) - before
    with connections[using].cursor() as cursor:
        cursor.execute(
            "CREATE TABLE pubsub_bench.log AS SELECT partition_id, c_offset, event_id, type, key, payload, metadata, "
            "host_id, user_id, transaction_id, created_at FROM outbox_log_v ORDER BY c_offset"
        )
        cursor.execute("ALTER TABLE pubsub_bench.log ADD PRIMARY KEY (partition_id, c_offset)")
        cursor.execute(
            "CREATE TABLE pubsub_bench.progress AS SELECT group_id, partition_id, 1::bigint AS next_offset "
            "FROM (SELECT DISTINCT partition_id FROM pubsub_bench.log) AS log, generate_series(1, %s) AS group_id",
            [groups],
        )
        cursor.execute("ALTER TABLE pubsub_bench.progress ADD PRIMARY KEY (group_id, partition_id)")
    connections[using].connection.execute("VACUUM ANALYZE")
    return wal / events


def compare(
    *,
    using: str,
    events: int,
    together: int,
    size: int,
    groups: int,
    consumers: int,
    batch: int,
    delivery: Delivery,
    rounds: int,
    say: Callable[[str], None],
) -> dict[str, dict[str, float]]:
    """Events a second, in turns, each event as often as groups read it. The WAL of an event is that of publishing it,
    numbering it and passing it to all groups."""
    published = fill(using=using, events=events, together=together, size=size, groups=groups, say=say)
    rates: dict[str, list[float]] = {"consume": [], "raw reader": []}
    passed: list[float] = []
    for number in range(1, rounds + 1):
        say(f"round {number} of {rounds}: consume")
        declared = [
            Declaration(
                topic=TOPIC, group=f"bench-{uuid.uuid4()}", handler=_nothing, start="earliest", delivery=delivery
            )
            for _ in range(groups)
        ]
        for each in declared:
            register_subscription(each, using=using)
        before = wal_position(using)
        rates["consume"].append(_race([_consumer(using, each, batch) for each in declared] * consumers, using))
        passed.append((wal_position(using) - before) / events)
        say(f"round {number} of {rounds}: raw reader")
        with connections[using].cursor() as cursor:
            cursor.execute("UPDATE pubsub_bench.progress SET next_offset = 1")
        readers = [
            _raw_reader(using, group, n, consumers, batch) for group in range(1, groups + 1) for n in range(consumers)
        ]
        rates["raw reader"].append(_race(readers, using))
    wal = {"consume": published + statistics.median(passed), "raw reader": 0.0}
    pairs = list(zip(rates["consume"], rates["raw reader"], strict=True))
    return {
        name: {
            "events_per_s": statistics.median(measured),
            "wal_bytes_per_event": wal[name],
            "times": statistics.median(ours / (ours if name == "consume" else theirs) for ours, theirs in pairs),
        }
        for name, measured in rates.items()
    }


def _nothing(event: Any) -> None:
    """What is called for each event."""


def _consumer(using: str, declared: Declaration, batch: int) -> Runner:
    def drain(begin: Callable[[], None]) -> tuple[int, float]:
        connections[using].ensure_connection()
        worker = Worker([declared], using=using, batch_size=batch, drain=True)
        ends = [0.0]

        def note_end(**facts: Any) -> None:
            ends[0] = time.perf_counter()

        batch_handled.connect(note_end)
        begin()
        worker.run()
        return worker.passed, ends[0]

    return drain


def _raw_reader(using: str, group: int, number: int, of: int, batch: int) -> Runner:
    read = (
        "SELECT c_offset, event_id, type, key, payload::text, metadata::text, host_id, user_id, transaction_id, "
        "created_at FROM pubsub_bench.log WHERE partition_id = %s AND c_offset >= %s ORDER BY c_offset LIMIT %s"
    )
    progress = "UPDATE pubsub_bench.progress SET next_offset = %s WHERE group_id = %s AND partition_id = %s"

    def drain(begin: Callable[[], None]) -> tuple[int, float]:
        seen = 0
        with open_raw(using) as connection:
            connection.autocommit = True
            rows = connection.execute("SELECT DISTINCT partition_id FROM pubsub_bench.log ORDER BY 1").fetchall()
            mine = [(partition, 1) for (partition,) in rows if partition % of == number]
            begin()
            while mine:
                going_on = []
                for partition, offset in mine:
                    events = connection.execute(read, [partition, offset, batch]).fetchall()
                    for event in events:
                        json.loads(event[4])
                        _nothing(event)
                    if events:
                        seen += len(events)
                        connection.execute(progress, [events[-1][0] + 1, group, partition])
                        going_on.append((partition, events[-1][0] + 1))
                mine = going_on
        return seen, time.perf_counter()

    return drain


def _race(runners: list[Runner], using: str) -> float:
    """Events a second, from the moment when all stand ready until the last event is done."""
    connections.close_all()
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(len(runners) + 1)
    answers: Any = context.SimpleQueue()

    def run(runner: Runner) -> None:
        try:
            answers.put(runner(ready.wait))
        except BaseException as error:
            ready.abort()
            answers.put(f"{type(error).__name__}: {error}")
        finally:
            connections.close_all()

    processes = [context.Process(target=run, args=(runner,)) for runner in runners]
    for process in processes:
        process.start()
    ready.wait(60)
    begun = time.perf_counter()
    results = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    if failed := [answer for answer in results if isinstance(answer, str)]:
        raise RuntimeError(f"A consumer failed: {failed[0]}")
    return float(sum(events for events, _ in results) / (max(end for _, end in results) - begun))
