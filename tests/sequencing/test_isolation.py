"""A database whose transactions are REPEATABLE READ or SERIALIZABLE unless they say otherwise."""

import threading
from collections.abc import Callable

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from pubsub import publish, publish_many
from pubsub.models import ConsumerOffset, Topic
from pubsub.sequencing.delayed import move_due_messages
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.declare import Declaration
from pubsub.worker.worker import Worker
from tests.log import checked_log, insert, names, number
from tests.sessions import Running, Session, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_publish_sequence_and_consume(strict_database: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        assert cursor.fetchone() == (strict_database,)
    seen: list[int] = []
    declared = Declaration(
        topic="default", group="strict", handler=lambda event: seen.append(event.payload["n"]), start="earliest"
    )
    with transaction.atomic():
        publish("default", {"n": 0}, key="k")
        publish("default", {"n": 1}, key="k", dedup_key="once")
        publish("default", {"n": 99}, key="k", dedup_key="once")
        publish_many("default", ({"payload": {"n": n}, "key": "k"} for n in range(2, 5)))
        publish("default", {"n": 5}, key="k", deliver_at=timezone.now())
    Worker([declared], using="default", drain=True).run()
    assert seen == [0, 1, 2, 3, 4, 5]
    with transaction.atomic():
        publish("default", {"n": 6}, key="k")
    assert sequence("default").outcome == "numbered"
    assert sequence("default").outcome == "idle"
    Worker([declared], using="default", drain=True).run()
    assert seen == [0, 1, 2, 3, 4, 5, 6]


def test_a_pass_sees_what_committed_after_an_earlier_one(
    strict_database: str, new_session: Callable[..., Session]
) -> None:
    """Two passes on one session, and one beside a transaction that began before everything."""
    sequencer, publisher, old = new_session(), new_session(), new_session()
    old.execute("BEGIN")
    insert(old, "old")
    for n in range(3):
        insert(publisher, n)
        assert number(sequencer).messages == 1
    old.execute("COMMIT")
    assert number(sequencer).messages == 1
    assert names(checked_log(sequencer)) == ["0", "1", "2", "old"]


def test_the_leader_stays_the_leader(strict_database: str, session: Session) -> None:
    """What it sends before a pass, in the same round trip, must not fix the transaction's snapshot."""
    handled = threading.Semaphore(0)
    declared = Declaration(topic="default", group="led", handler=lambda event: handled.release(), start="earliest")
    worker = Worker([declared], using="default", wait_period_ms=60_000)
    running = Running(worker.run)
    waits = (
        "SELECT FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND locktype = 'advisory' AND objid = 2 AND objsubid = 2 AND granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    try:
        for n in range(3):
            wait_until(lambda: session.execute(waits).fetchone() is not None, "the leader waits for a hint")
            with transaction.atomic():
                publish("default", {"n": n})
            assert handled.acquire(timeout=10)
        assert worker._leader
        assert worker._leader.leading
    finally:
        worker.stop()
        running.result(30)


def test_many_consumers_handle_each_event_once(strict_database: str) -> None:
    """Conflicts are tried again, and are no event's fault: nothing ends up among the dead letters."""
    Topic.objects.create(name="busy", total_partitions=4)
    lock = threading.Lock()
    seen: list[int] = []

    def handle(event: object) -> None:
        with lock:
            seen.append(event.payload["n"])  # type: ignore[attr-defined]

    declared = Declaration(topic="busy", group="strict", handler=handle, start="earliest")
    for n in range(60):
        with transaction.atomic():
            publish("busy", {"n": n}, key=n)

    def drain() -> None:
        while True:
            try:
                Worker([declared], using="default", batch_size=5, drain=True).run()
            except OperationalError:  # a conflict is an error here, instead of a wait
                continue
            return

    for each in [Running(drain) for _ in range(3)]:
        each.result(60)
    drain()
    assert set(seen) == set(range(60))
    assert sum(ConsumerOffset.objects.filter(group_id="strict").values_list("passed", flat=True)) == 60
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM dead_letter_queue")
        assert cursor.fetchone() == (0,)


def test_movers_of_delayed_messages(strict_database: str, session: Session) -> None:
    with transaction.atomic():
        for n in range(40):
            publish("default", {"n": n}, deliver_at=timezone.now())

    def move() -> int:
        moved = 0
        while True:
            try:
                step = move_due_messages("default", limit=3)
            except OperationalError:
                continue
            if not step:
                return moved
            moved += step

    movers = [Running(move) for _ in range(3)]
    assert sum(mover.result(30) for mover in movers) == 40
    assert number(session).messages == 40
    assert sorted(names(checked_log(session)), key=int) == [str(n) for n in range(40)]
