"""What a thread has in hand: the call of a handler that it is in, for those who look from outside.

A handler's thread writes down what it hands over, and no more: no time is taken, no lock. Who looks twice and finds the
same event knows that it takes long.
"""

import threading
from collections.abc import Sequence
from typing import Any

import psycopg
from django.db import connections

from pubsub.events import Event
from pubsub.subscriptions.task import PartitionTask

Given = Event | Sequence[Event]


class Running:
    """The call that one thread is in. Others read it while it changes."""

    __slots__ = ("_connection", "given", "is_overdue", "task")

    def __init__(self) -> None:
        self.task: PartitionTask | None = None
        self.given: Given | None = None
        """What the handler has in hand: an event, or a list of them. None between two batches."""
        self.is_overdue = False
        """Whether its time is over, and it has not ended."""
        self._connection: Any = None

    def begin(self, task: PartitionTask) -> None:
        """A batch begins."""
        self.task, self._connection = task, connections[task.using]

    def end(self) -> None:
        self.given = None

    @property
    def session(self) -> Any:
        """The database session that the worker has in this thread; None where there is none now."""
        return getattr(self._connection, "connection", None)

    @property
    def session_pid(self) -> int | None:
        """The server's process of that session."""
        session = self.session
        try:
            return int(session.info.backend_pid) if session is not None else None
        except psycopg.Error:
            return None  # closed meanwhile


_of_thread = threading.local()


def of_this_thread() -> Running:
    """What the calling thread has in hand; always the same object."""
    try:
        running: Running = _of_thread.running
    except AttributeError:
        running = _of_thread.running = Running()
    return running
