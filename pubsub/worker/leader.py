"""The thread beside a worker that keeps the log moving: one process runs the sequencer for all, the others stand by.

The holder of an advisory lock leads. The lock ends with its connection, and the next process takes over. Behind a
transaction pooler, where there are no sessions, this thread ends, and its worker runs the sequencer whenever it polls.
"""

import logging
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
from pubsub.sequencing.wake import MOVED_CHANNEL, moved_in

from .maintenance import URGENT, Maintenance, MaintenanceJob
from .news import News

logger = logging.getLogger(__name__)

FIRST_LOOK_S = 0.002
"""How soon a leader that has become idle looks again; then it looks ever more slowly, up to the wait period."""

FEW = 10
"""Events of a pass. Behind a larger one publishers are not asked for hints."""

_WAIT = f"SELECT pg_try_advisory_lock({WAITING})"
_STOP_WAITING = f"SELECT pg_advisory_unlock({WAITING})"


def pause_after(messages: int) -> float:
    """Seconds from the beginning of a pass that has numbered so many events to the next one: the busier, the longer.

    >>> [pause_after(messages) for messages in (0, 100, 100_000)]
    [0.001, 0.021, 0.1]
    """
    return min(0.001 + 0.0002 * messages, conf().longest_pause_ms / 1000)


class Leader(ListeningPart):
    """Leads, or stands by to lead. `news` tells the worker when to look for work, and where."""

    thread_name = "pubsub-leader"
    when_failing = "the sequencer's connection was lost, and the worker polls"

    def __init__(
        self,
        using: str,
        wait_period_s: float,
        news: News | None = None,
        maintenance: Sequence[MaintenanceJob] = URGENT,
    ) -> None:
        if wait_period_s <= 0:
            raise PubSubError(f"wait_period_s must be positive, got {wait_period_s}.")
        super().__init__(using, retry_s=wait_period_s)
        self.wait_period_s = wait_period_s
        self.news = news or News()
        self.connected = False
        """Whether `news` tells of everything new, because this process leads or hears from the one that does."""
        self.leading = False
        self._can_listen = False
        self._announced = False
        """Whether publishers can see that a leader waits for their hint."""
        self._last = 0
        """How many events the last pass has numbered."""
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
        self.connected = self.leading = self._announced = False
        self._last = 0
        self._next_look_s = FIRST_LOOK_S
        super().let_go()
        self.news.set()  # from here on the worker must look for itself

    def _stand_by(self, connection: psycopg.Connection[Any]) -> float:
        """Lead if no other process does. Locks are only tried: `stop()` would not end a wait for one."""
        if self.notified:
            for payload in self.payloads:
                self.news.tell(moved_in(payload))
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
        """A pass: it begins to wait, or ends it, in the same round trip. While it waits each publisher gives a hint,
        which is quicker where there are few; where there are many, it costs them time, and passes follow anyway."""
        self._maintenance.step()
        begun, was_announced, announces = time.monotonic(), self._announced, False
        if was_announced:
            ends_waiting = self.notified and self._last > FEW
            done = sequence_on(connection, _STOP_WAITING if ends_waiting else "", notifies=True)
            self._announced = not ends_waiting
        else:
            # Before the pass: a publisher that asks from here on sees that a leader waits.
            announces = self._last <= FEW
            done = sequence_on(connection, _WAIT if announces else "", notifies=True)
            self._announced = done.first_was_true
            if self._announced:
                self._next_look_s = FIRST_LOOK_S  # for publishers that gave no hint, because they asked too early
        self._last = done.messages
        if done.messages:
            self.news.tell(done.moved)
            # Under load a pause makes passes few and large, and so the batches of consumers.
            self.pause(pause_after(done.messages) - (time.monotonic() - begun))
        if (done.messages and not was_announced) or not (self._announced or announces):
            return 0.0
        return min(self._next_pause(), self._until_due(done.next_due_s))

    def _next_pause(self) -> float:
        """Twice as long each time, up to the wait period."""
        pause_s, self._next_look_s = self._next_look_s, min(2 * self._next_look_s, self.wait_period_s)
        return pause_s

    def _until_due(self, next_due_s: float | None) -> float:
        """Seconds until a delayed event is due, or the wait period if that is shorter."""
        if next_due_s is not None and next_due_s <= 0:
            # If none moves, another session has locked those that are due, perhaps for long.
            return 0.0 if move_due_messages(self.using) else self.wait_period_s
        return self.wait_period_s if next_due_s is None else min(next_due_s, self.wait_period_s)
