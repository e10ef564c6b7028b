"""Many workers, and everything that can happen to them, at once: killed, stopped, cut off, their database killed."""

import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from pubsub import Delivery, publish_many
from pubsub.models import DeadLetter, Lease
from tests.handlers import declare
from tests.processes import Process
from tests.server import crash, restart
from tests.sessions import connection_parameters, wait_until

from .helpers import claims, consumer, effects, fail_as, lag, note, number, publish_each, states

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
KEYS = 40
SECONDS = 45


def publish_load(rounds: range) -> list[list[int]]:
    made = []
    for n in rounds:
        with transaction.atomic():
            publish_many("wide", [{"payload": [key, n], "key": key} for key in range(KEYS)])
        made += [[key, n] for key in range(KEYS)]
    return made


@contextmanager
def workers(count: int, handler: str = "plain", **settings: Any) -> Iterator[Callable[[int], Process]]:
    """Keeps so many processes running. Called with a number, gives that one; a dead one is replaced first."""
    with ExitStack() as closing:

        def start() -> Process:
            return closing.enter_context(
                consumer(handler, "--wait-period-ms", 100, "--batch-size", 20, topic="wide", **settings)
            )

        running = [start() for _ in range(count)]

        def get(index: int) -> Process:
            if running[index].process.poll() is not None:
                running[index] = start()
            return running[index]

        yield get


def storm(
    do: Callable[[Process], None], *, count: int = 4, seconds: float = SECONDS, **settings: Any
) -> list[list[int]]:
    """Publishes and does harm for a while, then waits until all is handled. Returns what was published."""
    seed = random.randrange(2**31)
    print(f"seed: {seed}")
    chance = random.Random(seed)
    published: list[list[int]] = []
    with workers(count, **settings) as get:
        for index in range(count):
            get(index).wait_for("Consuming")
        ends = time.monotonic() + seconds
        n = 0
        while time.monotonic() < ends:
            published += publish_load(range(n, n + 3))
            n += 3
            wanted = len(published) - chance.randrange(4 * KEYS)
            wait_until(lambda wanted=wanted: count_of_outcomes() >= wanted, "they go on", 60)  # type: ignore[misc]
            do(get(chance.randrange(count)))
            get(chance.randrange(count))
        for index in range(count):
            get(index)
        number()
        wait_until(lambda: lag() == 0 and not claims() and not retrying(), "all is done", 90)
    return published


def count_of_outcomes() -> int:
    """What was handled, and what at-most-once has given up with a worker that was killed."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT (SELECT count(*) FROM effects) + (SELECT count(*) FROM dead_letter_queue)")
        return int(cursor.fetchone()[0])


def retrying() -> bool:
    return DeadLetter.objects.filter(state="retrying").exists()


def kill(process: Process) -> None:
    process.send(signal.SIGKILL)
    process.process.wait()


def check_order(done: list[Any], *, repeats: bool) -> None:
    """Per key strictly increasing; where repeats are allowed, leaving those out."""
    seen: dict[int, list[int]] = defaultdict(list)
    for key, n in done:
        if not repeats or n not in seen[key]:
            seen[key].append(n)
    for key, of_key in seen.items():
        assert of_key == sorted(set(of_key)), f"key {key}: {of_key}"


@pytest.mark.django_db(transaction=True)
def test_killed_at_random_transactional_effects_occur_exactly_once(wide: str, effects_table: None) -> None:
    published = storm(kill)
    done = effects()
    assert Counter(map(tuple, done)) == Counter(map(tuple, published))
    check_order(done, repeats=False)
    assert states() == []


@pytest.mark.django_db(transaction=True)
def test_killed_at_random_at_least_once_loses_nothing(wide: str, effects_table: None) -> None:
    published = storm(kill, delivery="at_least_once", lease_s=5)
    done = effects()
    assert set(map(tuple, done)) == set(map(tuple, published))
    check_order(done, repeats=True)
    assert len(done) < 2 * len(published)
    assert states() == []


@pytest.mark.django_db(transaction=True)
def test_killed_at_random_at_most_once_repeats_nothing_and_shows_the_rest(wide: str, effects_table: None) -> None:
    published = storm(kill, delivery="at_most_once", lease_s=5, seconds=20)
    done = Counter(map(tuple, effects()))
    assert set(done.values()) == {1}
    shown = {tuple(payload) for payload, _ in states()}
    assert set(done) | shown == set(map(tuple, published))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
def test_sessions_are_cut_off_at_every_stage(delivery: str, wide: str, effects_table: None) -> None:
    def cut(process: Process) -> None:
        with psycopg.connect(**connection_parameters(), autocommit=True) as operator:
            operator.execute(
                "SELECT pg_terminate_backend(pid) FROM ("
                " SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> ALL (%s)"
                " ORDER BY random() LIMIT 3) AS chosen",
                [[connection.connection.info.backend_pid, operator.info.backend_pid]],
            )

    published = storm(cut, delivery=delivery, lease_s=5, seconds=30)
    blamed = DeadLetter.objects.values_list("c_offset", "exception_class", "exception_message", "attempts")
    assert list(blamed) == [], "no event is blamed for it"
    done = effects()
    assert set(map(tuple, done)) == set(map(tuple, published))
    if delivery == "transactional":
        assert len(done) == len(published)
    check_order(done, repeats=delivery != "transactional")


@pytest.mark.django_db(transaction=True)
def test_stopped_for_longer_than_its_lease_then_continued(work: str, effects_table: None) -> None:
    publish_each(*range(5))
    settings = {"delivery": "at_least_once", "lease_s": 1}
    with consumer("slow", "--wait-period-ms", 50, **settings) as zombie:
        zombie.wait_for("begins 0")
        zombie.send(signal.SIGSTOP)
        # Its connections are as open as ever: only the clock tells.
        with consumer("plain", "--wait-period-ms", 50, **settings) as second:
            second.wait_for("handled 4")
            wait_until(lambda: lag() == 0 and not claims(), "the second has all")
            publish_each(5)
            second.wait_for("handled 5")
            zombie.go_on()
            zombie.send(signal.SIGCONT)
            zombie.wait_for("continues 0")
            zombie.send(signal.SIGTERM)
            zombie.wait_for("Stopped after 0 events")
            publish_each(6)
            second.wait_for("handled 6")
            wait_until(lambda: lag() == 0 and not claims(), "it is acknowledged")
    done = effects()
    assert Counter(done) == Counter([0, 0, 1, 2, 3, 4, 5, 6])
    assert (lag(), states(), Lease.objects.count()) == (0, [], 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mode", [Delivery.TRANSACTIONAL, Delivery.AT_LEAST_ONCE])
def test_eight_workers_eight_partitions_and_random_failures(mode: Delivery, wide: str, effects_table: None) -> None:
    from pubsub.worker.worker import Worker
    from tests.sessions import Running

    chance = random.Random(7)
    rounds = 60

    def handler(event: Any) -> None:
        if chance.random() < 0.02:
            raise ValueError("by chance")
        if chance.random() < 0.01:
            fail_as("40P01")
        note(event.payload)

    declaration = declare(handler, topic="wide", delivery=mode, retry=[0] * 30, on_failure="park_key")
    made = [Worker([declaration], using="default", batch_size=15, wait_period_ms=20, listen=False) for _ in range(8)]
    running = [Running(worker.run) for worker in made]
    try:
        published = publish_load(range(rounds))
        number()
        wait_until(lambda: lag() == 0 and not claims() and not retrying(), "all is done", 200)
    finally:
        for worker in made:
            worker.stop()
    for each in running:
        each.result()
    done = effects()
    assert set(map(tuple, done)) == set(map(tuple, published))
    if mode is Delivery.TRANSACTIONAL:
        assert len(done) == len(published)
    check_order(done, repeats=mode is not Delivery.TRANSACTIONAL)
    assert {state for _, state in states()} <= {"resolved"}


def test_postgresql_is_killed_under_load(server: Any) -> None:
    url = server.url()
    insert = (
        "INSERT INTO outbox_message_t (topic_id, key, payload)"
        " SELECT %s, mod(n, 10), to_jsonb(n) FROM generate_series(%s::bigint, %s) AS n"
    )
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY, payload text, worker text)")
        (topic,) = session.execute(
            "INSERT INTO outbox_topics (name, total_partitions) VALUES ('work', 4) RETURNING id"
        ).fetchone() or (0,)
    wanted = 0
    with (
        consumer("plain", "--wait-period-ms", 50, url=url) as one,
        consumer("plain", "--wait-period-ms", 50, url=url) as two,
    ):
        for process in (one, two):
            process.wait_for("Consuming", 60)
        for _ in range(3):
            with psycopg.connect(url, autocommit=True) as session:
                for _ in range(20):
                    session.execute(insert, [topic, wanted, wanted + 49])
                    wanted += 50
            one.wait_for("handled", 60)
            crash(server)
            assert restart(server) == url

        def done() -> int:
            with psycopg.connect(url, autocommit=True) as session:
                (count,) = session.execute("SELECT count(*) FROM effects").fetchone() or (0,)
                return int(count)

        wait_until(lambda: done() >= wanted, "all is handled", 120)
        assert one.process.poll() is None
        assert two.process.poll() is None
    with psycopg.connect(url, autocommit=True) as session:
        rows = session.execute("SELECT payload::bigint FROM effects ORDER BY id").fetchall()
        assert session.execute("SELECT count(*) FROM dead_letter_queue").fetchone() == (0,)
    handled = [n for (n,) in rows]
    assert sorted(handled) == list(range(wanted)), "each effect exactly once"
    for key in range(10):
        of_key = [n for n in handled if n % 10 == key]
        assert of_key == sorted(of_key)
