"""The thread that reads the log for all listeners of a process, and evaluates each distinct filter once.

It reads by position, woken when something was numbered, or by polling; where no sequencer runs, it numbers by itself.
Listeners are *current*, and share its position, or *behind*, because they begin in the past or were full. Those behind
catch up in between, many at a time, by reads of bounded size. One whose filter is costly is always behind, so that the
others do not wait for it.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakSet

import psycopg

from pubsub.conf import conf
from pubsub.db.background import ListeningPart
from pubsub.db.connections import can_listen
from pubsub.db.errors import is_transient, may_not_write
from pubsub.db.locks import follow
from pubsub.errors import CannotResume, PubSubError
from pubsub.sequencing.delayed import move_due_on
from pubsub.sequencing.sequencer import sequence_on
from pubsub.sequencing.wake import MOVED_CHANNEL

from .catch_up import choose
from .history import History
from .listener import Listener, Waiter, wake
from .scan import SLOW_S, Interest, ReadSize, Scanner, Tip
from .start import position_of


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
        self._numbers = True
        """Whether this session may number. One that may only read leaves it to others."""
        self._read_size = ReadSize()
        self._read_sizes_behind = {False: ReadSize(), True: ReadSize(least=1)}
        """Of listeners with light filters, and of those with costly ones."""
        self._turn = 0
        self._history = History()
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
        try:
            if can_listen(connection):
                follow(connection, MOVED_CHANNEL)
        except psycopg.Error as error:
            if not may_not_write(error):  # a standby sends no notifications: then it polls
                raise
        self._scanner = Scanner(connection)
        self._own_pass_at = 0
        self._numbers = True
        self._history.doubt()

    def step(self) -> float | None:
        """Reads on for all listeners. A permanent error is raised in their code; a transient one is waited out."""
        if self._may_end(self):
            return None
        try:
            connection = self.connection()
            self._number_unless_notified(connection)
            return 0.0 if self._read_on() else max(0.0, self._own_pass_at - time.monotonic())
        except CannotResume as error:
            # Those that have just come begin in the log as it is now.
            self._fail_all(error, newcomers=False)
            return 0.0
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
            if not self.notified and self._numbers:
                self._number(connection)

    def _number(self, connection: psycopg.Connection[Any]) -> None:
        try:
            with connection.cursor() as cursor:
                move_due_on(cursor)
            sequence_on(connection, notifies=True)
        except psycopg.Error as error:
            if not may_not_write(error):
                raise
            self._numbers = False

    def _fail_all(self, error: Exception, *, newcomers: bool = True) -> None:
        with self._lock:
            failed = set(self._listeners)
            if newcomers:
                self._newcomers = []
            failed.difference_update(self._newcomers)
        for listener in failed:
            self._end(listener, error)
        self._position = self.reached = None
        self._history = History()

    def _end(self, listener: Listener, error: Exception) -> None:
        self.remove(listener)
        listener.fail(error)
        wake(listener.take_waiters())

    def _read_on(self) -> bool:
        """Reads for the current listeners, and for some of those behind. Returns whether there is more to read now."""
        tip = self._scanner.tip()
        self._history.recognise(tip, self._position, self._scanner)
        if self._position is None:
            self._position = tip.position
        self._admit(tip)
        until = min(tip.position, self._position + self._read_size.positions)
        if until > self._position:
            self._position, full = self._deliver(self._read_size, self._current, tip, self._position, until)
            for listener in full:
                self._current[listener.interest].discard(listener)
                self._behind.add(listener)
        if self._position == tip.position and (
            self.reached is None or (tip.position > self.reached.position and self._history.may_mark)
        ):
            self.reached = self._history.marked(tip, self._scanner)
        has_read = self._catch_up(tip, self._position)
        self.statements += self._scanner.statements
        self._scanner.statements = 0
        return has_read or self._position < tip.position

    def _admit(self, tip: Tip) -> None:
        """Adds new listeners, and removes closed ones."""
        with self._lock:
            newcomers, self._newcomers = self._newcomers, []
            gone, self._gone = self._gone, []
        if newcomers:
            tip = self._history.marked(tip, self._scanner)
        for listener in newcomers:
            try:
                start = position_of(listener.start, listener.interest.topics, tip, self._scanner)
            except PubSubError as error:
                self._end(listener, error)
            else:
                listener.open_at(start, tip)
                self._behind.add(listener)
                wake(listener.take_waiters())
        for listener in gone:
            self._behind.discard(listener)
            self._current.get(listener.interest, WeakSet()).discard(listener)
        for interest in [interest for interest, listeners in self._current.items() if not listeners]:
            del self._current[interest]

    def _catch_up(self, tip: Tip, shared: int) -> bool:
        """Reads for some listeners that are behind. Returns whether there were any."""
        for listener in [one for one in self._behind if one.position == shared]:
            self._arrive(listener, shared)
        has_read = False
        for is_costly, size in self._read_sizes_behind.items():
            waiting = [
                one
                for one in self._behind
                if one.position < shared and one.has_room and one.interest.is_costly == is_costly
            ]
            if waiting:
                self._serve(waiting, size, tip, shared)
                has_read = True
        return has_read

    def _serve(self, waiting: list[Listener], size: ReadSize, tip: Tip, shared: int) -> None:
        """Reads once for one of them, and for those that are near it."""
        self._turn += 1
        start, chosen = choose(waiting, self._turn, size.positions)
        until, full = self._deliver(size, chosen, tip, start, min(shared, start + size.positions))
        for listener in itertools.chain(*chosen.values()):
            if listener not in full and listener.position < until:
                listener.position = until
                if until == shared:
                    self._arrive(listener, shared)

    def _arrive(self, listener: Listener, shared: int) -> None:
        """It has caught up."""
        if not listener.interest.is_costly:
            self._make_current(listener)
        elif self.reached and self.reached.position <= shared:
            listener.reached = self.reached

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
        begun = time.monotonic()
        try:
            matches, until = self._scanner.read(list(listeners), tip, position, until)
        except psycopg.errors.QueryCanceled:  # the site's own statement_timeout
            size.adapt(0, time.monotonic() - begun + SLOW_S)
            raise
        size.adapt(len(matches), time.monotonic() - begun)
        if matches:
            self._history.saw(matches[-1].item)
        waiters: list[Waiter] = []
        full: set[Listener] = set()
        for match in matches:
            for interest in match.interests:
                for listener in listeners[interest]:
                    if listener not in full and not listener.give(match.item, waiters):
                        full.add(listener)
        wake(waiters)
        return until, full
