"""What is in hand is known: which worker has which event, and since when. That is said, and who waits is not blamed."""

import io
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from pubsub.consuming.running import of_this_thread
from pubsub.delivery import Delivery
from pubsub.models import ConsumerOffset, WorkerProcess
from pubsub.monitoring.calls import calls_in_hand
from pubsub.monitoring.facts import CallInHand
from pubsub.monitoring.problems import Problem, find_problems
from pubsub.monitoring.status import status
from pubsub.monitoring.workers import read_workers
from pubsub.worker.membership import forget_members
from tests.consuming.helpers import consume, number, publish_each, publish_together, task_of
from tests.factories import MemberFactory, SubscriptionFactory
from tests.handlers import declare
from tests.processes import SET_UP, Process, child
from tests.retention.helpers import sql
from tests.sessions import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

# One group hangs in an event, and others of the same process would have something to do.
WORKER = (
    SET_UP
    + """
import json, time
from django.db import connection
from pubsub.subscriptions.declare import Declaration
from pubsub.worker.worker import Worker
settings = json.loads(sys.argv[1])
def hang(events):
    print("begins", flush=True)
    if settings.get("sleeps_in") == "sql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(600)")
    while True:
        time.sleep(0.01)
def handle(event):
    print("handled", event.payload, flush=True)
declared = [Declaration(topic="work", group="emails", handler=hang, start="earliest",
                        delivery=settings.get("delivery", "transactional"), batch=settings.get("batch", False))]
declared += [Declaration(topic="work", group=name, handler=handle, start="earliest")
             for name in settings.get("others", [])]
worker = Worker(declared, using="default", wait_period_ms=50, worker_id="w1", threads=settings.get("threads", 1))
import signal
signal.signal(signal.SIGTERM, lambda *_: worker.stop())
print("ready", flush=True)
worker.run()
print("left", flush=True)
"""
)


@contextmanager
def hanging(**settings: Any) -> Iterator[Process]:
    try:
        with child(WORKER, json.dumps(settings)) as process:
            process.wait_for("begins")
            wait_until(lambda: bool(in_hand()), "the call is known")
            yield process
    finally:
        # The server does not notice that its client was killed while it sleeps.
        sql("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%%'")


def in_hand() -> list[CallInHand]:
    return list(status_of("emails").calls)


def status_of(group: str) -> Any:
    return next(it for it in status("default").groups if it.group == group)


def problems() -> list[Problem]:
    return [it for it in find_problems(status("default")) if it.severity == "stuck"]


def time_passes(seconds: float) -> None:
    """All that waits does so for so much longer, and so does what is in hand."""
    sql("UPDATE outbox_message_t SET created_at = created_at - make_interval(secs => %s)", seconds)
    sql(
        "UPDATE consumer_offsets SET updated_at = updated_at - make_interval(secs => %s) WHERE group_id <> 'emails'",
        seconds,
    )
    sql(
        "UPDATE outbox_workers SET in_hand = jsonb_set(in_hand, '{0,since}',"
        " to_jsonb((in_hand #>> '{0,since}')::timestamptz - make_interval(secs => %s)))"
        " WHERE in_hand <> '[]'",
        seconds,
    )


def listed(*options: str) -> str:
    out = io.StringIO()
    call_command("pubsub_workers", *options, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("batch", [False, True])
def test_what_hangs_is_known_in_every_delivery_mode(work: str, delivery: Delivery, batch: bool) -> None:
    publish_together("a", "b")
    number()
    with hanging(delivery=delivery.value, batch=batch, sleeps_in="sql") as process:
        (call,) = in_hand()
        assert (call.worker_id, call.pid, call.group, call.topic, call.partition) == (
            "w1",
            process.process.pid,
            "emails",
            "work",
            0,
        )
        assert (call.offset, call.events, call.handler) == (1, 2 if batch else 1, "__main__.hang")
        assert 1 <= call.seconds < 30
        with connection.cursor() as cursor:
            cursor.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", [call.session_pid])
            assert cursor.fetchone() == ("SELECT pg_sleep(600)",)


def test_the_call_that_hangs_is_blamed_and_not_those_who_wait_for_it(work: str) -> None:
    publish_each("a")
    number()
    with hanging(others=["billing", "search"]):
        publish_each("b")
        number()
        assert problems() == []
        time_passes(120)
        (problem,) = problems()
        assert (problem.code, problem.group, problem.offset, problem.worker) == ("hanging", "emails", 1, "w1")
        (call,) = in_hand()
        assert problem.text == (
            f"emails (work) has been handling offset 1 for 2 min in worker w1 (session {call.session_pid}); "
            f"2 other groups wait for it."
        )


def test_a_group_that_another_worker_serves_too_does_not_wait(work: str) -> None:
    publish_each("a")
    number()
    with hanging(others=["billing"]), child(WORKER.replace('"w1"', '"w2"'), json.dumps({"others": ["billing"]})):
        wait_until(lambda: WorkerProcess.objects.count() == 2, "both have shown themselves")
        time_passes(120)
        assert status_of("billing").waits_for == ()


def test_a_worker_with_a_thread_free_keeps_no_group_waiting(work: str) -> None:
    publish_each("a")
    number()
    with hanging(others=["billing"], threads=2) as process:
        publish_each("b")
        process.wait_for("handled b")
        time_passes(120)
        assert (in_hand()[0].hangs, status_of("billing").waits_for) == (True, ())
        (problem,) = problems()
        assert problem.text.endswith(f"in worker w1 (session {in_hand()[0].session_pid}).")


def test_nothing_outlives_a_worker_that_was_killed(work: str) -> None:
    publish_each("a")
    number()
    with hanging() as process:
        process.kill()
        wait_until(lambda: not in_hand(), "the server has noticed")
        (worker,) = read_workers("default")
        assert (worker.worker_id, worker.state, worker.calls) == ("w1", "silent", ())
    sql("DELETE FROM outbox_members")
    sql("UPDATE outbox_workers SET started_at = started_at - interval '2 days'")
    forget_members("default")
    assert read_workers("default") == []


def test_a_worker_that_does_not_show_that_it_is_connected_lives_by_its_heartbeats(work: str) -> None:
    subscription = SubscriptionFactory()
    member = MemberFactory(topic=subscription.topic, group_id=subscription.group_id)
    call = {"group": member.group_id, "topic": "work", "partition": 0, "offset": 1, "since": "2030-01-01T00:00:00Z"}
    WorkerProcess.objects.create(worker_id=member.worker_id, host="h", pid=1, threads=1, in_hand=[call])
    assert len(calls_in_hand("default")) == 1
    sql("UPDATE outbox_members SET last_heartbeat_at = last_heartbeat_at - interval '1 hour'")
    assert calls_in_hand("default") == ()


def test_a_worker_that_stops_in_good_order_leaves_no_row(work: str) -> None:
    with child(WORKER, json.dumps({})) as process:
        wait_until(lambda: WorkerProcess.objects.exists(), "it has shown itself")
        process.send(signal.SIGTERM)
        process.wait_for("left")
    assert not WorkerProcess.objects.exists()


def test_the_workers_are_listed_with_what_they_have_in_hand(work: str) -> None:
    publish_each("a")
    number()
    assert listed() == "No worker is running.\n"
    with hanging(others=["billing"]) as process:
        (line,) = listed("list").splitlines()[1:]
        assert line.split()[:2] == ["w1", "alive"]
        assert "billing, emails" in line
        assert "emails on work/0, offset 1" in line
        (worker,) = json.loads(listed("--format", "json"))
        assert (worker["worker_id"], worker["pid"], worker["state"]) == ("w1", process.process.pid, "alive")
        assert worker["groups"] == [{"topic": "work", "group": "billing"}, {"topic": "work", "group": "emails"}]
        assert worker["calls"][0]["offset"] == 1


def test_a_batch_that_is_over_is_in_nobodys_hand(work: str) -> None:
    publish_each("a", "b")
    number()
    seen = []
    task = task_of(declare(lambda event: seen.append(of_this_thread().given), topic="work"))
    consume(task, 10)
    assert [event.payload for event in seen] == ["a", "b"]
    assert of_this_thread().given is None
    assert ConsumerOffset.objects.get().next_offset == 3
