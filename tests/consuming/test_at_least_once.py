"""At least once: outside transactions, under a lease that others respect, take over and cannot be fooled by."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from pubsub import Backoff, Delivery, Event, Reject, RetryLater
from pubsub.consuming.crashes import BELIEVED_S
from pubsub.consuming.failing import Interrupted
from pubsub.consuming.lease import HeldLease
from pubsub.consuming.transactional import Transactional
from pubsub.dead_letters import actions
from pubsub.dead_letters.attempts import count_death
from pubsub.errors import LeaseLost
from pubsub.models import Attempt, ConsumerOffset, DeadLetter, Lease
from tests.handlers import Recorder, declare, drain
from tests.sessions import Running, wait_until

from .helpers import (
    claims,
    cut_off,
    fail_as,
    lag,
    leaseholder,
    look_for_work,
    next_offset,
    number,
    publish_each,
    publish_together,
    states,
    task_of,
)
from .relay import TheFirstWith, losing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]


def leased(handler: Any, **options: Any) -> Any:
    options.setdefault("delivery", Delivery.AT_LEAST_ONCE)
    return declare(handler, topic="work", **options)


def test_in_order_outside_any_transaction_and_acknowledged_after_handling() -> None:
    publish_each(*range(12))
    seen: list[Any] = []
    inside: list[bool] = []
    offsets: list[int] = []

    def handler(event: Event) -> None:
        seen.append(event.payload)
        inside.append(connection.in_atomic_block)
        offsets.append(next_offset())

    drain(leased(handler), batch_size=5)
    assert seen == list(range(12))
    assert not any(inside)
    assert offsets == [1] * 5 + [6] * 5 + [11] * 2, "the cursor moves when a batch is done, not before"
    assert (next_offset(), lag(), claims()) == (13, 0, [])


def test_a_failing_transaction_is_set_aside_as_a_whole_and_the_rest_is_acknowledged() -> None:
    publish_each(1)
    publish_together(2, 3, 4)
    publish_each(5)
    handler = Recorder(fails=lambda event: event.payload == 3)
    worker = drain(leased(handler))
    assert handler.payloads == [1, 2, 3, 5], "nothing is handled twice"
    assert states() == [(2, "dead"), (3, "dead"), (4, "dead")]
    assert (worker.passed, worker.failed, lag(), claims()) == (5, 3, 0, [])


def test_lists() -> None:
    publish_each(*range(7))
    lists: list[list[int]] = []
    drain(leased(lambda events: lists.append([event.payload for event in events]), batch=True), batch_size=3)
    assert lists == [[0, 1, 2], [3, 4, 5], [6]]
    assert lag() == 0


def test_a_list_that_fails_is_tried_transaction_by_transaction() -> None:
    publish_each(1, 2, 3)
    lists: list[list[int]] = []

    def handler(events: list[Event]) -> None:
        lists.append([event.payload for event in events])
        if any(event.payload == 2 for event in events):
            raise ValueError

    drain(leased(handler, batch=True))
    assert lists == [[1, 2, 3], [1], [2], [3]]
    assert states() == [(2, "dead")]
    assert (lag(), claims()) == (0, [])


def test_retries_reject_and_retry_later() -> None:
    publish_each("reject", "later", "bad")
    handled: list[tuple[Any, int]] = []

    def handler(event: Event) -> None:
        handled.append((event.payload, event.attempt))
        if event.payload == "reject":
            raise Reject("never")
        if event.payload == "later" and event.attempt < 4:
            raise RetryLater(0)
        if event.payload == "bad":
            raise ValueError

    drain(leased(handler, retry=Backoff(retries=2, first_s=0, jitter=0)))
    assert [each for each in handled if each[0] == "reject"] == [("reject", 1)]
    assert [each for each in handled if each[0] == "later"] == [("later", n) for n in (1, 2, 3, 4)]
    assert [each for each in handled if each[0] == "bad"] == [("bad", n) for n in (1, 2, 3)]
    assert states() == [("reject", "dead"), ("later", "resolved"), ("bad", "dead")]
    # What is noted in case that the worker dies is not among what has happened.
    assert not Attempt.objects.filter(exception_class__contains="WorkerDied").exists()
    assert Attempt.objects.filter(letter__payload="bad").count() == 3
    assert claims() == []


def test_what_was_handled_at_a_later_attempt_keeps_the_failure_before_it() -> None:
    publish_together(1, 2)

    def handler(event: Event) -> None:
        if event.attempt == 1:
            raise ValueError("the mail server is down")

    drain(leased(handler, retry=[0]))
    assert states() == [(1, "resolved"), (2, "resolved")]
    letters = DeadLetter.objects.values_list("exception_class", "exception_message", "attempts")
    assert set(letters) == {("builtins.ValueError", "the mail server is down", 2)}
    assert all("the mail server is down" in letter.traceback for letter in DeadLetter.objects.all())


async def record(event: Event, seen: list[Any]) -> None:
    await asyncio.sleep(0)
    seen.append(event.payload)


def test_asynchronous_handlers_including_those_that_do_not_look_like_it() -> None:
    publish_each(1, 2)
    seen: list[Any] = []

    async def handler(event: Event) -> None:
        await record(event, seen)

    drain(leased(handler, group="plain"), leased(lambda event: record(event, seen), group="hidden"))
    assert sorted(seen) == [1, 1, 2, 2]


def test_a_transaction_longer_than_the_batch_is_read_while_it_is_handled() -> None:
    publish_together(*range(57))
    publish_each("next")
    handler = Recorder()
    sizes: list[int] = []

    def watching(event: Event) -> None:
        handler(event)
        sizes.append(next_offset())
        connection.close()  # a handler may: nothing is kept from one chunk to the next

    drain(leased(watching), batch_size=10)
    assert handler.payloads == [*range(57), "next"]
    assert sizes == [1] * 57 + [58], "acknowledged when it is over"
    assert lag() == 0


def test_a_long_transaction_that_fails_late_is_set_aside_as_a_whole() -> None:
    publish_together(*range(35))
    publish_each("next")
    handler = Recorder(fails=lambda event: event.payload == 33)
    drain(leased(handler), batch_size=10)
    assert handler.payloads == [*range(34), "next"]
    assert states() == [(n, "dead") for n in range(35)]


def test_a_leased_partition_is_left_alone_and_shown_as_leased() -> None:
    publish_each(1)
    number()
    second = Recorder()
    task = task_of(leased(second))
    inside, go_on = threading.Event(), threading.Event()

    def slow(event: Event) -> None:
        inside.set()
        assert go_on.wait(30)

    with leaseholder("one") as one, leaseholder("two") as two:
        running = Running(one.consume, task_of(leased(slow)), 10)
        assert inside.wait(10)
        assert two.consume(task, 10).passed == 0
        (work,) = look_for_work(task.declared, "two")
        assert (work.has_new, work.has_due, work.is_leased) == (False, False, True)
        go_on.set()
        assert running.result().passed == 1
    assert second.events == []
    assert (lag(), claims()) == (0, [])


def test_draining_waits_for_another_workers_lease() -> None:
    publish_each(1)
    number()
    inside, go_on = threading.Event(), threading.Event()

    def slow(event: Event) -> None:
        inside.set()
        assert go_on.wait(30)

    with leaseholder("one") as one:
        running = Running(one.consume, task_of(leased(slow)), 10)
        assert inside.wait(10)
        draining = Running(drain, leased(Recorder()))
        draining.join(0.5)
        assert draining.is_alive()
        go_on.set()
        running.result()
        draining.result()
    assert lag() == 0


def test_a_zombie_changes_nothing_and_stops_before_its_next_event() -> None:
    publish_each(*range(6))
    number()
    inside, go_on = threading.Event(), threading.Event()
    of_zombie: list[Any] = []
    of_second = Recorder()

    def zombie(event: Event) -> None:
        of_zombie.append(event.payload)
        if event.payload == 1:
            inside.set()
            assert go_on.wait(30)

    task = task_of(leased(zombie))
    with leaseholder("zombie", renews=False) as first, leaseholder("second") as second:
        running = Running(first.consume, task, 10)
        assert inside.wait(10)
        Lease.objects.update(expires_at="2000-01-01T00:00:00Z", lock_key=None)
        other = task_of(leased(of_second))
        passed = [second.consume(other, 4).passed for _ in range(3)]
        assert passed == [1, 1, 1], "one transaction at a time, where a worker may have died"
        first.leases.held[task.key].runs_out_at = 0.0  # by its own clock too, the zombie's lease has run out
        go_on.set()
        assert running.result().passed == 0
        assert of_zombie == [0, 1]
        assert next_offset() == 4, "the cursor has not gone back"
        while second.consume(other, 4).passed:
            pass
    assert of_second.payloads == list(range(6))
    assert (next_offset(), lag(), claims()) == (7, 0, [])


def test_a_late_acknowledgement_is_rejected() -> None:
    publish_each(*range(4))
    number()
    holding: list[Any] = []

    def handler(event: Event) -> None:
        if event.payload == 3:
            Lease.objects.update(expires_at="2000-01-01T00:00:00Z", lock_key=None)
            holding.append(second.consume(task_of(leased(lambda event: None)), 10).passed)

    with leaseholder("late") as late, leaseholder("second") as second:
        assert late.consume(task_of(leased(handler)), 10).passed == 0
        assert holding == [1]
        assert next_offset() == 2
        assert [claim[:2] for claim in claims()] == [(2, 4)], "the rest of the range is still watched"


def test_a_failure_after_losing_the_lease_is_not_recorded() -> None:
    publish_each(1)
    number()

    def handler(event: Event) -> None:
        Lease.objects.update(expires_at="2000-01-01T00:00:00Z", lock_key=None)
        assert second.consume(task_of(leased(lambda event: None)), 10).passed == 1
        raise ValueError

    with leaseholder("late") as late, leaseholder("second") as second:
        assert late.consume(task_of(leased(handler)), 10).passed == 0
    assert not DeadLetter.objects.exists()
    assert next_offset() == 2


@pytest.mark.parametrize("attempts", [1, 2, 3])
@pytest.mark.parametrize("outcome", ["acknowledges", "fails", "meets a failing database"])
def test_a_living_worker_that_lost_its_lease_has_not_died_of_the_event(outcome: str, attempts: int) -> None:
    publish_each(1)
    number()
    task = task_of(leased(lambda event: lose_the_lease()))

    def lose_the_lease() -> None:
        Lease.objects.update(expires_at="2000-01-01T00:00:00Z", lock_key=None, attempts=attempts)
        assert second.take(task, 10)
        assert claims() == [(1, 1, attempts + 1)]
        if outcome == "fails":
            raise ValueError
        if outcome == "meets a failing database":
            fail_as("57P01")

    with leaseholder("first", renews=False) as first, leaseholder("second", renews=False) as second:
        if outcome == "meets a failing database":
            with pytest.raises(Interrupted):
                first.consume(task, 10)
        else:
            assert first.consume(task, 10).passed == 0
        assert claims() == [(1, 1, attempts)], "the attempt of the one that lives does not count"


def test_a_worker_that_learns_of_its_lost_lease_may_still_die_of_the_event() -> None:
    publish_each("kill")
    number()
    task = task_of(leased(Recorder()))
    attempts = []
    before: tuple[Any, HeldLease] | None = None
    for n in range(5):
        with leaseholder(f"worker {n}", renews=False) as holder:
            lease = holder.take(task, 10)
            assert lease
            attempts.append(lease.attempt)
            if before:
                before[0].leases.renew(before[1])  # and then it dies
                assert before[1].lost
            before = holder, lease
        Lease.objects.update(expires_at="2000-01-01T00:00:00Z")
    assert attempts == [1, 2, 3, 4, 5]


def test_a_retry_is_not_due_before_it_could_begin() -> None:
    publish_each("bad")
    declaration = leased(Recorder(fails=lambda event: True), retry=[0, 0], delivery=Delivery.TRANSACTIONAL)
    drain(declaration, max_events=1)
    task = task_of(declaration)
    with transaction.atomic(), connection.cursor() as cursor:
        assert len(count_death(cursor, task, soonest_s=BELIEVED_S)) == 1
    with transaction.atomic(), connection.cursor() as cursor:
        assert len(count_death(cursor, task, soonest_s=BELIEVED_S)) == 0
    assert [letter.attempts for letter in DeadLetter.objects.all()] == [2]


def test_a_worker_that_misses_the_answer_to_its_lease_releases_it() -> None:
    publish_each(1)
    number()
    handler = Recorder()
    task = task_of(leased(handler))
    lost = TheFirstWith(b"COMMIT")
    with leaseholder("one", renews=False) as one, losing(lost):
        with pytest.raises(OperationalError):
            one.consume(task, 10)
        assert (lost.lost, claims()) == (1, [])
        assert one.consume(task, 10).passed == 1
    assert [event.attempt for event in handler.events] == [1]


@pytest.mark.parametrize("delivery", [Delivery.TRANSACTIONAL, Delivery.AT_LEAST_ONCE])
def test_a_worker_that_misses_the_answer_to_its_retry_has_not_tried(delivery: Delivery) -> None:
    publish_each("bad")
    fails = True
    handler = Recorder(fails=lambda event: fails)
    declaration = leased(handler, retry=[0], delivery=delivery)
    with leaseholder("one", renews=False) as one:
        drain(declaration, max_events=1)
        task = task_of(declaration)
        fails = False
        lost = TheFirstWith(b"COMMIT")
        with losing(lost), pytest.raises(OperationalError):
            if delivery is Delivery.TRANSACTIONAL:
                Transactional(one.context).retry_due(task, 10, crashed=True)
            else:
                one.retry_due(task, at_once=10)
        assert lost.lost == 1
        letter = DeadLetter.objects.get()
        assert (letter.state, letter.attempts, claims()) == ("retrying", 1, [])
        assert letter.exception_class == "builtins.ValueError"
        assert Attempt.objects.count() == 1


def test_a_retry_that_loses_its_lease_is_due_again() -> None:
    publish_each("bad")
    fails = True

    def handler(event: Event) -> None:
        if fails:
            raise ValueError
        Lease.objects.all().delete()

    declaration = leased(handler, retry=[0])
    drain(declaration, max_events=1)
    fails = False
    with leaseholder("one", renews=False) as one:
        one.retry_due(task_of(declaration), at_once=10)
    letter = DeadLetter.objects.get()
    assert (letter.state, letter.attempts, letter.exception_class) == ("retrying", 1, "builtins.ValueError")


def test_a_lost_lease_changes_no_count_if_the_cursor_has_moved_on() -> None:
    publish_each(1, 2)
    number()

    def lose_the_lease(event: Event) -> None:
        if event.payload == 2:
            return
        Lease.objects.update(expires_at="2000-01-01T00:00:00Z", lock_key=None)
        assert second.consume(task_of(leased(lambda event: None)), 10).passed == 1
        assert second.take(task, 10)
        Lease.objects.update(attempts=2)

    task = task_of(leased(lose_the_lease))
    with leaseholder("first", renews=False) as first, leaseholder("second", renews=False) as second:
        assert first.consume(task, 10).passed == 0
        assert claims() == [(2, 2, 2)]


def test_a_lease_is_renewed_while_a_handler_works_for_longer() -> None:
    publish_each(1)
    number()
    ends: list[Any] = []
    renewed = threading.Event()

    def slow(event: Event) -> None:
        first = Lease.objects.get().expires_at
        while Lease.objects.get().expires_at < first + (first - Lease.objects.get().taken_at) * 2:
            renewed.wait(0.05)
        ends.append(second.consume(task, 10).passed)

    task = task_of(leased(slow))
    with leaseholder("one", 1) as one, leaseholder("second", 1) as second:
        Lease.objects.update(lock_key=None)
        assert one.consume(task, 10).passed == 1
    assert ends == [0]
    assert lag() == 0


def test_a_worker_whose_lease_was_not_renewed_checks_it_before_its_next_event() -> None:
    publish_each(1, 2)
    number()
    seen: list[Any] = []

    def handler(event: Event) -> None:
        seen.append(event.payload)
        one.leases.held[task.key].runs_out_at = 0.0

    task = task_of(leased(handler))
    with leaseholder("one", renews=False) as one:
        assert one.consume(task, 10).passed == 2
        assert Lease.objects.count() == 0
    assert seen == [1, 2]


def test_taken_over_at_once_when_the_connection_drops_otherwise_when_the_lease_ends() -> None:
    publish_each(1, 2)
    number()
    task = task_of(leased(Recorder()))
    died = threading.Event()

    def die(event: Event) -> None:
        died.set()
        raise KeyboardInterrupt

    one = leaseholder("one")
    with leaseholder("two") as two:
        with one as first:
            while first.leases.lock_key is None:
                died.wait(0.01)
            died.clear()
            lease = first.take(task, 10)
            assert lease
            assert two.consume(task, 10).passed == 0, "it is connected"
            assert [work.is_leased for work in look_for_work(task.declared, "two")] == [True]
        # Now its connection is closed, and its lease goes on for half a minute.
        wait_until(lambda: not look_for_work(task.declared, "two")[0].is_leased, "the server has noticed")
        (work,) = look_for_work(task.declared, "two")
        assert (work.has_new, work.crashed, work.is_leased) == (True, True, False)
        assert two.consume(task, 10).passed == 1
        # One whose connection cannot be seen is believed to live until its lease ends.
        Lease.objects.update(worker_id="three", lock_key=None, expires_at="2100-01-01T00:00:00Z")
        assert two.consume(task, 10).passed == 0
        Lease.objects.update(expires_at="2000-01-01T00:00:00Z")
        assert two.consume(task, 10).passed == 1
    assert (lag(), claims()) == (0, [])


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("fails", [lambda: fail_as("40P01"), lambda: fail_as("57P01"), cut_off])
def test_a_failing_database_gives_the_lease_back_and_does_not_count(fails: Callable[[], None], batch: bool) -> None:
    publish_each(1, 2, 3)
    number()
    calls: list[Any] = []
    attempts: list[int] = []

    def handler(given: Any) -> None:
        events = given if batch else [given]
        for event in events:
            calls.append(event.payload)
            attempts.append(event.attempt)
            if event.payload == 2 and calls.count(2) < 5:
                fails()

    declaration = leased(handler, batch=batch)
    drain(declaration, wait_period_ms=1)
    assert not DeadLetter.objects.exists()
    assert set(attempts) == {1}
    assert calls.count(2) == 5
    assert calls[-1] == 3
    if not batch:
        assert calls.count(1) == 1, "what was handled before is acknowledged"
    assert (lag(), claims()) == (0, [])


def test_a_failing_database_does_not_count_in_a_retry_either() -> None:
    publish_each("bad")
    calls: list[int] = []

    def handler(event: Event) -> None:
        calls.append(event.attempt)
        if len(calls) == 1:
            raise ValueError("the first")
        if len(calls) < 6:
            fail_as("57P01")

    drain(leased(handler, retry=[0]), wait_period_ms=1)
    assert calls == [1, 2, 2, 2, 2, 2]
    assert states() == [("bad", "resolved")]
    assert list(Attempt.objects.values_list("exception_message", flat=True)) == ["the first"]
    assert claims() == []


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("kind", ["begin", "atomic", "aborted", "closed"])
def test_a_transaction_that_a_handler_leaves_open_is_undone_and_fails_its_event(
    kind: str, batch: bool, effects_table: None
) -> None:
    from .helpers import effects, note

    publish_each("good", "open", "good too")

    def handler(given: Any) -> None:
        for event in given if batch else [given]:
            if event.payload == "open":
                if kind in ("atomic", "closed"):
                    transaction.atomic().__enter__()
                else:
                    connection.cursor().execute("BEGIN")
                if kind == "closed":
                    connection.close()
                    return
                if kind == "aborted":
                    try:
                        connection.cursor().execute("SELECT 1 / 0")
                    except Exception:
                        return
            note(event.payload)

    drain(leased(handler, batch=batch), wait_period_ms=1)
    assert effects() == ["good"] * (1 + batch) + ["good too"]
    assert states() == [("open", "dead")]
    assert DeadLetter.objects.get().exception_class == "pubsub.errors.HandlerEndedTransaction"
    assert lag() == 0


@pytest.mark.parametrize("statement", ["SET search_path TO nowhere", "SET ROLE pg_monitor"])
@pytest.mark.parametrize("fails", [False, True])
def test_what_a_handler_does_to_its_connection_stays_with_it(statement: str, fails: bool) -> None:
    publish_each(1, 2)
    seen: list[Any] = []

    def handler(event: Event) -> None:
        seen.append(event.payload)
        if event.payload == 1:
            connection.cursor().execute(statement)
            if fails:
                raise ValueError

    drain(leased(handler), batch_size=1, wait_period_ms=1)
    assert seen == [1, 2]
    assert states() == ([(1, "dead")] if fails else [])
    assert (lag(), claims()) == (0, [])


def test_stop_with_retries_continues_after_them() -> None:
    publish_each(1, 2, 3)
    handler = Recorder(fails=lambda event: event.payload == 1 and event.attempt < 3)
    drain(leased(handler, on_failure="stop", retry=[0, 0]), wait_period_ms=1)
    assert [(event.payload, event.attempt) for event in handler.events] == [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1)]
    assert (lag(), claims()) == (0, [])


def test_stop_continues_after_a_worker_died_between_a_failure_and_its_end() -> None:
    publish_each(1, 2)
    handler = Recorder(fails=lambda event: event.payload == 1 and event.attempt < 2)
    declaration = leased(handler, on_failure="stop", retry=[0])
    drain(declare(Recorder(), topic="work", group="others"))
    task = task_of(declaration)
    with leaseholder("dies", renews=False) as dies:
        lease = dies.take(task, 10)
        assert isinstance(lease, HeldLease)
        from pubsub.consuming.entries import by_transaction

        together = next(by_transaction(lease.all_entries()))
        dies.mode(task).set_aside(lease, together, ValueError(), set())
    Lease.objects.update(expires_at="2000-01-01T00:00:00Z")
    drain(declaration, wait_period_ms=1)
    assert [event.payload for event in handler.events] == [1, 2]
    assert (lag(), claims()) == (0, [])


def test_a_lease_that_is_no_longer_needed_is_removed() -> None:
    publish_each(1)
    number()
    task = task_of(leased(Recorder()))
    with leaseholder("dies", renews=False) as dies:
        assert dies.take(task, 10)
    Lease.objects.update(expires_at="2000-01-01T00:00:00Z")
    ConsumerOffset.objects.update(next_offset=2, next_position=10**6, passed=1)
    drain(task.declared)
    assert claims() == []


def test_replay_of_a_dead_letter() -> None:
    publish_each(1)
    drain(leased(Recorder(fails=lambda event: True)))
    actions.replay([DeadLetter.objects.get().pk], using="default")
    handler = Recorder()
    drain(leased(handler))
    assert [event.attempt for event in handler.events] == [2]
    assert states() == [(1, "resolved")]


def test_a_lost_lease_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    publish_each(1)
    number()

    def handler(event: Event) -> None:
        Lease.objects.all().delete()

    with leaseholder("one") as one:
        one.consume(task_of(leased(handler)), 10)
    assert "another worker has taken over" in caplog.text
    assert issubclass(LeaseLost, Exception)
