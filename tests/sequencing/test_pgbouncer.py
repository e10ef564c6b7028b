"""Through a transaction pooler, where no session lasts longer than a transaction, polling alone has to do."""

import datetime as dt
import logging
import threading
from queue import Queue

import pytest
from django.db import connections, transaction
from django.test import override_settings
from django.utils import timezone

from pubsub import publish, publish_many
from pubsub.db.connections import can_listen, dedicated_connection
from pubsub.events import Event
from pubsub.retention.partitions import make_partitions_ahead
from pubsub.sequencing.delayed import move_due_messages
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.declare import Declaration
from pubsub.worker.leader import Leader
from pubsub.worker.worker import Worker
from tests.log import checked_log, names, unnumbered
from tests.sessions import Running, Session, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("through_pooler")]


def test_the_pooler_is_noticed(caplog: pytest.LogCaptureFixture, session: Session) -> None:
    assert can_listen(session)
    with dedicated_connection("default") as through:
        assert not can_listen(through)
    leader = Leader("default", wait_period_s=60)
    with caplog.at_level(logging.WARNING, "pubsub"):
        leader.start()
        wait_until(lambda: not leader.is_running, "it gives up where it cannot listen")
    assert not leader.connected
    assert "pooler" in caplog.text


def test_publish_sequence_and_consume(session: Session) -> None:
    handled: Queue[str] = Queue()

    def handle(event: Event) -> None:
        handled.put(event.payload["n"])

    worker = Worker(
        [Declaration(topic="default", group="pooled", handler=handle, start="earliest")],
        using="default",
        wait_period_ms=50,
    )
    running = Running(worker.run)
    try:
        with transaction.atomic():
            publish("default", {"n": "one"}, key="k")
            publish("default", {"n": "two"}, key="k", dedup_key="d")
            publish_many("default", [{"payload": {"n": "three"}, "key": "k"}])
            publish("default", {"n": "four"}, key="k", deliver_at=timezone.now())
        assert [handled.get(timeout=15) for _ in range(4)] == ["one", "two", "three", "four"]
        for n in range(20):
            with transaction.atomic():
                publish("default", {"n": f"{n}"}, key="k")
        assert [handled.get(timeout=15) for _ in range(20)] == [f"{n}" for n in range(20)]
    finally:
        worker.stop()
        running.result(30)
    assert len(checked_log(session, together=False)) == 24
    assert handled.empty()


def test_many_publish_and_many_number(session: Session) -> None:
    enough = threading.Event()

    def publish_some(writer: int) -> None:
        for n in range(20):
            with transaction.atomic():
                assert not can_listen(connections["default"].connection), "past the pooler"
                for part in range(3):
                    publish("default", {"n": f"{writer}/{n}/{part}"})

    def number_on_and_on() -> None:
        while not enough.is_set():
            sequence("default")

    sequencers = [Running(number_on_and_on) for _ in range(2)]
    try:
        for each in [Running(publish_some, writer) for writer in range(4)]:
            each.result(60)
    finally:
        enough.set()
    for each in sequencers:
        each.result(30)
    sequence("default")
    assert unnumbered(session) == 0
    assert sorted(names(checked_log(session))) == sorted(
        f"{writer}/{n}/{part}" for writer in range(4) for n in range(20) for part in range(3)
    )


def test_no_session_setting_or_lock_stays_behind(session: Session) -> None:
    """The next transaction on a server's connection is another client's."""
    with transaction.atomic():
        publish("default", {"n": 1})
        publish("default", {"n": 2}, deliver_at=timezone.now() - dt.timedelta(seconds=1))
    move_due_messages("default")
    sequence("default")
    with override_settings(PUBSUB={"segment_rows": 1_500_000}):
        make_partitions_ahead("default")
    with connections["default"].cursor() as cursor:
        for name, plain in (
            ("lock_timeout", "0"),
            ("synchronous_commit", "on"),
            ("jit", None),
            ("enable_seqscan", "on"),
        ):
            cursor.execute(f"SELECT setting, reset_val FROM pg_settings WHERE name = '{name}'")
            setting, by_default = cursor.fetchone()
            assert setting == by_default == (plain or by_default)
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert cursor.fetchone() == (0,)
    left = (
        "SELECT FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND locktype = 'advisory' AND classid = x'70756273'::integer"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    assert session.execute(left).fetchone() is None
