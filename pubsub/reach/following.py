"""The thread that reads the log for all listeners of a process, and evaluates each distinct filter once.

It follows the log by position, woken when something was numbered, or by polling; where nobody numbers, it does so
itself. Listeners that are behind, because they begin in the past or were full, are brought up in the same way, many at
a time, by ranges of bounded size, in between.
"""

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import psycopg

from pubsub.conf import conf
from pubsub.consuming.failures import is_transient
from pubsub.errors import CannotResume, PubSubError
from pubsub.sequencing import wakeup
from pubsub.sequencing.numbering import sequence_on
from pubsub.sql import load
from pubsub.topics.finding import unknown_topic
from pubsub.topics.patterns import is_pattern

from .listeners import Item, Listener, Position, Waiter, wake
from .log_walk import Span, Tip, Walk, Wish

logger = logging.getLogger("pubsub.following")

LONGEST_PAUSE_S = 30


class Follower(threading.Thread):
    """Reads for all listeners of a database until the last one has gone."""

    def __init__(self, using: str, may_end: Callable[["Follower"], bool]) -> None:
        super().__init__(name=f"pubsub-listening-{using}", daemon=True)
        self.using = using
        self.place: Tip | None = None
        """Where all that are not behind have arrived, as soon as there was no more to read."""
        self.statements = 0
        """How many it has read the log by: what all its listeners cost."""
        self._may_end = may_end
        self._listeners: WeakSet[Listener] = WeakSet()
        self._newcomers: list[Listener] = []
        self._gone: list[Listener] = []
        self._lock = threading.Lock()
        # From here on this thread's alone.
        self._following: dict[Wish, WeakSet[Listener]] = {}
        self._behind: WeakSet[Listener] = WeakSet()
        self._position: int | None = None
        self._own_pass_at = 0.0
        self._span, self._span_behind = Span(), Span()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)

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

    def wake(self) -> None:
        """Makes it look at its listeners: one has come, has room again, or has gone."""
        with suppress(OSError):  # it has been told already, or has ended
            self._waker.send(b"\0")

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not self._newcomers and len(self._listeners) == 0

    def run(self) -> None:
        pause_s = 0.0
        while not self._may_end(self):
            try:
                with wakeup.dedicated_connection(self.using) as connection:
                    pause_s = 0
                    self._follow(connection)
                continue
            except psycopg.Error as error:
                if not is_transient(error):
                    self._fail_all(error)
                    continue
                logger.warning("lost the connection that listeners are read for (%s); connecting again", error)
            except PubSubError as error:
                self._fail_all(error)
                continue
            except Exception:
                logger.exception("reading for listeners failed; starting again")
            pause_s = min(max(2 * pause_s, conf().wait_period_ms / 1000), LONGEST_PAUSE_S)
            self._pause(pause_s)
        self._woken.close()
        self._waker.close()

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            while (left := until - time.monotonic()) > 0 and not self.is_idle:
                selector.select(left)
                self._forget_wakes()

    def _forget_wakes(self) -> None:
        with suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    def _fail_all(self, error: Exception) -> None:
        with self._lock:
            everybody, self._newcomers = {*self._listeners, *self._newcomers}, []
        for listener in everybody:
            self._fail(listener, error)
        self._position = None

    def _fail(self, listener: Listener, error: Exception) -> None:
        self.remove(listener)
        listener.fail(error)
        wake(listener.take_waiters())

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        walk = Walk(connection)
        connection.execute("SET jit = off")
        if wakeup.can_listen(connection):
            connection.execute(f"LISTEN {wakeup.MOVED_CHANNEL}")
            connection.execute(f"SELECT pg_advisory_lock_shared({wakeup.FOLLOWING})")
        self._own_pass_at = 0
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self.is_idle:
                self._number_if_nobody_does(connection)
                there_is_more = self._step(walk)
                # What came while it was reading is in psycopg's hands, where select() does not see it.
                if not self._was_told(connection) and not there_is_more:
                    selector.select(max(0.0, self._own_pass_at - time.monotonic()))
                    self._was_told(connection)
                self._forget_wakes()

    def _was_told(self, connection: psycopg.Connection[Any]) -> bool:
        told = any(True for _ in connection.notifies(timeout=0))
        if told:  # then somebody numbers
            self._own_pass_at = time.monotonic() + conf().wait_period_ms / 1000
        return told

    def _number_if_nobody_does(self, connection: psycopg.Connection[Any]) -> None:
        if time.monotonic() >= self._own_pass_at:
            self._own_pass_at = time.monotonic() + conf().wait_period_ms / 1000
            connection.execute(load("move_due_messages"), {"limit": 1000})
            sequence_on(connection, tells=True)

    def _step(self, walk: Walk) -> bool:
        """Reads on for those that follow along and for those behind. Says whether there is more to do at once."""
        tip = walk.tip()
        if self._position is None:
            self._position = tip.position
        if tip.position < self._position:
            raise CannotResume("The log is shorter than it was: the database has been put back to an older state.")
        self._admit(walk, tip)
        until = min(tip.position, self._position + self._span.positions)
        if until > self._position:
            self._position, fallen_behind = self._read(walk, self._span, self._following, tip, self._position, until)
            for listener in fallen_behind:
                self._following[listener.wish].discard(listener)
                self._behind.add(listener)
        if self._position == tip.position:
            self.place = tip
        brought = self._bring_up(walk, tip, self._position)
        self.statements += walk.statements
        walk.statements = 0
        return brought or self._position < tip.position

    def _admit(self, walk: Walk, tip: Tip) -> None:
        with self._lock:
            newcomers, self._newcomers = self._newcomers, []
            gone, self._gone = self._gone, []
        for listener in newcomers:
            try:
                listener.open_at(_start_of(listener, walk, tip), tip)
            except PubSubError as error:
                self._fail(listener, error)
            else:
                self._behind.add(listener)
                wake(listener.take_waiters())
        for listener in gone:
            self._behind.discard(listener)
            self._following.get(listener.wish, WeakSet()).discard(listener)
        for wish in [wish for wish, members in self._following.items() if not members]:
            del self._following[wish]

    def _bring_up(self, walk: Walk, tip: Tip, shared: int) -> bool:
        """Reads one range for those behind that are near to the one furthest behind. Says whether it did."""
        for listener in [one for one in self._behind if one.position == shared]:
            self._let_follow(listener)
        behind = [one for one in self._behind if one.position < shared and one.has_room]
        if not behind:
            return False
        start = min(one.position for one in behind)
        until = min(shared, start + self._span_behind.positions)
        near = [one for one in behind if one.position < until]
        wishes: dict[Wish, list[Listener]] = {}
        for listener in near:
            wishes.setdefault(listener.wish, []).append(listener)
        until, stalled = self._read(walk, self._span_behind, wishes, tip, start, until)
        for listener in near:
            if listener not in stalled and listener.position < until:
                listener.position = until
                if until == shared:
                    self._let_follow(listener)
        return True

    def _let_follow(self, listener: Listener) -> None:
        listener.behind = False
        self._behind.discard(listener)
        self._following.setdefault(listener.wish, WeakSet()).add(listener)

    def _read(
        self, walk: Walk, span: Span, members: Mapping[Wish, Iterable[Listener]], tip: Tip, position: int, until: int
    ) -> tuple[int, set[Listener]]:
        """Reads for these listeners, and gives each what it wants. Says up to where, and who was full before that."""
        found, until = walk.read(list(members), tip, position, until)
        span.learn(len(found))
        waiters: list[Waiter] = []
        full: set[Listener] = set()
        for one in found:
            item = Item(one.position, one.event)
            for wish in one.wishes:
                for listener in members[wish]:
                    if listener not in full and not listener.give(item, waiters):
                        full.add(listener)
        wake(waiters)
        return until, full


def _start_of(listener: Listener, walk: Walk, tip: Tip) -> int:
    """The position at which a listener begins."""
    for name in listener.wish.topics:
        if not is_pattern(name) and name not in tip.offsets and conf().unknown_topic != "create":
            raise unknown_topic(name, list(tip.offsets))
    start = listener.start
    if start == "latest":
        return tip.position
    ((oldest,),) = walk.fetch(load("oldest_position"), {})
    if start == "earliest":
        return int(oldest)
    position: int | None
    if isinstance(start, Position):
        position = start.number if start.number <= tip.position else None
    else:
        (name,) = listener.wish.topics
        number = next((number for number, known in tip.topics.items() if known == name), None)
        ((position,),) = walk.fetch(load("find_position"), {"topic_id": number, "c_offset": start})
    if position is None or position < oldest:
        raise CannotResume(
            f"The log of {', '.join(listener.wish.topics)} cannot be read from there: what followed has been dropped, "
            f'or has never been. Begin anew, with "earliest" or "latest".'
        )
    return position
