"""Hooks around handlers see each attempt once, however often its events are handed out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pubsub import Event, signals
from pubsub.monitoring import tracing
from tests.consuming.helpers import publish_each, publish_together
from tests.handlers import declare, drain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]

Seen = list[tuple[list[Any], str, bool]]


@pytest.fixture
def seen() -> Iterator[Seen]:
    """Payloads, how the call has ended, whether it repeats."""
    calls: Seen = []

    @signals.around_handler.add
    @contextmanager
    def watch(call: signals.Call) -> Iterator[None]:
        how = "went well"
        try:
            yield
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            calls.append(([event.payload for event in call], how, call.repeats))

    yield calls
    signals.around_handler.remove(watch)


def attempts(seen: Seen) -> list[tuple[list[Any], str]]:
    return [(payloads, how) for payloads, how, repeats in seen if how != "Abandoned" and not repeats]


def fail(event: Event) -> None:
    if event.payload == "bad":
        raise ValueError("bad")


def fail_in_batch(events: list[Event]) -> None:
    for event in events:
        fail(event)


def test_what_is_undone_with_its_batch_is_marked(seen: Seen) -> None:
    publish_each(1, 2, "bad", 4)
    drain(declare(fail, topic="work"))
    assert seen == [
        ([1], "went well", False),
        ([2], "went well", False),
        (["bad"], "Abandoned", False),
        ([1], "went well", True),
        ([2], "went well", True),
        (["bad"], "ValueError", False),
        ([4], "went well", False),
    ]


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once", "at_most_once"])
def test_each_attempt_is_seen_once(delivery: str, seen: Seen) -> None:
    publish_each(1, "bad", 3)
    drain(declare(fail, topic="work", delivery=delivery))
    assert attempts(seen) == [([1], "went well"), (["bad"], "ValueError"), ([3], "went well")]


def test_retries_are_attempts_of_their_own(seen: Seen) -> None:
    publish_each("bad")
    drain(declare(fail, topic="work", retry=[0, 0]), wait_period_ms=1)
    assert attempts(seen) == [(["bad"], "ValueError")] * 3


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
def test_a_batch_that_is_split_is_seen_once(delivery: str, seen: Seen) -> None:
    publish_each(1, "bad", 3)
    drain(declare(fail_in_batch, topic="work", delivery=delivery, batch=True))
    assert seen == [
        ([1, "bad", 3], "Abandoned", False),
        ([1], "went well", False),
        (["bad"], "ValueError", False),
        ([3], "went well", False),
    ]


def test_what_is_undone_by_a_spoiled_transaction_repeats(seen: Seen) -> None:
    def handler(event: Event) -> None:
        if event.payload == "spoils":
            transaction.get_connection().close()
        fail(event)

    publish_each("bad", 2, "spoils", 4)
    drain(declare(handler, topic="work"))
    counted = [payload for (payload,), how, repeats in seen if how != "Abandoned" and not repeats]
    assert sorted(map(str, counted)) == ["2", "4", "bad", "spoils"]


@pytest.mark.parametrize("error", [ValueError, StopIteration, GeneratorExit, SystemExit])
def test_observers_change_nothing_for_any_exception(error: type[BaseException], seen: Seen) -> None:
    publish_together(1, 2)

    def handler(event: Event) -> None:
        raise error

    worker = drain(declare(handler, topic="work"))
    assert worker.failed == 2
    assert attempts(seen) == [([1], error.__name__)]


def errors(exporter: InMemorySpanExporter) -> list[tuple[bool, Any, Any]]:
    return [
        (
            span.status.status_code is trace.StatusCode.ERROR,
            (span.attributes or {}).get("pubsub.abandoned", False),
            (span.attributes or {}).get("pubsub.repeats", False),
        )
        for span in exporter.get_finished_spans()
    ]


def test_a_failed_attempt_is_one_span_in_error() -> None:
    publish_each(1, "bad")
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.instrument(provider)
    try:
        drain(declare(fail, topic="work"))
    finally:
        tracing.uninstrument()
    assert errors(exporter) == [
        (False, False, False),
        (False, True, False),
        (False, False, True),
        (True, False, False),
    ]
