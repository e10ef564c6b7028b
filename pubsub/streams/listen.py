"""Listening in memory: events as they come, without a subscription, a cursor in the database, or a promise.

A process reads each database's log once for all its listeners, in one thread, on one connection, and evaluates each
distinct filter once. What a listener costs beyond that is its buffer.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import DEFAULT_DB_ALIAS

from pubsub.errors import InvalidSubscription
from pubsub.subscriptions.filters import compile
from pubsub.topics.names import check_name, check_pattern, is_pattern

from .listener import Listener, Overflow, Position, Start
from .reader_thread import LogReaderThread
from .scan import Interest

_readers: dict[str, LogReaderThread] = {}
"""By database."""
_lock = threading.Lock()


def listen(
    topics: str | Sequence[str],
    *,
    where: Mapping[str, Any] | None = None,
    start: Start = "latest",
    buffer: int = 1000,
    overflow: Overflow = "catch_up",
    using: str | None = None,
) -> Listener:
    """Reads topics, given by name or pattern, for as long as you iterate over the listener that it returns.

    Use ``async for`` in asynchronous code, otherwise ``for`` or ``get(timeout=…)``. Nothing about a listener is stored:
    the next one starts from scratch. It closes at the end of the ``with`` block, or when its last reference is gone.

    ::

        async with pubsub.listen("orders.*", where={"payload__total__gte": 100}) as events:
            async for event in events:
                print(event.topic, event.offset, event.payload)

    - ``start``: ``"latest"``, events numbered after it was opened; ``"earliest"``, from the oldest event still stored;
      or an offset of the one topic, whose event is the first. The listener is open once ``with`` has been entered, or
      the first event has arrived. If events after the offset have been dropped, it raises
      :class:`~pubsub.errors.CannotResume`.
    - ``buffer``: how many events it keeps in memory, at most.
    - ``overflow``: what happens to the next event when the buffer is full. ``"catch_up"``: it is read again from the
      log when there is room, so that nothing is lost however slow the loop is; ``"drop_oldest"``: the oldest event in
      the buffer is dropped, and counted in ``dropped``.

    Listeners do not get events that are addressed to one group. ``event.group`` is empty.

    >>> with listen("default") as events:
    ...     events.get(timeout=0.01)
    """
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names:
        raise InvalidSubscription('topics must name what to listen to, such as "orders.*".')
    for name in names:
        check_pattern(name) if is_pattern(name) else check_name(name)
    is_offset = isinstance(start, int) and not isinstance(start, bool) and start >= 1
    if not is_offset and not isinstance(start, Position) and start not in ("latest", "earliest"):
        raise InvalidSubscription(f"start must be 'latest', 'earliest' or an offset of at least 1, not {start!r}.")
    if is_offset and (len(names) > 1 or is_pattern(names[0])):
        raise InvalidSubscription(f"start={start!r} is an offset of one topic; {', '.join(names)} may be several.")
    if not isinstance(buffer, int) or isinstance(buffer, bool) or buffer < 1:
        raise InvalidSubscription(f"buffer must be a whole number of at least 1, not {buffer!r}.")
    if overflow not in ("catch_up", "drop_oldest"):
        raise InvalidSubscription(f"overflow must be 'catch_up' or 'drop_oldest', not {overflow!r}.")
    interest = Interest(tuple(sorted(set(names))), compile(where))
    alias = using or DEFAULT_DB_ALIAS
    with _lock:
        reader = _readers.get(alias)
        if reader is None or reader.is_stopping:
            reader = _readers[alias] = LogReaderThread(alias, _may_end)
        listener = Listener(interest, start=start, buffer=buffer, overflow=overflow, reader=reader)
        reader.add(listener)
        if not reader.was_started:
            reader.start()
    return listener


def _may_end(reader: LogReaderThread) -> bool:
    """Whether a reader has no listener left. From then on, the next listener starts another reader."""
    with _lock:
        if not reader.is_idle:
            return False
        if _readers.get(reader.using) is reader:
            del _readers[reader.using]
        return True


def _forget_all() -> None:
    """After a fork the child has neither the threads nor, rightfully, their connections."""
    global _lock
    _lock = threading.Lock()
    _readers.clear()


os.register_at_fork(after_in_child=_forget_all)
