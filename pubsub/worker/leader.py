"""The thread beside a worker that keeps the log moving: one process runs the sequencer for all, the others stand by.

The holder of an advisory lock leads. The lock ends with its connection, and the next process takes over. Behind a
transaction pooler, where there are no sessions, this thread ends, and its worker runs the sequencer whenever it polls.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from pubsub.conf import conf
from pubsub.db.background import ListeningPart
from pubsub.db.connections import can_listen
from pubsub.db.locks import FOLLOWING, LEADING, WAITING, release, try_to_take
from pubsub.errors import PubSubError
from pubsub.publishing.notify import HINT_CHANNEL
from pubsub.sequencing.delayed import move_due_messages
from pubsub.sequencing.sequencer import sequence_on
from pubsub.sequencing.wake import MOVED_CHANNEL

from .maintenance import URGENT, Maintenance, MaintenanceJob

logger = logging.getLogger(__name__)

FIRST_LOOK_S = 0.002
"""How soon a leader that has become idle looks again; then it looks ever more slowly, up to the wait period."""

_STOP_WAITING = f"SELECT pg_advisory_unlock({WAITING})"
_NEXT_DUE = "SELECT extract(epoch FROM min(deliver_at) - clock_timestamp()) FROM outbox_delayed_message"


def pause_after(messages: int) -> float:
    """Seconds from the beginning of a pass that has numbered so many events to the next one: the busier, the longer.

    >>> [pause_after(messages) for messages in (0, 100, 100_000)]
    [0.002, 0.022, 0.1]
    """
    return min(0.002 + 0.0002 * messages, conf().longest_pause_ms / 1000)


class Leader(ListeningPart):
    """Leads, or stands by to lead. `moved` is set whenever the worker should look for work."""

    thread_name = "pubsub-leader"
    when_failing = "the sequencer's connection was lost, and the worker polls"

    def __init__(
        self,
        using: str,
        wait_period_s: float,
        moved: threading.Event | None = None,
        maintenance: Sequence[MaintenanceJob] = URGENT,
    ) -> None:
        if wait_period_s <= 0:
            raise PubSubError(f"wait_period_s must be positive, got {wait_period_s}.")
        super().__init__(using, retry_s=wait_period_s)
        self.wait_period_s = wait_period_s
        self.moved = moved or threading.Event()
        self.connected = False
        """Whether `moved` is set for everything new, because this process leads or hears from the one that does."""
        self.leading = False
        self._can_listen = False
        self._idle = False
        self._announced = False
        """Whether publishers can see that a leader waits for their hint."""
        self._next_look_s = FIRST_LOOK_S
        self._next_try = 0.0
        """When to try next whether to lead."""
        self._maintenance = Maintenance(using, maintenance)

    def on_connect(self, connection: psycopg.Connection[Any]) -> None:
        self._can_listen = can_listen(connection)
        if self._can_listen:
            connection.execute(f"LISTEN {MOVED_CHANNEL}")

    def step(self) -> float | None:
        connection = self.connection()
        if not self._can_listen:
            logger.warning("the database is behind a transaction pooler, where LISTEN cannot work: polling")
            return None
        return self._lead(connection) if self.leading else self._stand_by(connection)

    def let_go(self) -> None:
        self.connected = self.leading = self._idle = self._announced = False
        self._next_look_s = FIRST_LOOK_S
        super().let_go()
        self.moved.set()  # from here on the worker must look for itself

    def _stand_by(self, connection: psycopg.Connection[Any]) -> float:
        """Lead if no other process does. Locks are only tried: `stop()` would not end a wait for one."""
        if self.notified:
            self.moved.set()
            if self.connected and time.monotonic() < self._next_try:
                return self._next_try - time.monotonic()  # a leader that notifies is there
        self._next_try = time.monotonic() + self.wait_period_s
        if not self.connected:
            self.connected = try_to_take(connection, FOLLOWING, shared=True)
        if not try_to_take(connection, LEADING):
            # To see whether others stand by, a leader takes their lock for a moment: that is over at the next look.
            return self.wait_period_s if self.connected else self._next_pause()
        if self.connected:
            release(connection, FOLLOWING, shared=True)
        connection.execute(f"UNLISTEN {MOVED_CHANNEL}")
        connection.execute(f"LISTEN {HINT_CHANNEL}")
        logger.info("this process runs the sequencer now")
        self.connected = self.leading = True
        return 0.0

    def _lead(self, connection: psycopg.Connection[Any]) -> float:
        self._maintenance.step()
        if self._idle and not self.notified:
            return self._look_again(connection)
        begun = time.monotonic()
        done = sequence_on(connection, _STOP_WAITING if self._announced else "", notifies=True)
        self._announced = False
        self._idle = not done.messages
        if done.messages:
            # Under load a pause makes passes few and large, and so the batches of consumers.
            self.moved.set()
            self.pause(pause_after(done.messages) - (time.monotonic() - begun))
            return 0.0
        self._next_look_s = FIRST_LOOK_S
        return self._look_again(connection)

    def _look_again(self, connection: psycopg.Connection[Any]) -> float:
        """A pass while idle. It finds the events of publishers that gave no hint, because they asked too early."""
        if not self._announced:
            # Before the pass: a publisher that asks from here on sees that a leader waits.
            self._announced = try_to_take(connection, WAITING)
        if sequence_on(connection, notifies=True).messages:
            self.moved.set()
            self._idle = False
            return 0.0
        return min(self._next_pause(), self._until_next_due(connection))

    def _next_pause(self) -> float:
        """Twice as long each time, up to the wait period."""
        pause_s, self._next_look_s = self._next_look_s, min(2 * self._next_look_s, self.wait_period_s)
        return pause_s

    def _until_next_due(self, connection: psycopg.Connection[Any]) -> float:
        """Seconds until a delayed event is due, or the wait period if that is shorter."""
        row = connection.execute(_NEXT_DUE).fetchone()
        if row is None or row[0] is None:
            return self.wait_period_s
        if row[0] <= 0:
            # If none moves, another session has locked those that are due, perhaps for long.
            return 0 if move_due_messages(self.using) else self.wait_period_s
        return min(float(row[0]), self.wait_period_s)
