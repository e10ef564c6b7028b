"""The thread that reads the log for all listeners of a process, and evaluates each distinct filter once.

It reads by position, when it is woken because events were numbered, or by polling. If no sequencer runs, it numbers
events itself. Listeners are either *current*, and share its position, or *behind*, because they began in the past or
their buffers were full. Those behind catch up in between, many at a time, by reads of bounded size.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakSet

import psycopg

from pubsub.conf import conf
from pubsub.db.background import ListeningPart
from pubsub.db.connections import can_listen
from pubsub.db.errors import is_transient
from pubsub.db.locks import follow
from pubsub.db.sql import load
from pubsub.errors import CannotResume, PubSubError
from pubsub.sequencing.delayed import move_due_on
from pubsub.sequencing.sequencer import sequence_on
from pubsub.sequencing.wake import MOVED_CHANNEL
from pubsub.topics.names import is_pattern
from pubsub.topics.registry import unknown_topic

from .listener import Item, Listener, Position, Waiter, wake
from .scan import Interest, ReadSize, Scanner, Tip


class LogReaderThread(ListeningPart):
    """Reads for all listeners of a database until the last one has gone."""

    thread_name = "pubsub-log-reader"
    when_failing = "listeners get no events"

    def __init__(self, using: str, may_end: Callable[["LogReaderThread"], bool]) -> None:
        """`may_end` is called before each step: once it returns True, no more listeners are added."""
        super().__init__(using, retry_s=conf().wait_period_ms / 1000)
        self.reached: Tip | None = None
        """The last tip up to which all current listeners have got their events."""
        self.statements = 0
        """The number of statements that have read the log: what all its listeners cost."""
        self._may_end = may_end
        self._listeners: WeakSet[Listener] = WeakSet()
        self._newcomers: list[Listener] = []
        self._gone: list[Listener] = []
        self._lock = threading.Lock()
        # The rest is used by this thread only.
        self._current: dict[Interest, WeakSet[Listener]] = {}
        self._behind: WeakSet[Listener] = WeakSet()
        self._position: int | None = None
        """Of all current listeners."""
        self._own_pass_at = 0.0
        self._read_size, self._read_size_behind = ReadSize(), ReadSize()
        self._scanner: Scanner

    def add(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.add(listener)
            self._newcomers.append(listener)
        self.wake()

    def remove(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.discard(listener)
            self._gone.append(listener)
        self.wake()

    def stop(self, *, wait: bool = True) -> None:
        """Close all listeners, and end."""
        with self._lock:
            everyone = {*self._listeners, *self._newcomers}
        for listener in everyone:
            listener.close()
        super().stop(wait=wait)

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not self._newcomers and len(self._listeners) == 0

    def on_connect(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("SET jit = off")
        if can_listen(connection):
            follow(connection, MOVED_CHANNEL)
        self._scanner = Scanner(connection)
        self._own_pass_at = 0

    def step(self) -> float | None:
        """Reads on for all listeners. A permanent error is raised in their code; a transient one is waited out."""
        if self._may_end(self):
            return None
        try:
            connection = self.connection()
            self._number_unless_notified(connection)
            return 0.0 if self._read_on() else max(0.0, self._own_pass_at - time.monotonic())
        except (psycopg.Error, PubSubError) as error:
            if is_transient(error):
                raise
            self._fail_all(error)
            self.let_go()
            return 0.0

    def rest(self, seconds: float) -> None:
        """A wake does not shorten the pause after a failure, unless the last listener has gone."""
        until = time.monotonic() + seconds
        super().rest(seconds)
        while self._connection is None and not (self.is_stopping or self.is_idle):
            if (left := until - time.monotonic()) <= 0:
                return
            super().rest(left)

    def _number_unless_notified(self, connection: psycopg.Connection[Any]) -> None:
        """Numbers what is new, once per wait period, unless a notification shows that a sequencer runs."""
        now = time.monotonic()
        if self.notified or now >= self._own_pass_at:
            self._own_pass_at = now + conf().wait_period_ms / 1000
            if not self.notified:
                with connection.cursor() as cursor:
                    move_due_on(cursor)
                sequence_on(connection, notifies=True)

    def _fail_all(self, error: Exception) -> None:
        with self._lock:
            everyone, self._newcomers = {*self._listeners, *self._newcomers}, []
        for listener in everyone:
            self._end(listener, error)
        self._position = None

    def _end(self, listener: Listener, error: Exception) -> None:
        self.remove(listener)
        listener.fail(error)
        wake(listener.take_waiters())

    def _read_on(self) -> bool:
        """Reads for the current listeners, and for some of those behind. Returns whether there is more to read now."""
        tip = self._scanner.tip()
        if self._position is None:
            self._position = tip.position
        if tip.position < self._position:
            raise CannotResume("The log is shorter than before: the database has been restored to an older state.")
        self._admit(tip)
        until = min(tip.position, self._position + self._read_size.positions)
        if until > self._position:
            self._position, full = self._deliver(self._read_size, self._current, tip, self._position, until)
            for listener in full:
                self._current[listener.interest].discard(listener)
                self._behind.add(listener)
        if self._position == tip.position:
            self.reached = tip
        has_read = self._catch_up(tip, self._position)
        self.statements += self._scanner.statements
        self._scanner.statements = 0
        return has_read or self._position < tip.position

    def _admit(self, tip: Tip) -> None:
        """Adds new listeners, and removes closed ones."""
        with self._lock:
            newcomers, self._newcomers = self._newcomers, []
            gone, self._gone = self._gone, []
        for listener in newcomers:
            try:
                listener.open_at(_start_of(listener, self._scanner, tip), tip)
            except PubSubError as error:
                self._end(listener, error)
            else:
                self._behind.add(listener)
                wake(listener.take_waiters())
        for listener in gone:
            self._behind.discard(listener)
            self._current.get(listener.interest, WeakSet()).discard(listener)
        for interest in [interest for interest, listeners in self._current.items() if not listeners]:
            del self._current[interest]

    def _catch_up(self, tip: Tip, shared: int) -> bool:
        """Reads once for the listener furthest behind, and for all near it. Returns whether there was one."""
        for listener in [one for one in self._behind if one.position == shared]:
            self._make_current(listener)
        behind = [one for one in self._behind if one.position < shared and one.has_room]
        if not behind:
            return False
        start = min(one.position for one in behind)
        until = min(shared, start + self._read_size_behind.positions)
        near = [one for one in behind if one.position < until]
        by_interest: dict[Interest, list[Listener]] = {}
        for listener in near:
            by_interest.setdefault(listener.interest, []).append(listener)
        until, full = self._deliver(self._read_size_behind, by_interest, tip, start, until)
        for listener in near:
            if listener not in full and listener.position < until:
                listener.position = until
                if until == shared:
                    self._make_current(listener)
        return True

    def _make_current(self, listener: Listener) -> None:
        listener.behind = False
        self._behind.discard(listener)
        self._current.setdefault(listener.interest, WeakSet()).add(listener)

    def _deliver(
        self,
        size: ReadSize,
        listeners: Mapping[Interest, Iterable[Listener]],
        tip: Tip,
        position: int,
        until: int,
    ) -> tuple[int, set[Listener]]:
        """Reads, and gives each listener what matches its interest. Returns the position read up to, and the listeners
        that were full before it."""
        matches, until = self._scanner.read(list(listeners), tip, position, until)
        size.adapt(len(matches))
        waiters: list[Waiter] = []
        full: set[Listener] = set()
        for match in matches:
            item = Item(match.position, match.event)
            for interest in match.interests:
                for listener in listeners[interest]:
                    if listener not in full and not listener.give(item, waiters):
                        full.add(listener)
        wake(waiters)
        return until, full


def _start_of(listener: Listener, scanner: Scanner, tip: Tip) -> int:
    """The position at which a listener begins."""
    topics = listener.interest.topics
    for name in topics:
        if not is_pattern(name) and name not in tip.offsets and conf().unknown_topic != "create":
            raise unknown_topic(name, list(tip.offsets))
    start = listener.start
    if start == "latest":
        return tip.position
    ((oldest,),) = scanner.fetch(load("streams/oldest_position"), {})
    if start == "earliest":
        return int(oldest)
    position: int | None
    if isinstance(start, Position):
        position = start.number if start.number <= tip.position else None
    else:
        (name,) = topics
        number = next((number for number, known in tip.topics.items() if known == name), None)
        ((position,),) = scanner.fetch(load("streams/find_position"), {"topic_id": number, "c_offset": start})
    if position is None or position < oldest:
        raise CannotResume(
            f"The log of {', '.join(topics)} cannot be read from there: the events have been dropped, or never "
            f'existed. Start again, at "earliest" or "latest".'
        )
    return position
