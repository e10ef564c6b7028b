"""Spans: one trace from the publisher to the handler, with nothing of the payload in it."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core import checks
from django.db import transaction
from django.test import override_settings
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as conventions

from pubsub import Event, publish, publish_many, publish_on_commit, signals
from pubsub.errors import InvalidEvent
from pubsub.models import OutboxMessage
from pubsub.monitoring import tracing
from tests.handlers import Recorder, declare, drain

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "4929-the-payload"


@pytest.fixture
def provider() -> TracerProvider:
    return TracerProvider()


@pytest.fixture
def spans(provider: TracerProvider) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.instrument(provider)
    yield exporter
    tracing.uninstrument()


def handled(*events: Event) -> None:
    """As a consumer does it."""
    with signals.around(*events):
        pass


def published_events(**changes: Any) -> list[Event]:
    """What was published, as its consumers would see it."""
    recorder = Recorder()
    tracing.uninstrument()
    drain(declare(recorder))
    return recorder.events


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context
    return context.trace_id, context.span_id


def test_publishing_is_a_span_of_the_callers_trace(provider: TracerProvider, spans: InMemorySpanExporter) -> None:
    with provider.get_tracer("shop").start_as_current_span("checkout") as checkout, transaction.atomic():
        event_id = publish("default", {"card": SECRET}, type="order.created")
    span, _ = spans.get_finished_spans()
    assert (span.name, span.kind, span.status.status_code) == (
        "publish default",
        trace.SpanKind.PRODUCER,
        trace.StatusCode.UNSET,
    )
    assert span.parent
    assert span.parent.span_id == checkout.get_span_context().span_id
    assert span.attributes == {
        conventions.MESSAGING_SYSTEM: "django-outbox-pubsub",
        conventions.MESSAGING_OPERATION_NAME: "publish",
        conventions.MESSAGING_OPERATION_TYPE: "send",
        conventions.MESSAGING_DESTINATION_NAME: "default",
        conventions.MESSAGING_MESSAGE_ID: str(event_id),
        "pubsub.event.type": "order.created",
    }
    trace_id, span_id = ids(span)
    traceparent = OutboxMessage.objects.get().metadata["traceparent"]
    assert traceparent.startswith(f"00-{trace_id:032x}-{span_id:016x}-0")


def test_many_are_one_span(spans: InMemorySpanExporter) -> None:
    with transaction.atomic():
        publish_many("default", ({"payload": n} for n in range(3)))
    (span,) = spans.get_finished_spans()
    assert span.attributes
    assert span.attributes[conventions.MESSAGING_BATCH_MESSAGE_COUNT] == 3
    assert len(set(OutboxMessage.objects.values_list("metadata__traceparent", flat=True))) == 1


def test_after_the_commit_an_event_still_belongs_to_where_it_was_published(
    provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    with transaction.atomic(), provider.get_tracer("shop").start_as_current_span("checkout") as checkout:
        publish_on_commit("default", 1)
    trace_id = checkout.get_span_context().trace_id
    assert f"{trace_id:032x}" in OutboxMessage.objects.get().metadata["traceparent"]


def test_a_publishers_own_trace_context_stays(spans: InMemorySpanExporter) -> None:
    theirs = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with transaction.atomic():
        publish("default", 1, metadata={"traceparent": theirs})
    assert OutboxMessage.objects.get().metadata == {"traceparent": theirs}


def test_a_handler_works_in_a_child_of_the_publishers_span(spans: InMemorySpanExporter) -> None:
    with transaction.atomic():
        event_id = publish("default", 1, type="order.created")
    (published,) = spans.get_finished_spans()
    (event,) = published_events()
    tracing.instrument(provider_of(spans))
    with signals.around(event):
        inside = trace.get_current_span().get_span_context()
    span = spans.get_finished_spans()[-1]
    assert (span.name, span.kind) == ("process default", trace.SpanKind.CONSUMER)
    assert ids(span) == (inside.trace_id, inside.span_id)
    assert span.parent
    assert (span.parent.trace_id, span.parent.span_id) == ids(published)
    assert span.attributes == {
        conventions.MESSAGING_SYSTEM: "django-outbox-pubsub",
        conventions.MESSAGING_OPERATION_NAME: "process",
        conventions.MESSAGING_OPERATION_TYPE: "process",
        conventions.MESSAGING_DESTINATION_NAME: "default",
        conventions.MESSAGING_DESTINATION_PARTITION_ID: str(event.partition),
        conventions.MESSAGING_CONSUMER_GROUP_NAME: "readers",
        conventions.MESSAGING_MESSAGE_ID: str(event_id),
        "pubsub.event.type": "order.created",
        "pubsub.event.offset": event.offset,
        "pubsub.event.attempt": 1,
    }


def provider_of(spans: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider


def test_a_batch_is_linked_to_all_that_published_its_events(spans: InMemorySpanExporter) -> None:
    for n in range(2):
        with transaction.atomic():
            publish("default", n, key="k")
    tracing.uninstrument()
    with transaction.atomic():
        publish("default", "untraced", key="k")
    first, second = spans.get_finished_spans()
    events = published_events()
    tracing.instrument(provider_of(spans))
    handled(*events)
    span = spans.get_finished_spans()[-1]
    assert span.parent is None
    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [ids(first), ids(second)]
    assert [(link.attributes or {})[conventions.MESSAGING_MESSAGE_ID] for link in span.links] == [
        str(event.id) for event in events[:2]
    ]
    assert (span.attributes or {})[conventions.MESSAGING_BATCH_MESSAGE_COUNT] == 3


def test_links_instead_of_children(spans: InMemorySpanExporter) -> None:
    with transaction.atomic():
        publish("default", 1)
    (published,) = spans.get_finished_spans()
    (event,) = published_events()
    tracing.instrument(provider_of(spans), links=True)
    handled(event)
    span = spans.get_finished_spans()[-1]
    assert span.parent is None
    assert [link.context.trace_id for link in span.links] == [ids(published)[0]]


@pytest.mark.parametrize("found", ["", "nonsense", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", 5, None])
def test_an_invalid_trace_context_does_no_harm(
    spans: InMemorySpanExporter, found: object, caplog: pytest.LogCaptureFixture
) -> None:
    tracing.uninstrument()
    with transaction.atomic():
        publish("default", 1, metadata={"traceparent": found})
    (event,) = published_events()
    tracing.instrument(provider_of(spans))
    handled(event)
    (span,) = spans.get_finished_spans()
    assert (span.parent, list(span.links)) == (None, [])
    assert "observer failed" not in caplog.text


def test_an_error_is_recorded_without_the_payload(spans: InMemorySpanExporter) -> None:
    with transaction.atomic():
        publish("default", {"card": SECRET})
    (event,) = published_events()
    tracing.instrument(provider_of(spans))
    with pytest.raises(ValueError, match=SECRET), signals.around(event):
        raise ValueError(f"cannot charge {event.payload}")
    span = spans.get_finished_spans()[-1]
    assert (span.status.status_code, (span.attributes or {})["error.type"]) == (
        trace.StatusCode.ERROR,
        "builtins.ValueError",
    )
    (happened,) = span.events
    assert "test_tracing.py" in str((happened.attributes or {})["exception.stacktrace"])
    assert SECRET not in span.to_json()


def test_a_refused_event_is_an_error_of_the_publishers_span(spans: InMemorySpanExporter) -> None:
    with pytest.raises(InvalidEvent), transaction.atomic():
        publish("default", 1, type=5)  # type: ignore[arg-type]
    (span,) = spans.get_finished_spans()
    assert (span.attributes or {})["error.type"] == "pubsub.errors.InvalidEvent"


def test_instrumenting_twice_makes_no_second_span(spans: InMemorySpanExporter) -> None:
    tracing.instrument(provider_of(spans))
    with transaction.atomic():
        publish("default", 1)
    assert len(spans.get_finished_spans()) == 1


def test_the_setting_switches_it_on() -> None:
    from django.apps import apps

    with override_settings(PUBSUB={"tracing": True}):
        apps.get_app_config("pubsub").ready()
        try:
            assert signals.around_publishing
            assert signals.around_handler
            assert not checks.run_checks(tags=["pubsub"])
        finally:
            tracing.uninstrument()
    assert not signals.around_publishing
