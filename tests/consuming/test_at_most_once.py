"""At most once: nothing is handled twice, and what may have been handled is there for people to look at."""

from asyncio import CancelledError
from typing import Any

import pytest
from psycopg.errors import AdminShutdown

from pubsub import Delivery, RetryLater
from pubsub.dead_letters import actions
from pubsub.models import DeadLetter, Lease
from tests.handlers import Recorder, declare, drain
from tests.sessions import wait_until

from .helpers import (
    claims,
    consumer,
    effects,
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

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]


def once(handler: Any, **options: Any) -> Any:
    return declare(handler, topic="work", delivery=Delivery.AT_MOST_ONCE, **options)


def test_the_cursor_moves_first() -> None:
    publish_each(*range(5))
    offsets: list[int] = []
    drain(once(lambda event: offsets.append(next_offset())), batch_size=3)
    assert offsets == [4, 4, 4, 6, 6]
    assert (lag(), claims()) == (0, [])


@pytest.mark.parametrize("error", [ValueError(), RetryLater(0), AdminShutdown(), SystemExit(), CancelledError()])
@pytest.mark.parametrize("batch", [False, True])
def test_nothing_is_attempted_twice_whatever_the_reason(error: BaseException, batch: bool) -> None:
    publish_each(1, 2, 3)
    calls: list[Any] = []

    def handler(given: Any) -> None:
        for event in given if batch else [given]:
            calls.append(event.payload)
            if event.payload == 2:
                raise error

    drain(once(handler, batch=batch))
    if batch:
        assert calls == [1, 2]
        assert states() == [(1, "dead"), (2, "dead"), (3, "dead")]
    else:
        assert calls == [1, 2, 3]
        assert states() == [(2, "dead")]
    assert (lag(), claims()) == (0, [])


def test_stop_leaves_events_that_were_not_begun_for_later() -> None:
    publish_each(1, "bad", 3, 4)
    handler = Recorder(fails=lambda event: event.payload == "bad")
    declaration = once(handler, on_failure="stop")
    drain(declaration)
    assert handler.payloads == [1, "bad"]
    assert (next_offset(), lag(), claims()) == (3, 2, [])
    actions.discard([DeadLetter.objects.get().pk], using="default")
    drain(declaration)
    assert handler.payloads == [1, "bad", 3, 4]
    assert (lag(), claims()) == (0, [])


def test_a_transaction_may_be_split_but_no_event_is_lost() -> None:
    publish_together(*range(7))
    handler = Recorder()
    drain(once(handler), batch_size=3)
    assert handler.payloads == list(range(7))


def test_a_dead_workers_batch_becomes_dead_letters_without_new_events(caplog: pytest.LogCaptureFixture) -> None:
    publish_each(1, 2)
    number()
    handler = Recorder()
    task = task_of(once(handler))
    with leaseholder("dies", renews=False) as dies:
        assert dies.take(task, 10)
    assert [work.is_leased for work in look_for_work(task.declared)] == [True], "it may live"
    Lease.objects.update(expires_at="2000-01-01T00:00:00Z")
    drain(task.declared)
    assert handler.events == []
    assert states() == [(1, "dead"), (2, "dead")]
    assert {letter.exception_class for letter in DeadLetter.objects.all()} == {"pubsub.errors.WorkerDied"}
    assert claims() == []
    said = "a worker died with offsets 1 to 2 in hand, which may have been handled: 2 dead letters"
    assert [record.levelname for record in caplog.records if said in record.getMessage()] == ["ERROR"]


@pytest.mark.parametrize("on_failure", ["dead_letter", "stop", "park_key"])
def test_a_dead_workers_batch_becomes_dead_letters_even_if_a_replay_comes_first(on_failure: str) -> None:
    publish_each("bad", key="other")
    drain(once(Recorder(fails=lambda event: True)))
    publish_each(1, 2)
    number()
    handler = Recorder()
    task = task_of(once(handler))
    with leaseholder("dies", renews=False) as dies:
        assert dies.take(task, 10)
    actions.replay([DeadLetter.objects.get().pk], using="default")
    Lease.objects.update(expires_at="2000-01-01T00:00:00Z")
    drain(once(handler, on_failure=on_failure))
    assert handler.payloads == ["bad"]
    assert states() == [("bad", "resolved"), (1, "dead"), (2, "dead")]
    assert claims() == []


def test_no_event_is_handled_before_its_transaction_turns_out_to_have_to_wait() -> None:
    publish_each("bad", key="a")
    handler = Recorder(fails=lambda event: event.payload == "bad" and event.attempt == 1)
    declaration = once(handler, on_failure="park_key")
    drain(declaration)
    from django.db import transaction

    from pubsub import publish

    with transaction.atomic():
        publish("work", "free", key="b")
        publish("work", "blocked", key="a")
    drain(declaration)
    assert handler.payloads == ["bad"]
    actions.replay([DeadLetter.objects.get(payload="bad").pk], using="default")
    drain(declaration)
    assert handler.payloads == ["bad", "bad", "free", "blocked"]


def test_a_killed_process(effects_table: None) -> None:
    publish_each("one", "kill", "three")
    with consumer("fatal", delivery="at_most_once") as process:
        process.wait_for('begins "kill"')
        assert process.ends() == -9
    with consumer("fatal", delivery="at_most_once") as process:
        wait_until(lambda: len(states()) == 3, "they are dead letters, at once, as its connection is gone")
        publish_each("four")
        process.wait_for('begins "four"')
    assert effects() in (["one", "kill"], ["one", "kill", "four"])
    assert states() == [("one", "dead"), ("kill", "dead"), ("three", "dead")]
