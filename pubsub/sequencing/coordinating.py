"""The thread beside a worker that keeps the log moving: one process numbers for all, the others wait to be told.

Whoever holds an advisory lock leads; it goes with the connection, and the next process takes over. Where sessions are
not to be had, behind a transaction pooler, this thread gives up and its worker numbers whenever it polls.
"""

import logging
import threading
import time
from typing import Any

import psycopg
from django.db import connections

from pubsub.conf import conf
from pubsub.keeping.housekeeping import URGENT, Housekeeper

from . import wakeup
from .numbering import move_due_messages, sequence_on

logger = logging.getLogger("pubsub.coordinating")

STOP_LOOK_S = 0.5

FIRST_LOOK_S = 0.002
"""How soon one that has begun to wait looks again; then ever more slowly, up to the wait period."""

_STOP_WAITING = f"SELECT pg_advisory_unlock({wakeup.WAITING})"
_START_WAITING = f"SELECT pg_advisory_lock({wakeup.WAITING})"
_NEXT_DUE = "SELECT extract(epoch FROM min(deliver_at) - clock_timestamp()) FROM outbox_delayed_message"


def pause_after(messages: int) -> float:
    """Seconds from the beginning of a pass that has numbered so many to the next one: the busier, the longer.

    >>> [pause_after(messages) for messages in (0, 100, 100_000)]
    [0.002, 0.022, 0.1]
    """
    return min(0.002 + 0.0002 * messages, conf().longest_pause_ms / 1000)


class Coordinator(threading.Thread):
    """Runs until stopped; `moved` is set whenever a worker should look for work."""

    def __init__(self, using: str, wait_period_s: float, moved: threading.Event | None = None) -> None:
        super().__init__(name="pubsub-coordinator", daemon=True)
        self.using = using
        self.wait_period_s = wait_period_s
        self.moved = moved or threading.Event()
        self.connected = False
        """Whether this thread sees to the numbering, or to somebody else doing it."""
        self.leading = False
        self._stopping = threading.Event()
        self._housekeeper = Housekeeper(using, URGENT)

    def stop(self) -> None:
        self._stopping.set()
        self.moved.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with wakeup.dedicated_connection(self.using) as connection:
                    if not wakeup.can_listen(connection):
                        logger.warning("the database is behind a transaction pooler, where LISTEN cannot work: polling")
                        return
                    self._follow_or_lead(connection)
            except psycopg.Error as error:
                logger.warning("lost the connection that listens (%s); connecting again", error)
            except Exception:
                logger.exception("coordinating failed; starting again")
            finally:
                self.connected = self.leading = False
                connections[self.using].close()
            self.moved.set()  # from here on the worker must see for itself
            self._stopping.wait(self.wait_period_s)

    def _follow_or_lead(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"LISTEN {wakeup.MOVED_CHANNEL}")
        connection.execute(f"SELECT pg_advisory_lock_shared({wakeup.FOLLOWING})")
        self.connected = True
        while not self._stopping.is_set():
            row = connection.execute(f"SELECT pg_try_advisory_lock({wakeup.LEADING})").fetchone()
            if row == (True,):
                connection.execute(f"SELECT pg_advisory_unlock_shared({wakeup.FOLLOWING})")
                connection.execute(f"UNLISTEN {wakeup.MOVED_CHANNEL}")
                self._lead(connection)
                return
            if self._wait(connection, self.wait_period_s):
                self.moved.set()

    def _lead(self, connection: psycopg.Connection[Any]) -> None:
        logger.info("this process numbers the log now")
        connection.execute(f"LISTEN {wakeup.HINT_CHANNEL}")
        self.leading = True
        withdraw = ""
        while not self._stopping.is_set():
            self._housekeeper.keep_house()
            begun = time.monotonic()
            done = sequence_on(connection, withdraw, tells=True)
            withdraw = ""
            if done.messages:
                # Under load a pause makes passes few and large, and the batches of those who read.
                self.moved.set()
                self._stopping.wait(max(0.0, pause_after(done.messages) - (time.monotonic() - begun)))
                continue
            # Announced before the last look: who publishes from here on sees that somebody waits.
            done = sequence_on(connection, _START_WAITING, tells=True)
            pause = FIRST_LOOK_S
            while not done.messages and not self._stopping.is_set():
                if self._wait(connection, min(pause, self._until_next_due(connection))):
                    break
                self._housekeeper.keep_house()
                # Who had published when the announcement came, but not committed, saw nobody waiting.
                done = sequence_on(connection, tells=True)
                pause = min(2 * pause, self.wait_period_s)
            if done.messages:
                self.moved.set()
            withdraw = _STOP_WAITING

    def _until_next_due(self, connection: psycopg.Connection[Any]) -> float:
        """Seconds to wait for a hint: until a delayed message is due, at most."""
        row = connection.execute(_NEXT_DUE).fetchone()
        if row is None or row[0] is None:
            return self.wait_period_s
        if row[0] <= 0:
            # None moved: somebody holds those that are due, perhaps for long.
            return 0 if move_due_messages(self.using) else self.wait_period_s
        return min(float(row[0]), self.wait_period_s)

    def _wait(self, connection: psycopg.Connection[Any], seconds: float) -> bool:
        """Says whether a notification came. Looks up now and then whether it shall stop."""
        until = time.monotonic() + seconds
        while not self._stopping.is_set():
            left = max(0.0, until - time.monotonic())
            if any(True for _ in connection.notifies(timeout=min(left, STOP_LOOK_S), stop_after=1)):
                return True
            if left <= STOP_LOOK_S:
                return False
        return False
