"""Several partitions at a time: order within each, none waits for another, nothing is left open."""

import threading
from collections import defaultdict
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, transaction

from pubsub import Delivery, Event, publish
from pubsub.errors import PubSubError
from pubsub.models import Topic
from pubsub.signals import batch_handled
from tests.consuming.helpers import consumer, lag, number, publish_each
from tests.handlers import Recorder, declare, drain
from tests.sessions import Running, wait_until

MODES = list(Delivery)
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("wide")]


def publish_keys(keys: int, each: int) -> None:
    for n in range(each):
        with transaction.atomic():
            for key in range(keys):
                publish("wide", n, key=key)


def sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("mode", MODES)
def test_in_order_per_partition_and_nothing_is_left_open(mode: Delivery) -> None:
    publish_keys(20, 6)
    before = sessions()
    seen: dict[Any, list[Any]] = defaultdict(list)
    names: set[str] = set()

    def handler(event: Event) -> None:
        seen[event.key].append(event.payload)
        names.add(threading.current_thread().name)

    drain(declare(handler, topic="wide", delivery=mode), threads=4, batch_size=5)
    assert len(seen) == 20
    assert set(map(tuple, seen.values())) == {tuple(range(6))}
    assert len(names) > 1
    assert lag() == 0
    wait_until(lambda: sessions() == before, "the threads' connections are closed")


def test_a_slow_handler_holds_up_no_other_partition() -> None:
    publish_keys(20, 2)
    go_on = threading.Event()
    done: set[int] = set()
    slow: list[int] = []

    def handler(event: Event) -> None:
        if event.key == "0":
            slow.append(event.partition)
            assert go_on.wait(30)
        done.add(event.partition)

    number()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT partition_id) FROM log_entry")
        (partitions,) = cursor.fetchone()
    assert partitions > 3
    running = Running(drain, declare(handler, topic="wide"), threads=2, batch_size=1)
    wait_until(lambda: slow and len(done - {slow[0]}) == partitions - 1, "all other partitions go on")
    go_on.set()
    running.result()
    assert lag() == 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("threads", [1, 2])
def test_what_ends_a_thread_ends_the_worker(threads: int) -> None:
    """Otherwise it would wait for that thread for ever."""

    def receive(**facts: Any) -> None:
        raise SystemExit(7)

    publish_keys(3, 1)
    batch_handled.connect(receive)
    try:
        with pytest.raises(SystemExit, match="7"):
            drain(declare(lambda event: None, topic="wide"), threads=threads)
    finally:
        batch_handled.disconnect(receive)


@pytest.mark.parametrize("threads", [1, 4])
def test_about_this_many_events(threads: int) -> None:
    for n in range(60):
        publish_each(n, topic="wide", key=n)
    handler = Recorder()
    worker = drain(declare(handler, topic="wide"), threads=threads, max_events=20, batch_size=5)
    assert 20 <= worker.passed <= (20 if threads == 1 else 40)
    assert len(handler.events) == worker.passed


@pytest.mark.parametrize("threads", [1, 3])
def test_a_setup_that_cannot_work_is_explained(threads: int) -> None:
    with pytest.raises(PubSubError, match="missing"):
        drain(declare(Recorder(), topic="missing"), threads=threads)


def test_an_error_that_is_not_an_events_fault_ends_draining(monkeypatch: pytest.MonkeyPatch) -> None:
    publish_each(1, topic="wide")

    def broken(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("pubsub.consuming.transactional.handle_batch", broken)
    for threads in (1, 3):
        with pytest.raises(RuntimeError, match="broken"):
            drain(declare(Recorder(), topic="wide"), threads=threads)


def test_a_worker_runs_once() -> None:
    worker = drain(declare(Recorder(), topic="wide"))
    with pytest.raises(PubSubError, match="make a new one"):
        worker.run()


def test_the_command_refuses_what_it_cannot_do() -> None:
    with pytest.raises(CommandError, match='No handler is declared for topic "nothing"'):
        call_command("run_consumer", topic=["nothing"])
    with pytest.raises(CommandError):
        call_command("run_consumer", "--threads", "0")


def test_the_first_signal_finishes_the_current_batch(effects_table: None) -> None:
    from tests.consuming.helpers import effects

    Topic.objects.create(name="work", total_partitions=1)
    publish_each(1, 2, 3)
    with consumer("slow", "--batch-size", 1) as process:
        process.wait_for("begins 1")
        process.send(15)
        process.wait_for("Finishing the current batch")
        process.go_on()
        process.wait_for("Stopped after 1 event, with 0 failures.")
        assert process.ends() == 0
    assert effects() == [1]
