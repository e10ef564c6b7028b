"""From a commit to a process that is told of it, beside the shortest way there is: a bare NOTIFY."""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

from django.db import connections, transaction

from pubsub import publish
from pubsub.wakeup import dedicated_connection

from .publishing import TOPIC, open_raw, running_coordinator

SETTLE_S = 0.02
"""Between two measurements, so that each finds everybody waiting."""


def compare(*, using: str, count: int, rounds: int, say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Latencies in milliseconds, in turns; `times` says how many times this one `publish` takes, by the medians."""
    measured: dict[str, list[float]] = {"publish": [], "bare notify": []}
    for number in range(1, rounds + 1):
        for name, measure in (("publish", _published), ("bare notify", _notified)):
            say(f"round {number} of {rounds}: {name}")
            measured[name] += measure(using, count)
    ours = statistics.median(measured["publish"])
    return {
        name: {
            "p50_ms": statistics.median(latencies),
            "p99_ms": sorted(latencies)[int(len(latencies) * 0.99)],
            "times": ours / statistics.median(latencies),
        }
        for name, latencies in measured.items()
    }


def _published(using: str, count: int) -> list[float]:
    """One process numbers, another waits to be told, this one publishes. The clock starts after the commit."""
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


def _lead(using: str, over: Any, leading: Any) -> None:
    with running_coordinator(using) as coordinator:
        while not coordinator.leading:
            time.sleep(0.001)
        leading.set()
        over.wait()


def _follow(using: str, over: Any, waiting: Any, pipe: Any) -> None:
    with running_coordinator(using) as coordinator:
        while not coordinator.connected:
            time.sleep(0.001)
        waiting.set()
        while not over.is_set():
            if coordinator.moved.wait(0.1):
                now = time.perf_counter()
                coordinator.moved.clear()
                pipe.send(now)


def _notified(using: str, count: int) -> list[float]:
    connections.close_all()
    context = multiprocessing.get_context("fork")
    over, waiting = context.Event(), context.Event()
    ours, theirs = context.Pipe(duplex=False)
    listener = context.Process(target=_listen, args=(using, over, waiting, theirs))
    listener.start()
    waiting.wait(10)
    latencies = []
    try:
        with open_raw(using) as connection:
            for _ in range(count):
                begun = time.perf_counter()
                connection.execute("NOTIFY pubsub_bench")
                latencies.append(1000 * (ours.recv() - begun))
                time.sleep(SETTLE_S)
    finally:
        over.set()
        listener.join()
    return latencies


def _listen(using: str, over: Any, waiting: Any, pipe: Any) -> None:
    with dedicated_connection(using) as connection:
        connection.execute("LISTEN pubsub_bench")
        waiting.set()
        while not over.is_set():
            for _ in connection.notifies(timeout=0.1, stop_after=1):
                pipe.send(time.perf_counter())
