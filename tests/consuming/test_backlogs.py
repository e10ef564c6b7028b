"""A worker with a backlog goes on in a partition with what it has read ahead, as long as that is what comes next."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from pubsub.models import ConsumerOffset
from pubsub.signals import batch_handled

from ..handlers import Recorder, declare, drain
from .helpers import lag, next_offset, publish_each, publish_together, states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]


def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each batch passes, as it is told."""
    told: list[int] = []

    def note(passed: int, **facts: Any) -> None:
        told.append(passed)

    monkeypatch.setattr(batch_handled, "receivers", [])
    batch_handled.connect(note, weak=False)
    return told


def reads(queries: CaptureQueriesContext) -> int:
    return sum("pubsub_read_v1(" in query["sql"] for query in queries)


def test_nothing_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    publish_each(*range(100))
    told = batches(monkeypatch)
    handler = Recorder()

    with CaptureQueriesContext(connection) as queries:
        drain(declare(handler, topic="work"), batch_size=10)

    assert handler.payloads == list(range(100))
    assert told == [10] * 10
    assert reads(queries) <= 6
    assert lag() == 0


def test_each_batch_ends_with_a_transaction_wherever_what_was_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    for first in range(0, 70, 7):
        publish_together(*range(first, first + 7))
    told = batches(monkeypatch)
    handler = Recorder()

    drain(declare(handler, topic="work"), batch_size=10)

    assert handler.payloads == list(range(70))
    assert told == [14] * 5


def test_a_failure_in_what_was_read_ahead_costs_its_own_transaction() -> None:
    publish_each(*range(17))
    publish_together("a", "bad", "b")
    publish_each(*range(20, 60))
    handler = Recorder(fails=lambda event: event.payload == "bad")

    drain(declare(handler, topic="work"), batch_size=10)

    assert states() == [("a", "dead"), ("bad", "dead"), ("b", "dead")]
    assert set(range(17)) | set(range(20, 60)) <= set(handler.payloads)
    assert (lag(), next_offset()) == (0, 61)


def test_what_was_read_ahead_is_forgotten_where_the_place_has_been_moved() -> None:
    publish_each(*range(100))
    handler = Recorder()

    def move(**facts: Any) -> None:
        if next_offset() == 21:
            place = ConsumerOffset.objects.get(group_id="readers")
            ConsumerOffset.objects.update(
                next_offset=91, next_position=place.next_position + 70, passed=place.passed + 70
            )

    batch_handled.connect(move)
    try:
        drain(declare(handler, topic="work"), batch_size=10)
    finally:
        batch_handled.disconnect(move)

    assert handler.payloads == [*range(20), *range(90, 100)]
    assert lag() == 0


def test_small_ones_are_read_two_at_a_time_and_large_ones_are_not() -> None:
    for text, expected in (("", 2), ("x" * 60_000, 1)):
        publish_each(*[{"n": n, "text": text} for n in range(40)])
        with CaptureQueriesContext(connection) as queries:
            drain(declare(Recorder(), topic="work"), batch_size=10)
        # Each reads one entry more than it needs; the next one has it in hand.
        assert reads(queries) == (3 if expected == 2 else 4)
