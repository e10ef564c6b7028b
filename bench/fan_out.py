"""Writers and several groups of readers at the same time, beside the reference loop.

There, writers lock a counter until they commit, a trigger notifies, and a reader takes the next range of its group by
updating a row that stays locked until it has handled it.
"""

import json
import multiprocessing
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import connections, transaction

from pubsub.db.connections import dedicated_connection
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from pubsub.worker.worker import Worker

from .publish import TOPIC, contestants

LONGEST_WAIT_S = 120
"""For what is left when the writers have stopped."""

_LOCK = "SELECT next_offset FROM pubsub_bench.cursors WHERE group_id = %s FOR UPDATE"
_RESERVE = (
    "UPDATE pubsub_bench.cursors SET next_offset = least(cursors.next_offset + %s, counter.next_offset) "
    "FROM pubsub_bench.log_counter AS counter WHERE group_id = %s RETURNING cursors.next_offset"
)
_READ = "SELECT payload::text FROM pubsub_bench.outbox WHERE c_offset >= %s AND c_offset < %s ORDER BY c_offset"

Counter = Any
"""Of one process, in shared memory."""


@dataclass(frozen=True, kw_only=True)
class Side:
    name: str
    writer: str
    """Which of the publishing contestants writes."""
    readers: Callable[[], list[Callable[[Counter, Any], None]]]
    """Makes the groups, and gives what each reading process does until the event is set."""


def compare(
    *,
    using: str,
    writers: int,
    together: int,
    groups: int,
    consumers: int,
    batch: int,
    size: int,
    seconds: float,
    rounds: int,
    say: Callable[[str], None],
) -> dict[str, dict[str, float]]:
    """Rates of writing and of reading, in turns, while both go on. Raises if anything was lost, or read twice."""
    ours = Side(name="fanout", writer="publish", readers=lambda: _our_readers(using, groups, consumers, batch))
    theirs = Side(
        name="reference loop", writer="locked counter", readers=lambda: _their_readers(using, groups, consumers, batch)
    )
    measured: dict[str, list[dict[str, float]]] = {ours.name: [], theirs.name: []}
    for number in range(1, rounds + 1):
        for side in (ours, theirs):
            say(f"round {number} of {rounds}: {side.name}")
            (unit,) = (
                contestant.prepare
                for contestant in contestants(using=using, batch=together, size=size, work_ms=0)
                if contestant.name == side.writer
            )
            measured[side.name].append(_run(side, unit, using, writers, groups, seconds))
    table = {
        name: {figure: statistics.median(each[figure] for each in turns) for figure in turns[0]}
        for name, turns in measured.items()
    }
    for name, row in table.items():
        row["times"] = min(
            statistics.median(
                mine[figure] / max(other[figure], 1e-9)
                for mine, other in zip(measured[ours.name], measured[name], strict=True)
            )
            for figure in ("written_per_s", "read_per_s")
        )
    return table


def _run(
    side: Side, prepare: Callable[[], Callable[[], int]], using: str, writers: int, groups: int, seconds: float
) -> dict[str, float]:
    context = multiprocessing.get_context("fork")
    full, over = context.Event(), context.Event()
    readers = side.readers()
    connections.close_all()
    ready = context.Barrier(writers + 1)
    written = [context.Value("q", 0, lock=False) for _ in range(writers)]
    read = [context.Value("q", 0, lock=False) for _ in readers]

    def write(counter: Counter) -> None:
        unit = prepare()
        counter.value += unit()
        ready.wait(60)
        while not full.is_set():
            counter.value += unit()
        connections.close_all()

    processes = [
        context.Process(target=reader, args=(counter, over)) for reader, counter in zip(readers, read, strict=True)
    ]
    processes += [context.Process(target=write, args=(counter,)) for counter in written]
    for process in processes:
        process.start()
    ready.wait(60)

    def done() -> tuple[int, int]:
        return sum(counter.value for counter in written), sum(counter.value for counter in read)

    begun = time.perf_counter()
    written_before, read_before = done()
    most_behind = 0
    while (elapsed := time.perf_counter() - begun) < seconds:
        time.sleep(min(0.1, seconds - elapsed))
        most_behind = max(most_behind, done()[0] - done()[1] // groups)
    written_then, read_then = done()
    full.set()
    for process in processes[len(readers) :]:
        process.join()
    until = time.perf_counter() + LONGEST_WAIT_S
    while done()[1] < groups * done()[0] and time.perf_counter() < until:
        time.sleep(0.05)
    time.sleep(0.2)  # in which nothing may be read twice
    over.set()
    for process in processes:
        process.join()
    if done()[1] != groups * done()[0]:
        raise RuntimeError(f"{side.name}: {done()[0]} events were written, and {done()[1]} read by {groups} groups.")
    return {
        "written_per_s": (written_then - written_before) / elapsed,
        "read_per_s": (read_then - read_before) / elapsed,
        "most_behind": float(most_behind),
    }


def _our_readers(using: str, groups: int, consumers: int, batch: int) -> list[Callable[[Counter, Any], None]]:
    names = [f"bench-{uuid.uuid4()}" for _ in range(groups)]

    def declare(name: str, counter: Counter) -> Declaration:
        def handle(event: Any) -> None:
            counter.value += 1

        return Declaration(topic=TOPIC, group=name, handler=handle)

    def reader(name: str) -> Callable[[Counter, Any], None]:
        def read(counter: Counter, over: Any) -> None:
            worker = Worker([declare(name, counter)], using=using, batch_size=batch)

            def stop() -> None:
                over.wait()
                worker.stop()

            threading.Thread(target=stop).start()
            worker.run()
            connections.close_all()

        return read

    for name in names:
        register_subscription(declare(name, None), using=using)
    return [reader(name) for name in names for _ in range(consumers)]


def _their_readers(using: str, groups: int, consumers: int, batch: int) -> list[Callable[[Counter, Any], None]]:
    def reader(group: int) -> Callable[[Counter, Any], None]:
        def read(counter: Counter, over: Any) -> None:
            def handle(event: Any) -> None:
                counter.value += 1

            with dedicated_connection(using) as listening:
                listening.execute("LISTEN pubsub_bench")
                while not over.is_set():
                    with transaction.atomic(using=using), connections[using].cursor() as cursor:
                        cursor.execute(_LOCK, [group])
                        (first,) = cursor.fetchone()
                        cursor.execute(_RESERVE, [batch, group])
                        (end,) = cursor.fetchone()
                        cursor.execute(_READ, [first, end])
                        for (payload,) in cursor.fetchall():
                            handle(json.loads(payload))
                    if first == end:
                        for _ in listening.notifies(timeout=0.1, stop_after=1):
                            pass
            connections.close_all()

        return read

    with connections[using].cursor() as cursor:
        cursor.execute("DELETE FROM pubsub_bench.cursors")
        cursor.execute(
            "INSERT INTO pubsub_bench.cursors SELECT group_id, next_offset "
            "FROM pubsub_bench.log_counter, generate_series(1, %s) AS group_id",
            [groups],
        )
    return [reader(group) for group in range(1, groups + 1) for _ in range(consumers)]
