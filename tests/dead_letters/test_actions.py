"""What failed: tried again, replayed by an operator, discarded – once each, for its own group only."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from pubsub import publish, publish_many
from pubsub.dead_letters import actions
from pubsub.models import ConsumerOffset, DeadLetter
from tests.handlers import Recorder, declare, drain

pytestmark = pytest.mark.django_db(transaction=True)


def fail_together(*payloads: object) -> None:
    with transaction.atomic():
        publish_many("default", [{"payload": payload, "key": "one"} for payload in payloads])


def test_retries_happen_after_their_delays_then_the_event_is_dead() -> None:
    fail_together("bad", "beside it")
    handler = Recorder(fails=lambda event: event.payload == "bad")
    drain(declare(handler, retry=(0, 0)))
    assert [letter.state for letter in DeadLetter.objects.all()] == ["dead", "dead"]
    assert {letter.attempts for letter in DeadLetter.objects.all()} == {3}
    # The first time in the batch, once more alone, then twice after a delay.
    assert [event.attempt for event in handler.events if event.payload == "bad"] == [1, 1, 2, 3]


def test_a_retry_waits_for_its_time() -> None:
    fail_together("bad")
    drain(declare(Recorder(fails=lambda event: True), retry=(3600,)))
    letter = DeadLetter.objects.get()
    assert letter.state == "retrying"
    assert letter.next_attempt_at is not None
    assert 3590 < (letter.next_attempt_at - letter.updated_at).total_seconds() <= 3601


def test_replay_brings_the_whole_transaction_to_its_own_group_with_the_attempt() -> None:
    fail_together(1, 2)
    other = Recorder()
    drain(declare(Recorder(fails=lambda event: event.payload == 2)), declare(other, group="others"))
    seen = len(other.events)
    letter = DeadLetter.objects.get(payload=2)
    assert len(actions.replay([letter.pk], using="default")) == 2
    assert actions.replay([letter.pk], using="default") == []
    handler = Recorder()
    drain(declare(handler), declare(other, group="others"))
    assert handler.payloads == [1, 2]
    assert [event.attempt for event in handler.events] == [2, 2]
    assert len(other.events) == seen
    assert {letter.state for letter in DeadLetter.objects.all()} == {"resolved"}


def test_two_people_who_press_at_once_replay_once() -> None:
    fail_together(*range(5))
    drain(declare(Recorder(fails=lambda event: True)))
    ids = list(DeadLetter.objects.values_list("pk", flat=True))
    together = threading.Barrier(4)

    def press() -> int:
        together.wait()
        try:
            return len(actions.replay(ids, using="default"))
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as people:
        assert sorted(answer.result() for answer in [people.submit(press) for _ in range(4)]) == [0, 0, 0, 5]


def test_a_discarded_event_is_never_retried() -> None:
    fail_together(1, 2)
    drain(declare(Recorder(fails=lambda event: True), retry=(0, 3600)))
    letter = DeadLetter.objects.first()
    assert letter is not None
    assert letter.state == "retrying"
    assert len(actions.discard([letter.pk], using="default")) == 2
    assert actions.replay([letter.pk], using="default") == []
    handler = Recorder()
    drain(declare(handler))
    assert handler.events == []
    assert {letter.state for letter in DeadLetter.objects.all()} == {"discarded"}


def test_an_event_that_fails_again_after_a_seek_back_keeps_counting() -> None:
    fail_together("bad")
    failing = declare(Recorder(fails=lambda event: True))
    drain(failing)
    actions.replay([DeadLetter.objects.get().pk], using="default")
    drain(declare(Recorder()))
    assert DeadLetter.objects.get().state == "resolved"
    ConsumerOffset.objects.update(next_offset=1, next_position=1, passed=0)
    drain(failing)
    letter = DeadLetter.objects.get()
    assert (letter.state, letter.attempts) == ("dead", 3)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message for you")


@pytest.mark.parametrize(
    "error", [ValueError("nul \x00"), ValueError("half \ud800"), Unprintable(), ValueError("x" * 10**6)]
)
def test_no_exception_blocks_the_partition(error: Exception) -> None:
    fail_together("bad")
    with transaction.atomic():
        publish("default", "good", key="one")
    handled = []

    def handler(event: object) -> None:
        if event.payload == "bad":  # type: ignore[attr-defined]
            raise error
        handled.append(event)

    drain(declare(handler))
    assert len(handled) == 1
    assert DeadLetter.objects.get().state == "dead"
