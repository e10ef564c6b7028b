"""Watching a worker from within: what its threads have in hand for long is written down, and an operator may stop it.

A thread looks once a second at what the others hand over (see `pubsub/consuming/running.py`). What it finds again at
the next look has been in hand for a second at least; only that is written, in the worker's row. The row says under
which lock the worker is connected, so that nothing in it outlives the worker.
"""

import json
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import psycopg

from pubsub.consuming.lease import show_alive
from pubsub.consuming.running import Given, Running, of_this_thread
from pubsub.db.background import ListeningPart
from pubsub.db.sql import load
from pubsub.events import Event

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often it looks."""

ASK_S = 10.0
"""How often it asks whether the worker is to stop where no notification comes: behind a transaction pooler."""

CHANNEL = "pubsub_workers"
"""On which workers hear that one of them is to stop."""


class HandlerWatch(ListeningPart):
    """Watches the threads of a worker, from `start()` to `stop()`. `on_stop` is called when an operator stops it."""

    thread_name = "pubsub-watch"
    when_failing = "what is in hand is not shown"

    def __init__(self, using: str, worker_id: str, threads: int, on_stop: Callable[[], object]) -> None:
        super().__init__(using)
        self.worker_id = worker_id
        self._row = {"worker_id": worker_id, "host": socket.gethostname(), "pid": os.getpid(), "threads": threads}
        self._on_stop = on_stop
        self._threads: set[Running] = set()
        self._since: dict[Running, tuple[Given, float]] = {}
        """What each had in hand at the last look, and when that was seen first."""
        self._written: list[tuple[Given, bool]] = []
        self._is_new = True
        self._lock_key: int | None = None
        self._ask_at = 0.0

    def attend(self) -> None:
        """HandlerWatch the calling thread, too."""
        self._threads.add(of_this_thread())

    def on_connect(self, connection: psycopg.Connection[Any]) -> None:
        self._lock_key = show_alive(connection)
        if self._lock_key is not None:
            connection.execute(f"LISTEN {CHANNEL}")
        parameters = {**self._row, "lock_key": self._lock_key, "is_new": self._is_new}
        is_to_stop = connection.execute(load("worker/show_worker"), parameters).fetchone()
        self._is_new, self._written = False, []
        if is_to_stop == (True,):
            self._stop_worker()

    def step(self) -> float:
        connection = self.connection()
        calls = self._look(time.monotonic())
        now = [(given, running.is_overdue) for running, given, _ in calls]
        if not _are_same(now, self._written):
            described = [self._described(*call) for call in calls]
            parameters = {"worker_id": self.worker_id, "calls": json.dumps(described)}
            connection.execute(load("worker/show_in_hand"), parameters)
            self._written = now
        if self.notified or (self._lock_key is None and time.monotonic() > self._ask_at):
            self._ask_at = time.monotonic() + ASK_S
            if connection.execute(load("worker/is_to_stop"), {"worker_id": self.worker_id}).fetchone() == (True,):
                self._stop_worker()
        return LOOK_S

    def _look(self, now: float) -> list[tuple[Running, Given, float]]:
        """What has been in hand since the last look, or longer, and for how many seconds."""
        before, self._since = self._since, {}
        found = []
        for running in list(self._threads):
            given = running.given
            if given is None:
                continue
            seen, since = before.get(running, (None, now))
            if seen is not given:
                since = now
            else:
                found.append((running, given, now - since))
            self._since[running] = given, since
        return found

    def _described(self, running: Running, given: Given, for_s: float) -> dict[str, Any]:
        events = [given] if isinstance(given, Event) else given
        first = events[0]
        task = running.task
        return {
            "group": first.group,
            "topic": first.topic,
            "partition": first.partition,
            "offset": first.offset,
            "event_id": str(first.id),
            "events": len(events),
            "handler": task.declared.handler_name if task else "",
            # Behind a transaction pooler it is no session of this worker's alone.
            "session_pid": None if self._lock_key is None else running.session_pid,
            "is_overdue": running.is_overdue,
            "for_s": for_s,
        }

    def _stop_worker(self) -> None:
        logger.warning("an operator has asked worker %s to stop", self.worker_id)
        self._on_stop()


def _are_same(these: list[tuple[Given, bool]], those: list[tuple[Given, bool]]) -> bool:
    """Whether they are the same objects: equal events may be different attempts."""
    return len(these) == len(those) and all(
        this[0] is that[0] and this[1] == that[1] for this, that in zip(these, those, strict=True)
    )
