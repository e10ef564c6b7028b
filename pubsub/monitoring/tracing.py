"""OpenTelemetry: publishing and handling are spans of one trace. Needs the `otel` extra.

The trace context travels with the event, in its metadata, as the W3C writes it (`traceparent`, `tracestate`): through
the outbox, delays, retries and replays. What a publisher has put there itself is left as it is.

Switched on by ``PUBSUB["tracing"] = True``, or by a call; where the spans go is OpenTelemetry's own configuration.

>>> instrument()
>>> uninstrument()
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pubsub.errors import MissingExtra
from pubsub.events import Event
from pubsub.signals import Abandoned, Call, Publishing, around_handler, around_publishing

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingExtra("opentelemetry-api", "otel") from error

SYSTEM = "django-outbox-pubsub"

_w3c = TraceContextTextMapPropagator()


def instrument(tracer_provider: trace.TracerProvider | None = None, *, links: bool = False) -> None:
    """Makes spans from now on, once, however often it is called.

    The span of a handler is a child of the one that published its event; those of handlers that take a batch are
    linked to all of theirs. With ``links=True`` all are linked, and begin traces of their own: better where events are
    handled, or replayed, long after they were published.

    >>> instrument(links=True)
    >>> uninstrument()
    """
    uninstrument()
    global _installed
    _installed = _Spans(trace.get_tracer("pubsub", tracer_provider=tracer_provider), links)
    around_publishing.add(_installed.publishing)
    around_handler.add(_installed.handling)


def uninstrument() -> None:
    """Makes no more spans."""
    global _installed
    if _installed is not None:
        around_publishing.remove(_installed.publishing)
        around_handler.remove(_installed.handling)
        _installed = None


class _Spans:
    def __init__(self, tracer: trace.Tracer, links: bool) -> None:
        self._tracer = tracer
        self._links = links

    @contextmanager
    def publishing(self, act: Publishing) -> Iterator[None]:
        attributes = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "publish",
            "messaging.operation.type": "send",
            "messaging.destination.name": str(act.topic),
            **({"pubsub.event.type": act.type} if act.type and isinstance(act.type, str) else {}),
        }
        with self._span(f"publish {act.topic}", trace.SpanKind.PRODUCER, attributes) as span:
            _w3c.inject(act.metadata)
            yield
            if act.event_id:
                span.set_attribute("messaging.message.id", str(act.event_id))
            if act.many:
                span.set_attribute("messaging.batch.message_count", act.count)

    @contextmanager
    def handling(self, events: Call) -> Iterator[None]:
        first = events[0]
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": first.topic,
            "messaging.destination.partition.id": str(first.partition),
            "messaging.consumer.group.name": first.group,
            **({"pubsub.repeats": True} if events.repeats else {}),
        }
        if len(events) == 1:
            attributes |= {
                "messaging.message.id": str(first.id),
                "pubsub.event.offset": first.offset,
                "pubsub.event.attempt": first.attempt,
                **({"pubsub.event.type": first.type} if first.type else {}),
            }
        else:
            attributes["messaging.batch.message_count"] = len(events)
        origins = [(event, _origin(event)) for event in events]
        known = [(event, origin) for event, origin in origins if origin is not None]
        options: dict[str, Any] = {}
        if len(events) == 1 and known and not self._links:
            options["context"] = trace.set_span_in_context(trace.NonRecordingSpan(known[0][1]))
        else:
            options["links"] = [trace.Link(origin, {"messaging.message.id": str(event.id)}) for event, origin in known]
        with self._span(f"process {first.topic}", trace.SpanKind.CONSUMER, attributes, **options):
            yield

    @contextmanager
    def _span(
        self, name: str, kind: trace.SpanKind, attributes: dict[str, Any], **options: Any
    ) -> Iterator[trace.Span]:
        with self._tracer.start_as_current_span(
            name,
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
            **options,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _record(span, error)
                raise


_installed: _Spans | None = None


def _origin(event: Event) -> trace.SpanContext | None:
    """The span that published the event, if it was published in one."""
    carrier = {
        name: value
        for name, value in event.metadata.items()
        if name in ("traceparent", "tracestate") and isinstance(value, str)
    }
    context = trace.get_current_span(_w3c.extract(carrier)).get_span_context() if carrier else None
    return context if context is not None and context.is_valid else None


def _record(span: trace.Span, error: BaseException) -> None:
    """What failed and where; not the exception's message, in which there may be anything of the payload. An abandoned
    call is no error: the attempt is still to come."""
    if isinstance(error, Abandoned):
        span.set_attribute("pubsub.abandoned", True)
        return
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    span.set_status(trace.StatusCode.ERROR, kind)
    span.set_attribute("error.type", kind)
    frames = "".join(traceback.format_tb(error.__traceback__))
    span.add_event("exception", {"exception.type": kind, "exception.stacktrace": frames})
