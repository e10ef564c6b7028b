"""Time limits: a handler that exceeds its `timeout` is interrupted, and fails with `HandlerTimeout`.

One thread of the process watches all limits. When a call's time is over, it cancels the statement that the handler
waits for and raises the exception in the handler's thread (see `pubsub/db/interrupt.py`). An asynchronous handler is
cancelled by its own loop. A handler that does not end within a while after that is reported, and nothing else can be
done from within the process.

No handler without a `timeout` comes here.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from pubsub.db.errors import is_ctrl_c
from pubsub.db.interrupt import abandon, cancel_statement, let_it_come, raise_in
from pubsub.errors import HandlerTimeout
from pubsub.events import Event
from pubsub.signals import handler_overdue, tell
from pubsub.subscriptions.declare import Declaration

from .running import Running

logger = logging.getLogger(__name__)

GRACE_S = 5.0
"""How long a handler that was interrupted may take to end before that is reported."""


class TimeLimit:
    """The limit of one call. Its thread and the one that watches share it without a lock: each writes its own flags,
    and reads those of the other behind that."""

    def __init__(self, declared: Declaration, running: Running, seconds: float) -> None:
        self.declared = declared
        self.running = running
        self.seconds = seconds
        self.thread_id = threading.get_ident()
        self.due = time.monotonic() + seconds
        self.interrupts = not declared.is_asynchronous
        """Whether the exception is raised in the thread; not while that runs a loop, which cancels for itself."""
        self.is_over = False
        """Whether the time is over, and the handler is interrupted."""
        self.has_ended = False
        self._interrupting = False
        self._has_interrupted = False

    # In the thread of the handler

    def end(self) -> None:
        """From here on nothing of the interruption comes any more. The exception itself may still come in here."""
        while True:
            try:
                self.has_ended = True
                if self._interrupting:
                    while not self._has_interrupted:
                        time.sleep(0.001)
                    let_it_come()
                return
            except HandlerTimeout:
                continue

    def failure(self, error: BaseException | None) -> HandlerTimeout:
        given = self.running.given
        first = given if given is None or isinstance(given, Event) else given[0]
        at = f" at offset {first.offset} of {first.topic}" if first else ""
        text = f"{self.declared.handler_name} took longer than its timeout of {self.seconds:g} s{at}."
        if isinstance(error, HandlerTimeout):
            error.args = (text,)  # its traceback shows where the handler was
            return error
        failure = HandlerTimeout(text)
        failure.__cause__ = error
        return failure

    # In the thread that watches

    def come_due(self) -> None:
        """The time is over; or it has been for a while, and the handler has not ended."""
        if not self._interrupting:
            self.due = time.monotonic() + GRACE_S
            self._interrupt()
        elif not self.has_ended:
            self.due = float("inf")
            self._report()

    def _interrupt(self) -> None:
        self._interrupting = True
        try:
            if not self.has_ended:
                self.is_over = True
                cancel_statement(self.running.session)
            if self.interrupts and not self.has_ended:
                raise_in(self.thread_id, HandlerTimeout)
        finally:
            self._has_interrupted = True

    def _report(self) -> None:
        running = self.running
        running.is_overdue = True
        facts: dict[str, Any] = running.task.facts if running.task else {}
        logger.error(
            "%s It has not ended %g s after it was interrupted: it may wait in C, where nothing can interrupt it. "
            "`pubsub_workers list` names its worker, `pubsub_workers stop` stops it.",
            self.failure(None),
            GRACE_S,
            extra=facts,
        )
        tell(handler_overdue, **facts, handler=self.declared.handler_name, seconds=self.seconds)


class LimitWatch:
    """The thread that watches the limits of a process; there is none until there is a limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: dict[int, TimeLimit] = {}
        """Of each thread, that of its last call."""
        self._looks_at = float("inf")
        """When it looks again by itself."""
        # Not an Event: the exception may come in the midst of whatever Python code a thread of a handler is in, and
        # would leave that locked. To put something in here is a single step.
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, limit: TimeLimit) -> None:
        with self._lock:
            self._limits[limit.thread_id] = limit
            is_first = limit.due < self._looks_at
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pubsub-time-limits", daemon=True)
                self._thread.start()
        if is_first:
            self._bell.put(None)

    def _run(self) -> None:
        while True:
            with self._lock:
                waiting = [limit for limit in self._limits.values() if not limit.has_ended]
                self._limits = {limit.thread_id: limit for limit in waiting}
                self._looks_at = min((limit.due for limit in waiting), default=float("inf"))
            rest_s = self._looks_at - time.monotonic()
            if rest_s > 0:
                with suppress(Empty):
                    self._bell.get(timeout=None if rest_s == float("inf") else rest_s)
                continue
            for limit in waiting:
                if limit.due <= time.monotonic():
                    self._come_due(limit)

    def _come_due(self, limit: TimeLimit) -> None:
        try:
            limit.come_due()
        except Exception:
            logger.exception("a time limit of %s failed", limit.declared.handler_name)


limits = LimitWatch()


def limited(
    declared: Declaration, running: Running, seconds: float, call: Callable[[Any, TimeLimit], None]
) -> Callable[[Any], None]:
    """A handler that is called within a time limit. `call` also gets the limit."""

    def handle(events: Any) -> None:
        limit = TimeLimit(declared, running, seconds)
        error: BaseException | None = None
        try:
            try:
                try:
                    limits.add(limit)
                    call(events, limit)
                finally:
                    limit.end()
            finally:
                limit.end()  # once more: the exception may have come before the first one had begun
        except BaseException as raised:
            if not limit.is_over or is_ctrl_c(raised):
                raise
            error = raised
        running.is_overdue = False
        if limit.is_over:
            abandon(running.connection)
            raise limit.failure(error)

    return handle


async def within(limit: TimeLimit, result: Awaitable[Any]) -> None:
    """Awaits what an asynchronous handler has returned, and cancels it when its time is over."""
    async with asyncio.timeout(max(0.0, limit.due - time.monotonic()) if not limit.is_over else 0) as clock:
        try:
            await result
        finally:
            limit.is_over |= clock.expired()
