"""From a commit to a process that is notified of it, beside the shortest way there is: a bare NOTIFY."""

import multiprocessing
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from pubsub import publish
from pubsub.db.connections import dedicated_connection
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from pubsub.worker.worker import Worker

from .publish import TOPIC, open_raw, running_leader

PERIOD_S = 0.01
"""Between two events that are published for a handler."""

WARM_UP = 20
"""Events before the first that counts: a consumer that has just started does maintenance, and opens its connections."""

SETTLE_S = 0.02
"""Between two measurements, so that each finds all processes waiting."""


def compare(
    *, using: str, count: int, rounds: int, say: Callable[[str], None], to_handler: bool = False
) -> dict[str, dict[str, float]]:
    """Latencies in milliseconds, in turns; `times` is our median divided by the contestant's.

    Ours ends where another process is notified that the log has grown or, with `to_handler`, where a handler is called.
    """
    name_of_ours, measure_ours = ("latency", _handled) if to_handler else ("wake", _published)
    contestants = {name_of_ours: measure_ours, "bare notify": _notified, "there and back": _answered}
    measured: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(1, rounds + 1):
        for name, measure in contestants.items():
            say(f"round {number} of {rounds}: {name}")
            measured[name] += measure(using, count)
    ours = statistics.median(measured[name_of_ours])
    return {
        name: {
            "p50_ms": statistics.median(latencies),
            "p99_ms": sorted(latencies)[int(len(latencies) * 0.99)],
            "times": ours / statistics.median(latencies),
        }
        for name, latencies in measured.items()
    }


def _published(using: str, count: int) -> list[float]:
    """One process sequences, another waits to be notified, this one publishes. The clock starts after the commit."""
    connections.close_all()
    context = multiprocessing.get_context("fork")
    over, leading, waiting = context.Event(), context.Event(), context.Event()
    ours, theirs = context.Pipe(duplex=False)
    leader = context.Process(target=_lead, args=(using, over, leading))
    leader.start()
    leading.wait(10)
    follower = context.Process(target=_follow, args=(using, over, waiting, theirs))
    follower.start()
    waiting.wait(10)
    latencies = []
    committed = []
    try:
        for _ in range(count):
            with transaction.atomic(using=using):
                # Registered first, so called first: before the hint.
                transaction.on_commit(lambda: committed.append(time.perf_counter()), using=using)
                publish(TOPIC, {"n": 1}, key="1", using=using)
            latencies.append(1000 * (ours.recv() - committed[-1]))
            time.sleep(SETTLE_S)
    finally:
        over.set()
        for process in (leader, follower):
            process.join()
        connections.close_all()
    return latencies


def _handled(using: str, count: int) -> list[float]:
    """A consumer waits, this process publishes a hundred events a second. The clock starts after the commit."""
    committed: list[float] = []
    with _waiting(_consume, using) as notified:
        for _ in range(WARM_UP + count):
            with transaction.atomic(using=using):
                transaction.on_commit(lambda: committed.append(time.perf_counter()), using=using)
                publish(TOPIC, {"n": 1}, key="1", using=using)
            time.sleep(max(0.0, committed[-1] + PERIOD_S - time.perf_counter()))
        return [1000 * (notified.recv() - begun) for begun in committed][WARM_UP:]


def _consume(using: str, over: Any, waiting: Any, pipe: Any) -> None:
    def handle(event: Any) -> None:
        pipe.send(time.perf_counter())

    declared = Declaration(topic=TOPIC, group=f"bench-{uuid.uuid4().hex[:8]}", handler=handle)
    worker = Worker([declared], using=using)
    register_subscription(declared, using=using)

    def watch() -> None:
        worker.wait_until_listening(10)
        waiting.set()
        over.wait()
        worker.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()
    worker.run()
    watcher.join()
    connections.close_all()


def _lead(using: str, over: Any, leading: Any) -> None:
    with running_leader(using) as leader:
        while not leader.leading:
            time.sleep(0.001)
        leading.set()
        over.wait()


def _follow(using: str, over: Any, waiting: Any, pipe: Any) -> None:
    with running_leader(using) as leader:
        while not leader.connected:
            time.sleep(0.001)
        waiting.set()
        while not over.is_set():
            if leader.news.wait(0.1):
                now = time.perf_counter()
                leader.news.take()
                pipe.send(now)


def _notified(using: str, count: int) -> list[float]:
    latencies = []
    with _waiting(_listen, using) as notified, open_raw(using) as connection:
        for _ in range(count):
            begun = time.perf_counter()
            connection.execute("NOTIFY pubsub_bench")
            latencies.append(1000 * (notified.recv() - begun))
            time.sleep(SETTLE_S)
    return latencies


def _answered(using: str, count: int) -> list[float]:
    """A round trip: another process is notified and answers in the same way."""
    latencies = []
    with _waiting(_answer, using), open_raw(using) as connection, dedicated_connection(using) as listening:
        listening.execute("LISTEN pubsub_bench_back")
        for _ in range(count):
            begun = time.perf_counter()
            connection.execute("NOTIFY pubsub_bench")
            for _back in listening.notifies(timeout=10, stop_after=1):
                latencies.append(1000 * (time.perf_counter() - begun))
            time.sleep(SETTLE_S)
    return latencies


@contextmanager
def _waiting(target: Callable[..., None], using: str) -> Iterator[Any]:
    """Another process that waits, and sends through this pipe when it was notified."""
    connections.close_all()
    context = multiprocessing.get_context("fork")
    over, waiting = context.Event(), context.Event()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(using, over, waiting, theirs))
    process.start()
    waiting.wait(10)
    try:
        yield ours
    finally:
        over.set()
        process.join()
        connections.close_all()


def _listen(using: str, over: Any, waiting: Any, pipe: Any) -> None:
    with dedicated_connection(using) as connection:
        connection.execute("LISTEN pubsub_bench")
        waiting.set()
        while not over.is_set():
            for _ in connection.notifies(timeout=0.1, stop_after=1):
                pipe.send(time.perf_counter())


def _answer(using: str, over: Any, waiting: Any, pipe: Any) -> None:
    with dedicated_connection(using) as connection:
        connection.execute("LISTEN pubsub_bench")
        waiting.set()
        while not over.is_set():
            if list(connection.notifies(timeout=0.1, stop_after=1)):
                connection.execute("NOTIFY pubsub_bench_back")
