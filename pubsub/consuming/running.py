"""What a thread has in hand: the call of a handler that it is in, for those who look from outside.

A handler's thread writes down what it hands over, and no more: no time is taken, no lock. Who looks twice and finds the
same event knows that it takes long.
"""

import threading
from collections.abc import Sequence
from typing import Any

import psycopg

from pubsub.events import Event
from pubsub.subscriptions.task import PartitionTask

Given = Event | Sequence[Event]


class Running:
    """The call that one thread is in. Others read it while it changes."""

    __slots__ = ("connection", "given", "is_overdue", "task")

    def __init__(self) -> None:
        self.task: PartitionTask | None = None
        """The last one."""
        self.connection: Any = None
        """Django's, to the worker's database."""
        self.given: Given | None = None
        """What the handler has in hand: an event, or a list of them. None between two batches."""
        self.is_overdue = False
        """Whether its time is over, and it has not ended."""

    @property
    def session(self) -> psycopg.Connection[Any] | None:
        """The database session that the worker has in this thread; None where there is none now."""
        return getattr(self.connection, "connection", None)

    @property
    def session_pid(self) -> int | None:
        """The server's process of that session."""
        session = self.session
        try:
            return int(session.info.backend_pid) if session is not None else None
        except psycopg.Error:
            return None  # closed meanwhile


here = threading.local()
"""Where each thread keeps its own, as `running`."""


def of_this_thread() -> Running:
    """What the calling thread has in hand; always the same object."""
    if not hasattr(here, "running"):
        here.running = Running()
    running: Running = here.running
    return running
