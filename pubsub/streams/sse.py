"""Server-sent events: the log over HTTP, for browsers and for programs, closed unless a permission opens it.

A stream ends after a while. The client then reconnects with the id of the last event it received, and the stream
continues right after that event, from the log.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, cast
from weakref import WeakKeyDictionary

import psycopg
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.generic import View

from pubsub.conf import conf
from pubsub.errors import CannotResume, InvalidSubscription, PubSubError, UnknownTopic
from pubsub.payloads.visible import json_line, visible_json
from pubsub.suggest import hint
from pubsub.topics.names import check_name, matches

from .listen import listen
from .listener import Listener
from .scan import Item
from .stream_request import StreamId, start_of, where_of

logger = logging.getLogger(__name__)

AT_ONCE = 100
"""At most this many events are sent in one piece, if they are already there."""

PIECE = 64_000
"""Characters after which a piece is written all the same. It waits in the server until the client has read it."""

RETRY_AFTER_S = 30
"""Seconds after which a refused client may try again."""

MOST_TOPICS = 100
"""Names and patterns in one request."""

_open: WeakKeyDictionary[Listener, Hashable] = WeakKeyDictionary()
"""What this process streams from, and for whom. Weak, because a response that is thrown away before it has begun is
never closed."""


Permission = Callable[..., Any]


class EventStream(View):
    """A stream of the events of some topics. For an ASGI server only.

    In a urlconf::

        path("events/", EventStream.as_view(topics=["orders.*"], permission=may_follow))

    ``permission`` is called with the request (a coroutine function is awaited; any other runs in a thread, so that it
    may query the database). True opens the stream; a mapping opens it for the events that match this filter; anything
    else, or no permission at all, is answered with 403. Events addressed to one group are never sent.

    A client may ask for less by ``?topic=…``, which may be repeated, and by ``?where=…``, a filter as JSON. It begins
    with what is published from now on, or where ``?start=…`` says: ``earliest``, or an offset. ``Last-Event-ID``,
    which browsers send when they come back, goes before that; if what followed has been dropped, or the log is another
    one than the id was made for, the answer is 204, which tells them not to come again. If the process serves
    ``PUBSUB["max_streams"]`` already, it is 503; 429, if ``PUBSUB["max_streams_per_user"]`` of them are this user's.

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
    """After so many seconds as well, whether the client reads or not."""
    heartbeat_s: float = 15
    """After this many seconds without events, a comment is sent."""
    retry_ms = 1000
    """Milliseconds after which the client reconnects."""
    buffer = 100
    """Events kept in memory for a client that reads slowly; those after them are read again from the log."""
    buffer_bytes = 4_000_000
    """Of memory that these events take, about."""
    raw = False
    """Whether what ``PUBSUB`` redacts is sent as well."""
    using: str | None = None

    async def user_of(self, request: HttpRequest) -> Hashable | None:
        """Whose stream it is, for ``max_streams_per_user``; None: unknown, and then only ``max_streams`` holds."""
        user = await request.auser() if hasattr(request, "auser") else None
        return user.pk if user is not None and user.is_authenticated else None

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
        user = await self.user_of(request)
        if busy := _busy(user):
            return busy
        try:
            topics = self._topics(request, kwargs.get("topic"))
            start = start_of(request, topics)
            where = where_of(request, allowed, raw=self.raw)
            listener = listen(
                topics,
                where=where,
                start=start,
                buffer=self.buffer,
                buffer_bytes=self.buffer_bytes,
                using=self.using,
            )
            _open[listener] = user
            await listener.__aenter__()
        except CannotResume as error:
            logger.info("a stream of events cannot go on where it was: %s", error)
            return HttpResponse(status=HTTPStatus.NO_CONTENT)
        except UnknownTopic as error:
            return _plain(HTTPStatus.BAD_REQUEST, self._about_unknown(error))
        except PubSubError as error:
            return _plain(HTTPStatus.BAD_REQUEST, str(error))
        return StreamingHttpResponse(
            self._cut_in_time(listener, self._stream(listener, StreamId(topics))),
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
        if len(asked) > max(MOST_TOPICS, len(own)):
            raise InvalidSubscription(f"topic is given {len(asked):,} times; at most {MOST_TOPICS} are allowed.")
        if not own:
            return [check_name(name) for name in asked]
        for name in asked:
            # A star in a requested name is only matched by a star in a pattern of the view.
            if not any(matches(pattern, name) for pattern in own):
                raise UnknownTopic(f"There is no topic {name!r} here; there are: {', '.join(own)}.")
        return asked

    def _about_unknown(self, error: UnknownTopic) -> str:
        """Other topics than the view's are not for the client to know."""
        if not error.name:
            return str(error)
        own = [self.topics] if isinstance(self.topics, str) else self.topics
        known = [name for name in error.known if any(matches(pattern, name) for pattern in own)]
        return f'There is no topic "{error.name}" here. {hint(error.name, known)}'

    async def _cut_in_time(self, listener: Listener, parts: AsyncGenerator[str]) -> AsyncIterator[str]:
        """The parts. While one of them is on its way to a client that does not read, nothing here is asked whether the
        time is over: then the task that waits for the client is cancelled, as if it had gone."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.max_age_s

        def cut(sending: "asyncio.Task[Any]") -> None:
            logger.warning("a stream of events is cut off: its client has not read for %g s", self.heartbeat_s)
            _end(listener)
            sending.cancel()

        async with aclosing(parts):
            async for part in parts:
                sending = cast("asyncio.Task[Any]", asyncio.current_task())
                timer = loop.call_at(max(end, loop.time() + self.heartbeat_s), cut, sending)
                try:
                    yield part
                finally:
                    timer.cancel()

    async def _stream(self, listener: Listener, stream_id: StreamId) -> AsyncGenerator[str]:
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
                size = 0
                while item is not None:
                    parts.append(f"id: {stream_id.behind(item)}\n{_written(item, raw=self.raw)}\n\n")
                    size += len(parts[-1])
                    position = item.position + 1
                    item = listener.get_item(0) if len(parts) < min(AT_ONCE, left) and size < PIECE else None
                left -= len(parts)
                yield "".join(parts)
        except (PubSubError, psycopg.Error) as error:
            # The client reconnects and gets an answer that says what is wrong: this stream's answer has already begun.
            logger.warning("a stream of events ended: %s", error)
        finally:
            _end(listener)


def _written(item: Item, *, raw: bool) -> str:
    """An event's lines. One that Python cannot hold is sent as such, so that the client knows of it."""
    if item.event is not None:
        return f"data: {visible_json(item.event, raw=raw)}"
    logger.warning("event %d of topic %s cannot be sent in a stream: %s", item.offset, item.topic, item.error)
    return f"event: unreadable\ndata: {json_line({'topic': item.topic, 'offset': item.offset})}"


def _end(listener: Listener) -> None:
    _open.pop(listener, None)
    listener.close()


def _busy(user: Hashable | None) -> HttpResponse | None:
    """The answer, if there is no room for one more stream."""
    own = sum(1 for other in _open.values() if other == user) if user is not None else 0
    if len(_open) >= conf().max_streams:
        logger.warning("a stream of events is refused: %d are open, as PUBSUB['max_streams'] allows", len(_open))
        busy = _plain(HTTPStatus.SERVICE_UNAVAILABLE, "There are as many streams as are served; come again later.")
    elif own >= conf().max_streams_per_user:
        logger.warning("a stream of events is refused: %d are one user's, as max_streams_per_user allows", own)
        busy = _plain(HTTPStatus.TOO_MANY_REQUESTS, f"You follow {own} streams already; close one of them first.")
    else:
        return None
    busy["Retry-After"] = str(RETRY_AFTER_S)
    return busy


def _plain(status: HTTPStatus, text: str) -> HttpResponse:
    return HttpResponse(text + "\n", status=status, content_type="text/plain; charset=utf-8")
