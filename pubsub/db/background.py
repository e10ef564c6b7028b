"""Background parts: what runs beside the work, all of one shape.

A part has a constructor that validates, `start`, `stop`, and one `step`, which does what is due and returns how long to
rest. `BackgroundPart` calls it in a thread. `ListeningPart` also has a connection of its own: a notification ends its
rest, and so does the loss of the connection.
"""

import logging
import selectors
import socket
import threading
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from typing import Any, ClassVar

import psycopg
from django.db import connections

from pubsub.errors import PubSubError

from .connections import dedicated_connection
from .errors import is_transient

LONGEST_RETRY_S = 30.0


class BackgroundPart(ABC):
    """A thread that takes one step after another, from `start()` to `stop()`.

    A step that fails ends nothing: it is logged and taken again, after a pause that doubles up to `longest_retry_s`.
    """

    thread_name: ClassVar[str]
    when_failing: ClassVar[str]
    """What does not happen meanwhile. The log message about a failure begins with it."""

    def __init__(self, using: str, *, retry_s: float = 1.0, longest_retry_s: float = LONGEST_RETRY_S) -> None:
        """`retry_s` is the first pause after a failure, in seconds; further ones double, up to `longest_retry_s`."""
        if using not in connections:
            raise PubSubError(f'There is no database "{using}"; there are: {", ".join(connections)}.')
        if retry_s <= 0:
            raise PubSubError(f"retry_s must be positive, got {retry_s}.")
        self.using = using
        self.retry_s = retry_s
        self.longest_retry_s = max(retry_s, longest_retry_s)
        self._failures = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None
        """What is written to the first end interrupts the thread, which rests at the second."""
        self._selector = selectors.DefaultSelector()
        """What ends a rest: the bell and, where a part has one, its connection."""

    @abstractmethod
    def step(self) -> float | None:
        """Do what is due. Returns for how many seconds to rest; None ends the part for good."""

    def let_go(self) -> None:
        """Close what a failure may have broken. Called in the thread after each failure, and at its end."""
        connections[self.using].close()

    @property
    def was_started(self) -> bool:
        return self._thread is not None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self, *, after_s: float = 0.0) -> None:
        """Begin, with the first step `after_s` seconds from now. A part runs once."""
        if self._thread is not None:
            raise PubSubError(f"{self.thread_name} has been started already; make a new one.")
        self._bell = socket.socketpair()
        for end in self._bell:
            end.setblocking(False)
        self._selector.register(self._bell[1], selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, args=(after_s,), name=self.thread_name, daemon=True)
        self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """End after the current step; with `wait`, return once it has ended. Safe to repeat."""
        self._stopping.set()
        self.wake()
        if wait and self._thread is not None:
            self._thread.join()

    def wake(self) -> None:
        """End the current rest."""
        if self._bell:
            with suppress(OSError):  # it is about to wake up anyway, or has ended
                self._bell[0].send(b"\0")

    def rest(self, seconds: float) -> None:
        """Wait, but no longer than until the part is woken or stopped."""
        self._wait_for_bell(seconds)

    def pause(self, seconds: float) -> None:
        """Wait, whatever happens but `stop()`."""
        self._stopping.wait(seconds)

    def attempt(self) -> float | None:
        """Take a step. Returns for how many seconds to rest, which is the pause before the next try if it failed."""
        try:
            rest_s = self.step()
        except Exception as error:
            return self._fail(error)
        self._failures = 0
        return rest_s

    def _run(self, after_s: float) -> None:
        assert self._bell  # noqa: S101 - start() has made it
        rest_s: float | None = after_s
        try:
            while rest_s is not None and not self.is_stopping:
                try:
                    self.rest(rest_s)
                except Exception as error:
                    rest_s = self._fail(error)
                else:
                    rest_s = rest_s if self.is_stopping else self.attempt()
        finally:
            self.let_go()
            self._selector.close()
            for end in self._bell:
                end.close()

    def _fail(self, error: Exception) -> float:
        pause_s = min(self.retry_s * 2.0 ** min(self._failures, 20), self.longest_retry_s)
        self._failures += 1
        transient = is_transient(error)
        logging.getLogger(type(self).__module__).log(
            logging.WARNING if transient else logging.ERROR,
            "%s (%s); trying again in %.1f s",
            self.when_failing,
            error,
            pause_s,
            exc_info=None if transient else error,
        )
        self.let_go()
        return pause_s

    def _wait_for_bell(self, seconds: float) -> bool:
        """Wait for the bell, or for something to read from a connection. Returns whether the bell rang."""
        assert self._bell  # noqa: S101 - start() has made it
        _, end = self._bell
        rang = any(key.fileobj is end for key, _ in self._selector.select(seconds))
        if rang:
            with suppress(BlockingIOError):
                while end.recv(4096):
                    pass
        return rang


class ListeningPart(BackgroundPart):
    """A background part with a connection of its own: notifications, and the loss of the connection, end its rest."""

    def __init__(self, using: str, *, retry_s: float = 1.0, longest_retry_s: float = LONGEST_RETRY_S) -> None:
        super().__init__(using, retry_s=retry_s, longest_retry_s=longest_retry_s)
        self.notified = False
        """Whether a notification ended the last rest."""
        self.payloads: list[str] = []
        """Those of the notifications that did."""
        self._connection: psycopg.Connection[Any] | None = None
        self._watched: int | None = None
        """The connection's file descriptor, while it ends a rest."""
        self._open = ExitStack()

    def connection(self) -> psycopg.Connection[Any]:
        """The part's own connection; a new one after a failure."""
        if self._connection is None:
            self._connection = self._open.enter_context(dedicated_connection(self.using))
            self._watched = self._connection.fileno()
            self._selector.register(self._watched, selectors.EVENT_READ)
            self.on_connect(self._connection)
        return self._connection

    def on_connect(self, connection: psycopg.Connection[Any]) -> None:
        """Prepare a new connection: listen, take locks."""

    def rest(self, seconds: float) -> None:
        self.notified = False
        if self._connection is None:
            super().rest(seconds)
            return
        until = time.monotonic() + seconds
        while not self.is_stopping:
            # What arrived during the last step waits inside psycopg, where a selector does not see it.
            self.payloads = [notification.payload for notification in self._connection.notifies(timeout=0)]
            self.notified = bool(self.payloads)
            left = until - time.monotonic()
            if self.notified or left <= 0 or self._wait_for_bell(left):
                return

    def let_go(self) -> None:
        if self._watched is not None:
            self._selector.unregister(self._watched)
            self._watched = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._open.close()
        super().let_go()
