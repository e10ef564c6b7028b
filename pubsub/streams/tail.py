"""Following a topic without being a group: nothing is locked, moved or held back.

A reader that returns continues from the offset where it stopped. Notifications only make it faster: polling alone is
enough.
"""

import datetime as dt
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.db import DatabaseError, InterfaceError, OperationalError, connections

from pubsub.db.connections import can_listen, dedicated_connection
from pubsub.db.errors import may_not_write
from pubsub.db.locks import follow
from pubsub.db.sql import load
from pubsub.errors import Refused
from pubsub.events import Entry, Event, columns_of
from pubsub.payloads.visible import readable
from pubsub.sequencing.sequencer import sequence
from pubsub.sequencing.wake import MOVED_CHANNEL
from pubsub.topics.registry import topic_id

logger = logging.getLogger(__name__)

PAGE = 1000
"""Entries that one statement reads, whether they match or not."""

LOOK_UP_S = 0.2
"""How often a waiting reader checks whether it has been stopped."""


@dataclass(kw_only=True)
class Tail:
    """A topic's events from an offset on, each with the group that it is directed to, if it is.

    >>> list(Tail(topic="default", using="default", start="latest", follow=False))
    []
    """

    topic: str
    using: str
    start: str | int | dt.datetime = "latest"
    """"earliest", "latest", an offset, or a time."""
    last: int = 0
    """Begin this many offsets before the start."""
    types: Sequence[str] = ()
    keys: Sequence[str] = ()
    follow: bool = True
    """Wait for more at the end, until stopped."""
    listen: bool = True
    wait_period_s: float = 1.0
    next_offset: int = field(default=0, init=False)
    """The offset to continue from."""
    gone: tuple[int, int] | None = field(default=None, init=False)
    """The first and last of the requested offsets that retention has dropped; None if there are none."""
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _numbers: bool = field(default=True, init=False)

    def stop(self) -> None:
        self._stopping.set()

    def __iter__(self) -> Iterator[tuple[Event, str | None]]:
        number = topic_id(self.topic, self.using, make=False)
        self._number_what_is_new()
        self._begin(number)
        with ExitStack() as closing:
            waiting: psycopg.Connection[Any] | None = None
            if self.follow and self.listen:
                waiting = self._listen(closing)
            while not self._stopping.is_set():
                try:
                    yield from self._read(number)
                    if not self.follow:
                        return
                    waiting = self._wait(waiting)
                    self._number_what_is_new()
                except (OperationalError, InterfaceError) as error:
                    if not self.follow:
                        raise
                    logger.warning("lost the connection to the database (%s); retrying", error)
                    connections[self.using].close()
                    self._stopping.wait(self.wait_period_s)

    def _begin(self, number: int) -> None:
        oldest, tip = self._ends(number)
        if isinstance(self.start, dt.datetime):
            with connections[self.using].cursor() as cursor:
                cursor.execute("SELECT pubsub_offset_at_v1(%s, %s)", [number, self.start])
                first = cursor.fetchone()[0] or tip + 1
        elif isinstance(self.start, int):
            first = self.start
            if first > tip + 1:
                raise Refused(f'Offset {first} is beyond the tip of topic "{self.topic}", which is {tip}.')
        else:
            first = oldest if self.start == "earliest" else tip + 1
        first = max(1, first - self.last)
        if first < oldest:
            if not self.last:
                self.gone = first, oldest - 1
            first = oldest
        self.next_offset = first

    def _ends(self, number: int) -> tuple[int, int]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(load("streams/tail_ends"), {"topic_id": number})
            oldest, tip = cursor.fetchone() or (1, 0)
        return int(oldest), int(tip)

    def _read(self, number: int) -> Iterator[tuple[Event, str | None]]:
        """All events up to the tip. The next offset moves with each event, so stopping in between loses none."""
        _, tip = self._ends(number)
        while self.next_offset <= tip and not self._stopping.is_set():
            last = min(tip, self.next_offset + PAGE - 1)
            with connections[self.using].cursor() as cursor:
                cursor.execute(
                    load("streams/tail", columns=columns_of("message")),
                    {
                        "topic_id": number,
                        "first": self.next_offset,
                        "last": last,
                        "types": list(self.types) or None,
                        "keys": list(self.keys) or None,
                    },
                )
                rows = cursor.fetchall()
            for partition_id, to_group, *columns in rows:
                event = readable(Entry(*columns), self.topic, partition_id)
                self.next_offset = event.offset + 1
                yield event, to_group
            self.next_offset = last + 1

    def _number_what_is_new(self) -> None:
        """If no consumer runs, nothing else would. A read-only role leaves it to others."""
        if not self._numbers:
            return
        try:
            sequence(self.using)
        except DatabaseError as error:
            if not may_not_write(error):
                raise
            self._numbers = False

    def _listen(self, closing: ExitStack) -> psycopg.Connection[Any] | None:
        try:
            connection = closing.enter_context(dedicated_connection(self.using))
            if not can_listen(connection):
                return None
            follow(connection, MOVED_CHANNEL)
        except psycopg.Error as error:
            logger.warning("cannot listen (%s); polling instead", error)
            return None
        return connection

    def _wait(self, waiting: psycopg.Connection[Any] | None) -> psycopg.Connection[Any] | None:
        """Waits until events were numbered, or the period is over. Returns the connection while it works."""
        until = time.monotonic() + self.wait_period_s
        while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
            if waiting is None:
                self._stopping.wait(min(left, LOOK_UP_S))
                continue
            try:
                if any(True for _ in waiting.notifies(timeout=min(left, LOOK_UP_S), stop_after=1)):
                    break
            except psycopg.Error as error:
                logger.warning("lost the listening connection (%s); polling from now on", error)
                waiting = None
        return waiting
