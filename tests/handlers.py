"""Handlers for tests: a registry of their own, so that tests never see one another's."""

from collections.abc import Callable
from typing import Any

from pubsub.events import Event
from pubsub.subscriptions.declare import Declaration
from pubsub.worker.worker import Worker


class Recorder:
    """A handler that keeps what it was given, and fails where `fails` says so."""

    def __init__(self, fails: Callable[[Event], bool] = lambda event: False) -> None:
        self.events: list[Event] = []
        self.fails = fails

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if self.fails(event):
            raise ValueError(f"cannot handle {event.payload}")

    @property
    def payloads(self) -> list[Any]:
        return [event.payload for event in self.events]

    @property
    def offsets(self) -> list[int]:
        return [event.offset for event in self.events]


def declare(handler: Callable[[Event], Any], *, group: str = "readers", **options: Any) -> Declaration:
    options.setdefault("topic", "default")
    options.setdefault("start", "earliest")
    return Declaration(group=group, handler=handler, **options)


def drain(*declarations: Declaration, **options: Any) -> Worker:
    """Runs a worker until nothing is left to do."""
    worker = Worker(declarations, using="default", drain=True, **options)
    worker.run()
    return worker
