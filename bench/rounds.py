"""Running contestants in turns, by several client processes each, and comparing medians."""

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connections

Unit = Callable[[], int]
"""Does one unit of work, in a client process that has made its connections. Returns how many events that was."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    name: str
    prepare: Callable[[], Unit]
    """Called once in each client process."""
    beside: Callable[[Any], None] | None = None
    """Run in a process of its own meanwhile, until the event that it is given is set."""


@dataclass(frozen=True, kw_only=True)
class Round:
    events: int
    seconds: float
    cpu_seconds: float
    wal_bytes: int
    latencies_ms: list[float]

    @property
    def rate(self) -> float:
        return self.events / self.seconds


def compete(
    contestants: list[Contestant], *, using: str, clients: int, seconds: float, rounds: int, say: Callable[[str], None]
) -> dict[str, list[Round]]:
    """Each contestant once a round, so that a noisy moment hits all of them."""
    results: dict[str, list[Round]] = {contestant.name: [] for contestant in contestants}
    for number in range(1, rounds + 1):
        for contestant in contestants:
            say(f"round {number} of {rounds}: {contestant.name}")
            results[contestant.name].append(_run(contestant, using, clients, seconds))
    return results


def summary(results: Mapping[str, list[Round]], reference: str) -> dict[str, dict[str, float]]:
    """Medians over the rounds; `reference` is the contestant that is compared with each of the others."""
    table: dict[str, dict[str, float]] = {}
    for name, rounds in results.items():
        latencies = sorted(latency for one in rounds for latency in one.latencies_ms) or [0.0]
        table[name] = {
            "events_per_s": statistics.median(one.rate for one in rounds),
            "p50_ms": latencies[len(latencies) // 2],
            "p99_ms": latencies[int(len(latencies) * 0.99)],
            "cpu_us_per_event": statistics.median(1e6 * one.cpu_seconds / max(one.events, 1) for one in rounds),
            "wal_bytes_per_event": statistics.median(one.wal_bytes / max(one.events, 1) for one in rounds),
            # Pairs of one round are neighbours in time: their ratio holds still where the rates do not.
            "times": statistics.median(
                ours.rate / max(theirs.rate, 1e-9) for ours, theirs in zip(results[reference], rounds, strict=True)
            ),
        }
    return table


def _run(contestant: Contestant, using: str, clients: int, seconds: float) -> Round:
    # Forked, so that a client costs no start-up; no connection may be open across it.
    connections.close_all()
    context = multiprocessing.get_context("fork")
    ready, go, over = context.Barrier(clients + 1), context.Event(), context.Event()
    answers: Any = context.SimpleQueue()
    beside = context.Process(target=contestant.beside, args=(over,)) if contestant.beside else None
    workers = [
        context.Process(target=_client, args=(contestant.prepare, ready, go, seconds, answers)) for _ in range(clients)
    ]
    for process in [*workers, *([beside] if beside else [])]:
        process.start()
    ready.wait(timeout=60)
    before = wal_position(using)
    go.set()
    results = [answers.get() for _ in workers]
    for process in workers:
        process.join()
    wal = wal_position(using) - before
    over.set()
    if beside:
        beside.join()
    connections.close_all()
    if failed := [answer for answer in results if isinstance(answer, str)]:
        raise RuntimeError(f"A client of {contestant.name} failed: {failed[0]}")
    return Round(
        events=sum(events for events, _, _, _ in results),
        seconds=max(elapsed for _, elapsed, _, _ in results),
        cpu_seconds=sum(cpu for _, _, cpu, _ in results),
        wal_bytes=wal,
        latencies_ms=[latency for _, _, _, latencies in results for latency in latencies],
    )


def _client(prepare: Callable[[], Unit], ready: Any, go: Any, seconds: float, answers: Any) -> None:
    try:
        unit = prepare()
        unit()  # connections, prepared statements, caches
        ready.wait(timeout=60)
        go.wait()
        events = 0
        latencies = []
        cpu = time.process_time()
        begin = now = time.perf_counter()
        while now - begin < seconds:
            events += unit()
            before, now = now, time.perf_counter()
            latencies.append(1000 * (now - before))
        answers.put((events, now - begin, time.process_time() - cpu, latencies))
    except BaseException as error:
        ready.abort()
        answers.put(f"{type(error).__name__}: {error}")
    finally:
        connections.close_all()


def wal_position(using: str) -> int:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
        (position,) = cursor.fetchone()
    return int(position)
