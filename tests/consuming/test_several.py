"""Several partitions of a group in one transaction, where each has little to do."""

from typing import Any

import pytest
from django.db import connection

from pubsub import Event
from pubsub.models import ConsumerOffset, DeadLetter, LogEntry
from pubsub.subscriptions.register import register_subscription
from tests.handlers import Recorder, declare, drain
from tests.sessions import Session, transaction_of

from .helpers import drop_effects_table, effects, lag, look_for_work, make_effects_table, note, number, publish_each

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("wide")]

KEYS = range(40)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a handler counts as quick."""
    monkeypatch.setattr("pubsub.worker.sessions.TOGETHER_S", 60)


def publish_everywhere(*payloads: Any) -> None:
    """One event for each key, in all eight partitions."""
    for key in KEYS:
        publish_each(*payloads or [key], topic="wide", key=key)


def transactions() -> list[int]:
    """In how many partitions each transaction has moved the cursor last."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM consumer_offsets WHERE passed > 0 GROUP BY xmin::text ORDER BY 1")
        return [count for (count,) in cursor.fetchall()]


def test_a_quick_handler_is_called_for_all_partitions_in_one_transaction() -> None:
    publish_everywhere()
    handler = Recorder()
    drain(declare(handler, topic="wide"))
    assert sorted(handler.payloads) == list(KEYS)
    assert transactions() == [1, 7], "how quick it is shows in the first one"
    assert lag() == 0


def test_a_transaction_is_no_larger_than_a_batch() -> None:
    publish_everywhere()
    inside: list[int] = []

    def handle(event: Event) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_xact_id()::text::bigint")
            inside.append(cursor.fetchone()[0])

    drain(declare(handle, topic="wide"), batch_size=10)
    assert max(inside.count(each) for each in inside) <= 12
    assert len(inside) == len(KEYS)


def test_a_slow_handler_has_a_partition_at_a_time_and_leaves_the_others_to_other_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pubsub.worker.sessions.TOGETHER_S", 1e-9)
    publish_everywhere()
    drain(declare(Recorder(), topic="wide"))
    assert transactions() == [1] * 8


def test_what_fails_is_set_aside_by_itself_and_the_others_are_done_once() -> None:
    publish_everywhere()
    make_effects_table()

    def handle(event: Event) -> None:
        note(event.payload)
        if event.payload == 23:
            raise ValueError("bad")

    try:
        worker = drain(declare(handle, topic="wide", retry=[3600]))
        assert sorted(effects()) == [key for key in KEYS if key != 23]
    finally:
        drop_effects_table()
    assert [letter.payload for letter in DeadLetter.objects.all()] == [23]
    assert (worker.passed, worker.failed, lag()) == (40, 1, 0)


def test_a_failure_looks_like_no_death_in_the_partitions_that_shared_its_transaction() -> None:
    declaration = declare(handler := Recorder(lambda event: event.payload == 23), topic="wide")
    publish_everywhere()
    seen: list[Any] = []

    def handle(event: Event) -> None:
        if event.payload == 23 and handler.payloads.count(23):
            seen.extend(work.task.partition_id for work in look_for_work(declaration) if work.crashed)
        handler(event)

    drain(declare(handle, topic="wide"))
    assert handler.payloads.count(23) == 3, "with others, with its partition, by itself"
    (letter,) = DeadLetter.objects.all()
    assert set(seen) <= {letter.partition_id}


def test_a_partition_that_another_worker_has_is_left_to_it(session: Session) -> None:
    declaration = declare(handler := Recorder(), topic="wide")
    register_subscription(declaration, using="default")
    publish_everywhere()
    number()
    with transaction_of(session):
        session.execute("SELECT FROM consumer_offsets WHERE partition_id = 3 FOR UPDATE")
        drain(declaration, max_events=LogEntry.objects.exclude(partition_id=3).count())
        assert {event.partition for event in handler.events} == {0, 1, 2, 4, 5, 6, 7}
    drain(declaration)
    assert sorted(handler.payloads) == list(KEYS)
    assert {cursor.partition_id for cursor in ConsumerOffset.objects.filter(passed__gt=0)} == set(range(8))
