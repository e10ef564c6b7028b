"""Calling a handler: with one event after another, or with lists of them, in whichever way it is written."""

import inspect
import itertools
import os
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from asgiref.sync import async_to_sync

from pubsub.errors import InvalidSubscription
from pubsub.events import Entry, Event, events_of
from pubsub.signals import around, around_handler
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.task import PartitionTask

_generation = 0
"""How often this process has been forked off from another: to ask for its id takes a system call for each event."""


def _note_fork() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_note_fork)


def handle(task: PartitionTask, entries: Iterable[Entry], *, at_once: int, attempt: int = 1) -> None:
    """Hands the group's own of these entries to the handler, in order; in lists of `at_once`, if it takes lists."""
    declared = task.declared
    events = events_of(entries, declared.topic, task.partition_id, declared.group, attempt)
    worker = _generation
    try:
        if declared.batch:
            while several := list(itertools.islice(events, at_once)):
                call(declared, several)
                if _generation != worker:
                    return
            return
        handler = async_to_sync(declared.handler) if declared.is_asynchronous else declared.handler
        is_observed = around_handler.observers
        for event in events:
            if is_observed:
                with around(event):
                    _finish(declared, handler(event))
            elif (result := handler(event)) is not None:
                _finish(declared, result)
            if _generation != worker:
                return
    finally:
        if _generation != worker:
            _end_child()


def call(declared: Declaration, events: Sequence[Event]) -> None:
    """One call, with one event, or with all of them where the handler takes lists."""
    handler = async_to_sync(declared.handler) if declared.is_asynchronous else declared.handler
    with around(*events):
        _finish(declared, handler(events if declared.batch else events[0]))


def _finish(declared: Declaration, result: Any) -> None:
    """An asynchronous function that does not look like one, behind a lambda or a decorator, is awaited all the same."""
    if inspect.isawaitable(result):
        async_to_sync(_await)(result)
    elif inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise InvalidSubscription(
            f"{declared.handler_name} returned a generator, of which nothing has been done. A handler must do its work "
            f"before it returns."
        )


def _end_child() -> None:
    """A child that a handler has forked must not go on as the worker, on the same connections."""
    os.write(2, b"A handler has forked, and its child has come back from it: the child ends here. Use subprocess.\n")
    os._exit(1)


async def _await(result: Awaitable[Any]) -> None:
    await result
