"""Events that kill: each ends as a dead letter after a few workers, and takes no other event with it."""

import datetime as dt
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone

from pubsub import Delivery, Event
from pubsub.consuming.crashes import MOST_DEATHS, Counted, CrashCounter
from pubsub.dead_letters import actions
from pubsub.models import Attempt, DeadLetter, Lease
from pubsub.subscriptions.task import PartitionTask
from pubsub.worker.worker import Worker
from tests.handlers import Recorder, declare, drain
from tests.sessions import Running, connection_parameters, wait_until

from .helpers import (
    claims,
    consume,
    consumer,
    cut_off,
    effects,
    fail_as,
    lag,
    look_for_work,
    number,
    publish_each,
    publish_together,
    states,
    task_of,
)
from .relay import TheFirstWith, losing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]


def die_until_drained(**settings: Any) -> int:
    """Starts one worker after the other, until one has nothing left to do. Returns how many died."""
    for deaths in range(12):
        with consumer("fatal", "--drain", "--wait-period-ms", 20, **settings) as process:
            code = process.ends()
            if code == 0:
                return deaths
            assert code in (-9, 7), process.lines.queue
    raise AssertionError("they die and die")


@pytest.mark.parametrize("way", ["kill", "exit"])
def test_transactional_the_others_are_handled_exactly_once(way: str, effects_table: None) -> None:
    publish_each(1, 2)
    publish_together(3, way, 4)
    publish_each(5)
    assert die_until_drained() == 1 + MOST_DEATHS
    assert effects() == [1, 2, 5]
    assert states() == [(3, "dead"), (way, "dead"), (4, "dead")]
    letter = DeadLetter.objects.get(payload=way)
    assert (letter.exception_class, letter.attempts) == ("pubsub.errors.WorkerDied", MOST_DEATHS)
    assert (lag(), claims()) == (0, [])


def test_at_least_once_the_others_are_all_handled_and_the_first_deaths_alone_repeat_some(effects_table: None) -> None:
    publish_each(1, "kill", 3)
    assert die_until_drained(delivery="at_least_once") <= 1 + MOST_DEATHS
    done = effects()
    assert done.count(3) == 1
    assert 1 <= done.count(1) <= 2
    assert done.count("kill") <= 1 + MOST_DEATHS
    assert states() == [("kill", "dead")]
    assert DeadLetter.objects.get().exception_class == "pubsub.errors.WorkerDied"
    assert (lag(), claims()) == (0, [])


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
def test_a_crash_is_found_behind_filtered_events_too(delivery: str, effects_table: None) -> None:
    publish_each(1, 2, 3)
    publish_each("kill", type="wanted")
    assert die_until_drained(delivery=delivery, where={"type": "wanted"}) <= 1 + MOST_DEATHS
    assert states() == [("kill", "dead")]
    assert (lag(), claims()) == (0, [])


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
def test_a_crash_in_a_retry_is_found_too(delivery: str, effects_table: None) -> None:
    publish_each("kill", "fine")
    drain(
        declare(
            Recorder(fails=lambda event: event.payload == "kill"),
            topic="work",
            delivery=delivery,
        )
    )
    assert states() == [("kill", "dead")]
    actions.replay([DeadLetter.objects.get().pk], using="default")
    deaths = die_until_drained(delivery=delivery)
    assert deaths == (2 if delivery == "transactional" else 1), "the first death of a transaction leaves no trace"
    assert states() == [("kill", "dead")]
    letter = DeadLetter.objects.get()
    assert (letter.exception_class, letter.attempts) == ("pubsub.errors.WorkerDied", 2)
    assert "WorkerDied" in Attempt.objects.latest("id").exception_class
    assert claims() == []


def test_what_died_with_others_in_hand_is_found_among_them_and_they_lose_nothing(effects_table: None) -> None:
    """What is released is handled together; behind a death it goes one by one, and each attempt is counted."""
    publish_each("bad", 1, 2, "kill", 4, 5)
    drain(declare(Recorder(fails=lambda event: True), topic="work", on_failure="park_key"))
    actions.discard([DeadLetter.objects.get(state="dead").pk], using="default")
    assert die_until_drained(on_failure="park_key") == 2, "as if it had been tried alone from the beginning"
    assert effects() == [1, 2]
    assert states()[1:] == [(1, "resolved"), (2, "resolved"), ("kill", "dead"), (4, "parked"), (5, "parked")]
    letters = list(DeadLetter.objects.exclude(payload="bad").order_by("c_offset"))
    assert [letter.attempts for letter in letters] == [1, 1, 1, 0, 0]
    assert [attempt.letter for attempt in Attempt.objects.exclude(letter__payload="bad")] == [letters[2]]
    actions.discard([letters[2].pk], using="default")
    assert die_until_drained(on_failure="park_key") == 0
    assert effects() == [1, 2, 4, 5]


def abort_with_the_place_locked() -> None:
    """As a worker does that dies."""
    with psycopg.connect(**connection_parameters()) as dying:
        dying.execute("SELECT FROM consumer_offsets FOR UPDATE")
        dying.rollback()


def test_a_death_is_seen_by_the_lock_that_it_left() -> None:
    task = task_before(1)
    assert [work.crashed for work in look_for_work(task.declared)] == [False]
    abort_with_the_place_locked()
    assert [work.crashed for work in look_for_work(task.declared)] == [True]
    with transaction.atomic():
        connection.cursor().execute("SELECT FROM consumer_offsets FOR UPDATE")
    assert [work.crashed for work in look_for_work(task.declared)] == [False]


@pytest.fixture
def patient() -> Iterator[None]:
    """What fails by the database is tried more often than by default."""
    with override_settings(PUBSUB={"transient_attempts": 50}):
        yield


@pytest.mark.usefixtures("patient")
def test_a_database_that_fails_repeatedly_does_not_count_as_a_death() -> None:
    publish_each(1, 2)
    attempts: list[int] = []

    def handler(event: Event) -> None:
        attempts.append(event.attempt)
        if len(attempts) < 9:
            fail_as("57P01")

    drain(declare(handler, topic="work"), wait_period_ms=1)
    assert set(attempts) == {1}
    assert not DeadLetter.objects.exists()
    assert (lag(), claims()) == (0, [])


def test_a_failing_database_does_not_make_workers_count_attempts() -> None:
    publish_each(1, 2)
    seen: list[Any] = []

    def handler(event: Event) -> None:
        seen.append(claims())
        if len(seen) == 1:
            fail_as("57P01")

    drain(declare(handler, topic="work"), wait_period_ms=1)
    assert seen == [[], [], []]


@pytest.mark.usefixtures("patient")
def test_a_database_that_fails_during_a_retry_does_not_count_as_a_death() -> None:
    publish_each("bad")
    attempts: list[int] = []

    def handler(event: Event) -> None:
        attempts.append(event.attempt)
        if len(attempts) < 3:
            raise ValueError("the first")
        if len(attempts) < 8:
            fail_as("57P01")

    drain(declare(handler, topic="work", retry=[0]), wait_period_ms=1)
    assert attempts == [1, 1, 2, 2, 2, 2, 2, 2]
    assert states() == [("bad", "resolved")]
    assert not Attempt.objects.filter(exception_class__contains="WorkerDied").exists()


@pytest.mark.usefixtures("patient")
def test_a_connection_cut_in_a_counted_attempt_is_not_a_death() -> None:
    publish_each(1)
    calls: list[int] = []

    def handler(event: Event) -> None:
        calls.append(event.attempt)
        if len(calls) < 6:
            cut_off()

    drain(declare(handler, topic="work"), wait_period_ms=1)
    assert calls == [1] * 6
    assert not DeadLetter.objects.exists()
    assert claims() == []


@pytest.mark.parametrize("raises", [False, True])
def test_a_cut_connection_that_the_handler_hides_is_not_a_death(raises: bool) -> None:
    publish_each(1, 2)
    calls: list[Any] = []

    def handler(event: Event) -> None:
        calls.append(event.payload)
        if calls.count(1) < 4 and event.payload == 1:
            try:
                with transaction.atomic():
                    cut_off()
            except Exception:
                if raises:
                    raise ValueError("something has gone wrong") from None

    drain(declare(handler, topic="work"), wait_period_ms=1)
    assert calls[-2:] == [1, 2]
    assert not DeadLetter.objects.exists()


def task_before(*payloads: Any) -> PartitionTask:
    """Of a group that stands before these events."""
    publish_each(*payloads)
    number()
    return task_of(declare(Recorder(), topic="work"))


def guard_of(task: PartitionTask, worker: str) -> AbstractContextManager[CrashCounter]:
    return CrashCounter(task, worker)


def test_while_one_worker_tries_no_other_counts() -> None:
    task = task_before(1)
    with guard_of(task, "one") as one, guard_of(task, "two") as two:
        counted = one.count(10)
        assert counted
        assert two.count(10) is None
        assert Lease.objects.get().expires_at > timezone.now() + dt.timedelta(hours=1), "however long its handler takes"
        assert [work.is_leased for work in look_for_work(task.declared, "two")] == [True]
        one.uncount(counted)
        assert claims() == []
        again = two.count(10)
        assert again
        assert (again.attempt, claims()) == (1, [(1, 1, 1)])


@pytest.mark.usefixtures("through_pooler")
def test_behind_a_pooler_no_other_counts_either() -> None:
    task = task_before(1)
    with guard_of(task, "two") as two:
        with guard_of(task, "one") as one:
            assert one.count(10)
            assert two.count(10) is None
        assert two.count(10) is None, "it may only have been slow"
        Lease.objects.update(expires_at="2000-01-01T00:00:00Z")
        counted = two.count(10)
        assert counted
        assert counted.attempt == 2


def test_a_dead_workers_attempt_counts() -> None:
    task = task_before(1)
    with guard_of(task, "two") as two:
        with guard_of(task, "one") as one:
            assert one.count(10)
        wait_until(lambda: not look_for_work(task.declared, "two")[0].is_leased, "the server has noticed")
        counted = two.count(10)
        assert counted
        assert (counted.attempt, claims()) == (2, [(1, 1, 2)])


def test_a_cut_off_worker_takes_back_its_own_count_though_another_has_counted_since() -> None:
    task = task_before(1)
    with guard_of(task, "one") as one, guard_of(task, "two") as two:
        first = one.count(10)
        assert first
        with psycopg.connect(**connection_parameters(), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [one._session.info.backend_pid])
        second = two.count(10)
        assert second
        assert second.attempt == 2
        one.uncount(first)
        assert claims() == [(1, 1, 1)]
        two.uncount(second)
        assert claims() == [(1, 1, 0)], "what the dead worker may have had is still watched"


def test_a_worker_that_misses_that_answer_takes_back_no_other_count() -> None:
    task = task_before(1)
    for worker in ("died", "died, too"):
        with guard_of(task, worker) as dying:
            assert dying.count(10)
        wait_until(lambda: not look_for_work(task.declared)[0].is_leased, "the server has noticed")
    lost = TheFirstWith(b"lease.attempts - 1")
    with losing(lost), guard_of(task, "one") as one:
        counted = one.count(10)
        assert counted
        one.uncount(counted)
    assert (lost.lost, claims()) == (1, [(1, 1, 2)])


def test_a_count_of_a_passed_transaction_does_not_apply_to_the_next() -> None:
    publish_each("fatal", "innocent")
    number()
    handler = Recorder()
    task = task_of(declare(handler, topic="work"))
    with guard_of(task, "one") as one:
        Lease.objects.create(
            group_id="readers",
            topic_id=task.topic_id,
            partition_id=0,
            first_offset=1,
            last_offset=2,
            worker_id="died",
            epoch=0,
            attempts=MOST_DEATHS,
            expires_at=timezone.now(),
        )

        class Late(CrashCounter):
            def count(self, batch_size: int) -> Counted | None:
                counted = one.count(batch_size)
                assert counted
                assert counted.poisoned
                assert consume(task, 1).passed == 1, "by one who had looked before there was a lease"
                return counted

        with Late(task, "one") as late:
            assert consume(task, 10, late).passed == 0
    assert handler.payloads == ["fatal"]
    assert states() == []


def test_a_worker_that_misses_the_answer_to_its_count_takes_it_back() -> None:
    task = task_before(1)
    lost = TheFirstWith(b"COMMIT")
    with losing(lost), guard_of(task, "one") as one:
        with pytest.raises(psycopg.OperationalError):
            one.count(10)
        assert lost.lost == 1
        assert claims() == []


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
def test_many_workers_that_all_live_blame_no_event(delivery: str) -> None:
    chance = random.Random(5)

    def handler(event: Event) -> None:
        if chance.random() < 0.3:
            fail_as("57P01")

    declaration = declare(handler, topic="work", delivery=Delivery(delivery))
    task_of(declaration)
    publish_each(*range(50))
    number()
    workers = [Worker([declaration], using="default", wait_period_ms=5, listen=False) for _ in range(12)]
    running = [Running(worker.run) for worker in workers]
    try:
        wait_until(lambda: lag() == 0 and not claims(), "all is handled", 60)
    finally:
        for worker in workers:
            worker.stop()
    for each in running:
        each.result()
    assert not DeadLetter.objects.exists()


def test_counting_ends_after_what_the_dead_worker_may_have_had() -> None:
    publish_each(*range(6))
    number()
    handler = Recorder()
    declaration = declare(handler, topic="work")
    task = task_of(declaration)
    abort_with_the_place_locked()
    with guard_of(task, "died") as dying:
        assert dying.count(4)
    assert claims() == [(1, 4, 1)]
    seen: list[list[tuple[int, int, int]]] = []

    def watching(event: Event) -> None:
        seen.append(claims())

    drain(declare(watching, topic="work"), batch_size=4)
    assert [bool(found) for found in seen] == [True] * 4 + [False] * 2
    assert seen[0] == [(1, 4, 2)], "counted before it is made"
    assert Lease.objects.count() == 0


def test_short_transaction_ids_are_distinguished_over_the_end_of_their_range() -> None:
    """A row's xmax says the last 32 bits of a transaction's number; the rest is worked out."""
    with psycopg.connect(**connection_parameters(), autocommit=True) as session:

        def was_aborted(end: str) -> bool:
            session.execute("BEGIN")
            (number_,) = session.execute("SELECT pg_current_xact_id()::xid::text").fetchone() or ("",)
            session.execute(end)
            (answer,) = session.execute("SELECT pubsub_was_aborted_v1(%s::xid)", [number_]).fetchone() or (None,)
            return bool(answer)

        assert was_aborted("ROLLBACK")
        assert not was_aborted("COMMIT")
        # In the future of this range, so it is of the range before, of which in a young cluster there is none.
        for never in ("0", "4294967295", "3000000000"):
            assert session.execute("SELECT pubsub_was_aborted_v1(%s::xid)", [never]).fetchone() == (False,)
        with psycopg.connect(**connection_parameters()) as other:
            (running,) = other.execute("SELECT pg_current_xact_id()::xid::text").fetchone() or ("",)
            assert session.execute("SELECT pubsub_was_aborted_v1(%s::xid)", [running]).fetchone() == (False,)
            other.rollback()
            assert session.execute("SELECT pubsub_was_aborted_v1(%s::xid)", [running]).fetchone() == (True,)
