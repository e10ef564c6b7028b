"""A handler has a time: one that exceeds it fails with HandlerTimeout, whatever it was doing, and nothing else does."""

import asyncio
import datetime as dt
import logging
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

from pubsub import Delivery, Event, subscribe
from pubsub.consuming import time_limit
from pubsub.consuming.running import of_this_thread
from pubsub.consuming.time_limit import LimitWatch, limited
from pubsub.db.interrupt import raise_in
from pubsub.errors import HandlerTimeout, InvalidSubscription
from pubsub.models import Attempt, ConsumerOffset, DeadLetter, Subscription
from pubsub.monitoring.problems import find_problems
from pubsub.monitoring.status import status
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from pubsub.worker.worker import Worker
from tests.consuming.helpers import effects, note, number, publish_each, publish_together
from tests.handlers import declare, drain
from tests.sessions import Running, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TIMEOUT = "pubsub.errors.HandlerTimeout"


def in_python(payload: Any) -> None:
    while True:
        time.sleep(0.01)


def in_sql(payload: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")


def in_a_block(payload: Any) -> None:
    with transaction.atomic():
        in_sql(payload)


def in_a_loop_that_goes_on(payload: Any) -> None:
    """It does not believe what the database says."""
    for _ in range(1000):
        try:
            in_a_block(payload)
        except Exception:
            time.sleep(0.01)


def in_a_swallowed_exception(payload: Any) -> None:
    try:
        in_python(payload)
    except HandlerTimeout:
        return


WAYS = [in_python, in_sql, in_a_block, in_a_swallowed_exception]


def hanging_at(payload: Any, way: Callable[[Any], None]) -> Callable[[Event], None]:
    def handle(event: Event) -> None:
        note(event.payload)
        if event.payload == payload:
            way(payload)

    return handle


def of_list(handler: Callable[[Event], None]) -> Callable[[list[Event]], None]:
    def handle(events: list[Event]) -> None:
        for event in events:
            handler(event)

    return handle


def letters() -> list[tuple[Any, str, int, str]]:
    found = DeadLetter.objects.order_by("c_offset")
    return list(found.values_list("payload", "state", "attempts", "exception_class"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("delivery", list(Delivery))
def test_a_handler_that_exceeds_its_time_fails_with_it(
    work: str, effects_table: None, delivery: Delivery, way: Callable[[Any], None]
) -> None:
    publish_each("a", "hang", "b")
    number()
    began = time.monotonic()
    drain(declare(hanging_at("hang", way), topic=work, delivery=delivery, timeout=0.2))
    assert time.monotonic() - began < 10
    assert letters() == [("hang", "dead", 1, TIMEOUT)]
    handled = ["a", "b"] if delivery is Delivery.TRANSACTIONAL else ["a", "hang", "b"]
    assert effects() == handled
    letter = DeadLetter.objects.get()
    assert "took longer than its timeout of 0.2 s at offset 2 of work." in letter.exception_message
    assert way.__name__ in letter.traceback or way is in_a_swallowed_exception
    cursor = ConsumerOffset.objects.get()
    assert (cursor.next_offset, cursor.failures) == (4, 0)  # the database has not failed


@pytest.mark.parametrize("delivery", list(Delivery))
def test_a_list_of_events_has_its_time_per_call(work: str, effects_table: None, delivery: Delivery) -> None:
    publish_each("a", "hang", "b")
    number()
    handler = of_list(hanging_at("hang", in_sql))
    drain(declare(handler, topic=work, delivery=delivery, timeout=0.2, batch=True))
    if delivery is Delivery.AT_MOST_ONCE:
        assert letters() == [(payload, "dead", 1, TIMEOUT) for payload in ("a", "hang", "b")]
    else:
        assert letters() == [("hang", "dead", 1, TIMEOUT)]
    if delivery is Delivery.TRANSACTIONAL:
        assert effects() == ["a", "b"]


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("behind_a_lambda", [False, True])
def test_an_asynchronous_handler_is_cancelled(work: str, delivery: Delivery, behind_a_lambda: bool) -> None:
    cancelled = []

    async def handle(event: Event) -> None:
        try:
            if event.payload == "hang":
                await asyncio.sleep(60)
            if event.payload == "sql":
                await sync_to_async(in_sql)(None)
        except asyncio.CancelledError:
            cancelled.append(event.payload)
            raise

    publish_each("hang", "sql", "b")
    number()
    handler: Any = (lambda event: handle(event)) if behind_a_lambda else handle
    began = time.monotonic()
    drain(declare(handler, topic=work, delivery=delivery, timeout=0.2))
    assert time.monotonic() - began < 10
    assert letters() == [("hang", "dead", 1, TIMEOUT), ("sql", "dead", 1, TIMEOUT)]
    assert "hang" in cancelled


def test_a_handler_that_ignores_errors_of_the_database_is_interrupted_in_python(work: str) -> None:
    publish_each("hang")
    number()
    drain(declare(lambda event: in_a_loop_that_goes_on(event), topic=work, timeout=0.2))
    assert letters() == [("hang", "dead", 1, TIMEOUT)]


@pytest.mark.parametrize("delivery", [Delivery.TRANSACTIONAL, Delivery.AT_LEAST_ONCE])
def test_it_is_tried_again_as_any_failure_is(work: str, delivery: Delivery) -> None:
    attempts = []

    def handle(event: Event) -> None:
        attempts.append(event.attempt)
        if event.attempt < 3:
            in_sql(event)

    publish_each("hang")
    number()
    declared = declare(handler=handle, topic=work, delivery=delivery, timeout=0.1, retry=[0, 0])
    drain(declared)
    assert (attempts, [letter[:3] for letter in letters()]) == ([1, 2, 3], [("hang", "resolved", 3)])
    history = Attempt.objects.order_by("attempt").values_list("attempt", "exception_class")
    assert list(history)[:2] == [(1, TIMEOUT), (2, TIMEOUT)]
    if delivery is Delivery.TRANSACTIONAL:
        assert len(history) == 2  # no death was counted beforehand


def test_what_was_published_with_it_fails_with_it_and_is_called_once(work: str, effects_table: None) -> None:
    calls = []

    def handle(event: Event) -> None:
        calls.append(event.payload)
        hanging_at("hang", in_python)(event)

    publish_together("a", "hang", "b")
    publish_each("c")
    number()
    drain(declare(handle, topic=work, timeout=0.2))
    assert [payload for payload, *_ in letters()] == ["a", "hang", "b"]
    assert (calls.count("hang"), effects()) == (1, ["c"])


def test_a_handler_that_waits_in_c_is_reported_and_fails_when_it_comes_back(
    work: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "GRACE_S", 0.2)
    ours, theirs = socket.socketpair()
    publish_each("hang", "b")
    number()
    handled = []

    def handle(event: Event) -> None:
        if event.payload == "hang":
            ours.recv(1)
        handled.append(event.payload)

    worker = Worker([declare(handle, topic=work, timeout=0.2)], using="default", wait_period_ms=50, threads=2)
    with caplog.at_level(logging.ERROR):
        running = Running(worker.run)
        try:
            wait_until(
                lambda: any(call.is_overdue for it in status("default").groups for call in it.calls), "it is known"
            )
            (problem,) = (it for it in find_problems(status("default")) if it.code == "hanging")
            assert problem.text.endswith("Its time is over, and it has not ended.")
            assert any("It has not ended 0.2 s after it was interrupted" in it.getMessage() for it in caplog.records)
            theirs.send(b"1")
            wait_until(lambda: letters() == [("hang", "dead", 1, TIMEOUT)], "it has failed")
            wait_until(lambda: "b" in handled, "the worker goes on")
        finally:
            theirs.send(b"1")
            worker.stop()
            running.result()
            ours.close()
            theirs.close()
    assert "hang" not in handled


@pytest.mark.parametrize("delivery", [Delivery.TRANSACTIONAL, Delivery.AT_LEAST_ONCE])
def test_it_never_hits_what_the_worker_does_after_the_handler_has_returned(
    work: str, effects_table: None, delivery: Delivery
) -> None:
    """Handlers return just when their time is over."""
    payloads = list(range(40))
    publish_each(*payloads)
    number()

    def handle(event: Event) -> None:
        note(event.payload)
        until = time.perf_counter() + 0.0015 + event.payload % 10 / 2000
        while time.perf_counter() < until:
            pass

    worker = drain(declare(handle, topic=work, delivery=delivery, timeout=0.005))
    failed = [payload for payload, *_ in letters()]
    assert {exception for *_, exception in letters()} <= {TIMEOUT}
    assert (worker.passed, worker.failed) == (len(payloads), len(failed))
    assert len(set(failed)) == len(failed)
    if delivery is Delivery.TRANSACTIONAL:
        assert effects() == [payload for payload in payloads if payload not in failed]
    assert ConsumerOffset.objects.get().next_offset == len(payloads) + 1


def test_what_comes_when_the_call_has_ended_goes_no_further() -> None:
    """The worker waits until the interruption is over, and the exception comes there and nowhere else."""
    for _ in range(50):
        limit = time_limit.TimeLimit(declare(print), of_this_thread(), 60)
        limit._interrupting = True

        def interrupt(limit: time_limit.TimeLimit = limit) -> None:
            while not limit.has_ended:
                time.sleep(0.0001)
            raise_in(limit.thread_id, HandlerTimeout)
            limit._has_interrupted = True

        late = threading.Thread(target=interrupt)
        late.start()
        limit.end()
        late.join()
    assert sum(range(1000)) == 499500


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("delivery", list(Delivery))
def test_it_leaves_nothing_open_on_connections_to_other_databases(work: str, delivery: Delivery) -> None:
    """The exception may come between any two steps, also before a block is entered that would end what is open."""

    def handle(event: Event) -> None:
        if event.payload == "hang":
            transaction.atomic(using="other").__enter__()
            in_python(event.payload)
        with connections["other"].cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS elsewhere AS SELECT 1")

    publish_each("hang", "b")
    number()
    try:
        drain(declare(handle, topic=work, delivery=delivery, timeout=0.2))
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE elsewhere")  # it is there
    finally:
        connections["other"].close()
    assert letters() == [("hang", "dead", 1, TIMEOUT)]


@pytest.fixture
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_whenever_the_time_is_over_later_calls_have_their_limits(
    monkeypatch: pytest.MonkeyPatch, switching_often: None
) -> None:
    """Also where it is over while the limit itself is only being made."""
    monkeypatch.setattr(time_limit, "limits", LimitWatch())
    declared = declare(print, timeout=1)
    came = 0
    stray: list[HandlerTimeout] = []

    def spin(until: float) -> None:
        while time.perf_counter() < until:
            pass

    def run() -> None:
        nonlocal came
        running, chance = of_this_thread(), random.Random(1)
        for _ in range(5000):
            try:
                seconds = chance.random() / 2000
                handle = limited(declared, running, seconds, lambda until, limit: spin(until))
                with suppress(HandlerTimeout):
                    handle(time.perf_counter() + chance.random() * seconds * 2)
                    continue
                came += 1
            except HandlerTimeout as error:
                stray.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it waits for a lock that the exception has left locked"
    assert came > 100
    assert not stray


def test_without_a_timeout_there_is_no_limit_and_no_thread(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = LimitWatch()
    monkeypatch.setattr(time_limit, "limits", watch)
    publish_each("a")
    number()
    drain(declare(lambda event: None, topic=work))
    assert watch._thread is None
    drain(declare(lambda event: None, topic=work, group="others", timeout=60))
    assert watch._thread in threading.enumerate()


def test_a_timeout_is_declared_in_seconds_or_as_a_timedelta(work: str) -> None:
    for given in (90, 90.0, dt.timedelta(seconds=90)):
        declared = declare(print, topic=work, timeout=given)
        assert declared.timeout == 90
        register_subscription(declared, using="default")
        assert Subscription.objects.get().timeout == dt.timedelta(seconds=90)
    register_subscription(declare(print, topic=work), using="default")
    assert Subscription.objects.get().timeout is None


@pytest.mark.parametrize("given", [0, -1, True, "30", float("nan"), float("inf"), dt.timedelta(0)])
def test_a_timeout_that_cannot_work_is_refused(given: Any) -> None:
    with pytest.raises(InvalidSubscription, match="timeout must be a number of seconds above zero"):
        subscribe("default", group="never", timeout=given)(print)
    with pytest.raises(InvalidSubscription):
        Declaration(topic="default", group="never", handler=print, timeout=given)
