"""Server-sent events: the log over HTTP, for browsers and for programs, closed unless a permission opens it.

A stream ends after a while. The client then reconnects with the id of the last event it received, and the stream
continues right after that event, from the log.
"""

import inspect
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast
from weakref import WeakSet

import psycopg
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.generic import View

from pubsub.conf import conf
from pubsub.errors import CannotResume, InvalidSubscription, PubSubError, UnknownTopic
from pubsub.topics.names import check_name, is_pattern, matches

from .listen import listen
from .listener import Item, Listener, Position, Start
from .scan import Tip

logger = logging.getLogger(__name__)

AT_ONCE = 100
"""At most this many events are sent in one piece, if they are already there."""

RETRY_AFTER_S = 30
"""Seconds after which a refused client may try again."""

_open: WeakSet[Listener] = WeakSet()
"""The open streams of this process. Weak, because a response that is discarded before it begins is never closed."""

_encode = DjangoJSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Permission = Callable[..., Any]


class EventStream(View):
    """A stream of the events of some topics. For an ASGI server only.

    In a urlconf::

        path("events/", EventStream.as_view(topics=["orders.*"], permission=may_follow))

    ``permission`` is called with the request (a coroutine function is awaited; any other runs in a thread, so that it
    may query the database). True opens the stream; a mapping opens it for the events that match this filter; anything
    else, or no permission at all, is answered with 403. Events addressed to one group are never sent.

    A client narrows it down by ``?topic=…``, which may be repeated, and by ``?where=…``, a filter as JSON. The stream
    begins with new events, or where ``?start=…`` says: ``earliest``, or an offset. ``Last-Event-ID``, which browsers
    send when they reconnect, takes precedence. If the events after it have been dropped, the answer is 204, which stops
    browsers from reconnecting. If the process already serves ``PUBSUB["max_streams"]`` streams, the answer is 503.

    >>> EventStream.as_view(topics=["orders.*"], max_events=100).view_class.__name__
    'EventStream'
    """

    http_method_names = ["get", "options"]

    topics: Sequence[str] | str = ()
    """Names or patterns. A keyword argument ``topic`` in the URL selects one, of these if any are given."""
    permission: Permission | None = None
    max_events = 10_000
    """After this many events a stream ends, and the client reconnects."""
    max_age_s: float = 600
    """The same after this many seconds."""
    heartbeat_s: float = 15
    """After this many seconds without events, a comment is sent."""
    retry_ms = 1000
    """Milliseconds after which the client reconnects."""
    buffer = 100
    """Events held in memory for a slow client; later ones are read from the log when there is room."""
    using: str | None = None

    async def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        allowed = await self._ask_permission(request)
        if allowed is not True and not isinstance(allowed, Mapping):
            return _plain(HTTPStatus.FORBIDDEN, "You may not follow these events.")
        if not isinstance(request, ASGIRequest):
            return _plain(
                HTTPStatus.NOT_IMPLEMENTED,
                "Streams of events need an ASGI server, such as `uvicorn project.asgi:application`: each would occupy "
                "a thread of this WSGI server for as long as it lasts.",
            )
        if len(_open) >= conf().max_streams:
            logger.warning("refused a stream: %d are open, the limit of PUBSUB['max_streams']", len(_open))
            busy = _plain(HTTPStatus.SERVICE_UNAVAILABLE, "Too many streams are open. Try again later.")
            busy["Retry-After"] = str(RETRY_AFTER_S)
            return busy
        try:
            topics = self._topics(request, kwargs.get("topic"))
            start = _start(request, topics)
            where = _where(request, allowed)
            listener = listen(topics, where=where, start=start, buffer=self.buffer, using=self.using)
            _open.add(listener)
            await listener.__aenter__()
        except CannotResume:
            return HttpResponse(status=HTTPStatus.NO_CONTENT)
        except PubSubError as error:
            return _plain(HTTPStatus.BAD_REQUEST, str(error))
        return StreamingHttpResponse(
            self._stream(listener, StreamId(topics)),
            content_type="text/event-stream",
            headers={"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"},
        )

    async def _ask_permission(self, request: HttpRequest) -> Any:
        if self.permission is None:
            return False
        if inspect.iscoroutinefunction(self.permission):
            return await self.permission(request)
        return await sync_to_async(self.permission)(request)

    def _topics(self, request: HttpRequest, of_url: str | None) -> list[str]:
        """The topics that the client asks for, if the view has them."""
        own = [self.topics] if isinstance(self.topics, str) else list(self.topics)
        if not own and not of_url:
            raise ImproperlyConfigured("An EventStream needs topics: as_view(topics=[…]), or `topic` in its URL.")
        asked = [of_url] if of_url else request.GET.getlist("topic") or own
        if not own:
            return [check_name(name) for name in asked]
        for name in asked:
            # A star in a requested name is only matched by a star in a pattern of the view.
            if not any(matches(pattern, name) for pattern in own):
                raise UnknownTopic(f"There is no topic {name!r} here; there are: {', '.join(own)}.")
        return asked

    async def _stream(self, listener: Listener, stream_id: "StreamId") -> AsyncIterator[str]:
        end = time.monotonic() + self.max_age_s
        left = self.max_events
        position = 0
        try:
            yield f"retry: {self.retry_ms}\n\n"
            if listener.start == "latest" and listener.opened_at:
                # So that a client that is cut off before the first event can resume from here.
                position = listener.opened_at.position
                yield f"id: {stream_id.at(listener.opened_at)}\n\n"
            while left > 0 and time.monotonic() < end:
                item = await listener.aget_item(min(self.heartbeat_s, end - time.monotonic()))
                if item is None:
                    tip = listener.passed
                    if tip and tip.position > position:
                        # If there were no events for long, the next stream need not read that part again.
                        position = tip.position
                        yield f"id: {stream_id.at(tip)}\n"
                    yield ": alive\n\n"
                    continue
                parts: list[str] = []
                while item is not None:
                    parts.append(f"id: {stream_id.behind(item)}\ndata: {_encode(item.event.as_json())}\n\n")
                    position = item.position + 1
                    item = listener.get_item(0) if len(parts) < min(AT_ONCE, left) else None
                left -= len(parts)
                yield "".join(parts)
        except (PubSubError, psycopg.Error) as error:
            # The client reconnects and gets an answer that says what is wrong: this stream's answer has already begun.
            logger.warning("a stream of events ended: %s", error)
        finally:
            _open.discard(listener)
            listener.close()


class StreamId:
    """The id of an event in a stream, as text: the offset in a single topic, or the position in the log of several."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topic = None if len(topics) > 1 or is_pattern(topics[0]) else topics[0]

    def behind(self, item: Item) -> str:
        return str(item.event.offset) if self.topic else f"@{item.position}"

    def at(self, tip: Tip) -> str:
        return str(tip.offsets.get(self.topic, 1) - 1) if self.topic else f"@{tip.position - 1}"

    def start_behind(self, text: str) -> Start:
        number = text if self.topic else text.removeprefix("@")
        if not number.isdecimal() or len(number) > 18 or bool(self.topic) == text.startswith("@"):
            raise CannotResume(f"{text!r} is not an id of this stream.")
        return int(number) + 1 if self.topic else Position(int(number) + 1)


def _start(request: HttpRequest, topics: Sequence[str]) -> Start:
    last = request.headers.get("Last-Event-ID") or request.GET.get("last_event_id")
    if last:
        return StreamId(topics).start_behind(last)
    start = request.GET.get("start", "latest")
    if start.isdecimal() and len(start) <= 18:
        return int(start)
    if start in ("earliest", "latest"):
        return cast(Start, start)
    raise InvalidSubscription(f"start must be 'latest', 'earliest' or an offset of at least 1, not {start!r}.")


def _where(request: HttpRequest, allowed: Mapping[str, Any] | bool) -> Mapping[str, Any]:
    """The filter that the client asks for, combined with the one that it is limited to."""
    try:
        asked = json.loads(request.GET.get("where") or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidSubscription(f"where must be a filter as JSON: {error}.") from error
    if not isinstance(asked, dict):
        raise InvalidSubscription('where must be a filter as JSON, such as {"type": "order.created"}.')
    both = [where for where in (asked, allowed) if isinstance(where, Mapping) and where]
    return {"all": both} if both else {}


def _plain(status: HTTPStatus, text: str) -> HttpResponse:
    return HttpResponse(text + "\n", status=status, content_type="text/plain; charset=utf-8")
