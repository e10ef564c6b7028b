"""Calling a handler: with one event after another, or with lists of them, in whichever way it is written."""

import inspect
import itertools
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync
from django.db import connections

from pubsub.errors import InvalidSubscription
from pubsub.events import Entry, Event, events_of
from pubsub.signals import around, around_handler
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.task import PartitionTask

from .running import Running, here, of_this_thread
from .time_limit import TimeLimit, limited, within

_generation = 0
"""How often this process has been forked off from another: to ask for its id takes a system call for each event."""


def _note_fork() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_note_fork)


@dataclass(kw_only=True)
class Seen:
    """Which attempts observers have seen, while events may have to be handled once more in the same attempt."""

    offsets: set[int] = field(default_factory=set)
    may_be_abandoned: bool = False
    """Whether a call that fails does not count, as all events are handled once more."""

    @contextmanager
    def around(self, *events: Event) -> Iterator[None]:
        offsets = {event.offset for event in events}
        with around(*events, repeats=offsets <= self.offsets, may_be_abandoned=self.may_be_abandoned):
            if not self.may_be_abandoned:
                self.offsets |= offsets
            yield
        self.offsets |= offsets


def handle(
    task: PartitionTask, entries: Iterable[Entry], *, at_once: int, attempt: int = 1, seen: Seen | None = None
) -> None:
    """Hands the group's own of these entries to the handler, in order; in lists of `at_once`, if it takes lists."""
    seen = seen or Seen()
    declared = task.declared
    worker = _generation
    running = getattr(here, "running", None) or of_this_thread()
    running.task, running.connection = task, connections[task.using]
    handler = _callable(declared, running)
    events = events_of(entries, declared.topic, task.partition_id, declared.group, attempt)
    try:
        if declared.batch:
            while several := list(itertools.islice(events, at_once)):
                running.given = several
                with seen.around(*several):
                    _finish(declared, handler(several))
                if _generation != worker:
                    return
            return
        is_observed = around_handler.observers
        for event in events:
            running.given = event
            if is_observed:
                with seen.around(event):
                    _finish(declared, handler(event))
            elif (result := handler(event)) is not None:
                _finish(declared, result)
            if _generation != worker:
                return
    finally:
        running.given = running.connection = None
        if _generation != worker:
            _end_child()


def call(declared: Declaration, events: Sequence[Event]) -> None:
    """One call, with one event, or with all of them where the handler takes lists."""
    handler = _callable(declared, of_this_thread())
    with around(*events):
        _finish(declared, handler(events if declared.batch else events[0]))


def _callable(declared: Declaration, running: Running) -> Callable[[Any], Any]:
    """The handler as it is called: from a thread, and within its time, if that is limited."""
    if declared.timeout is None:
        return async_to_sync(declared.handler) if declared.is_asynchronous else declared.handler

    def call_within(events: Any, limit: TimeLimit) -> None:
        _finish(declared, declared.handler(events), limit)

    return limited(declared, running, float(declared.timeout), call_within)  # type: ignore[arg-type]


def _finish(declared: Declaration, result: Any, limit: TimeLimit | None = None) -> None:
    """An asynchronous function that does not look like one, behind a lambda or a decorator, is awaited all the same."""
    if inspect.isawaitable(result):
        if limit:
            limit.interrupts = False
        async_to_sync(_await)(result, limit)
    elif inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise InvalidSubscription(
            f"{declared.handler_name} returned a generator, of which nothing has been done. A handler must do its work "
            f"before it returns."
        )


def _end_child() -> None:
    """A child that a handler has forked must not go on as the worker, on the same connections."""
    os.write(2, b"A handler has forked, and its child has come back from it: the child ends here. Use subprocess.\n")
    os._exit(1)


async def _await(result: Awaitable[Any], limit: TimeLimit | None) -> None:
    if limit:
        await within(limit, result)
    else:
        await result
