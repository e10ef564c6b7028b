"""What a lease is, and how a process keeps those it has: by renewing them, and by a lock that shows that it lives."""

import itertools
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.db import connections

from pubsub.errors import LeaseLost
from pubsub.sequencing.wakeup import dedicated_connection
from pubsub.sql import load

from .claims import show_alive
from .reading import Entry, Place, PlaceKey, Reader
from .setting_aside import Letters

logger = logging.getLogger("pubsub.leasing")

WAIT_TO_BE_SEEN_S = 1
"""How long a worker waits for that lock before it takes a lease. One that dies without it is believed to live on."""


@dataclass(kw_only=True, eq=False)
class Lease:
    """A worker's claim on a place, from taking it to acknowledging."""

    place: Place
    epoch: int
    worker_id: str
    next_offset: int
    """Where the cursor stands."""
    attempt: int
    entries: list[Entry]
    """What was read when it was taken. A long transaction goes on behind it."""
    is_whole: bool
    runs_out_at: float
    """By this process's own clock, if nobody renews it."""
    renew: Callable[["Lease"], None]
    letters: Letters | None = None
    """What is tried again, where that is what it was taken for."""
    lost: bool = False
    taken_over: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            **self.place.parameters,
            "epoch": self.epoch,
            "worker_id": self.worker_id,
            "next_offset": self.next_offset,
            "taken_over": self.taken_over,
        }

    def all_entries(self) -> Iterator[Entry]:
        """In a transaction that is longer than what was read at first, the rest is read while it is handled.

        No generator: after a failure it goes on where it was, so that the whole transaction is set aside.
        """
        if self.letters is not None:
            return map(self._watched, self.letters)
        if self.is_whole:
            return map(self._watched, self.entries)
        last = self.entries[-1]
        rest = Rest(self.place, last.position + 1, len(self.entries))
        of_it = itertools.takewhile(lambda entry: entry.transaction_id == last.transaction_id, rest)
        return map(self._watched, itertools.chain(self.entries, of_it))

    def _watched(self, entry: Entry) -> Entry:
        if time.monotonic() > self.runs_out_at:
            self.renew(self)  # the process has stood still, or nobody has been able to renew
        if self.lost:
            raise LeaseLost(f"{self.place}: another worker has taken over, from offset {entry.offset} on or before.")
        return entry


class Rest:
    """What follows in a partition, a chunk at a time. A handler may close the connection: nothing of it is kept."""

    def __init__(self, place: Place, position: int, size: int) -> None:
        self._place = place
        self._position = position
        self._size = size
        self._entries: Iterator[Entry] = iter(())

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        entry = next(self._entries, None)
        if entry is None:
            self._entries = self._read_on()
            entry = next(self._entries)
        self._position = entry.position + 1
        return entry

    def _read_on(self) -> Iterator[Entry]:
        reader = Reader(self._place, self._position, self._size)
        return iter(list(itertools.islice(reader, self._size)))


@dataclass(kw_only=True)
class LeaseKeeper:
    """Renews the leases of one process, once it is started. Its thread has a connection of its own."""

    using: str
    lease_s: float
    held: dict[PlaceKey, Lease] = field(default_factory=dict)
    lock_key: int | None = None
    """Of the lock that shows that this process lives; None where that cannot be shown."""
    _seen: threading.Event = field(default_factory=threading.Event)
    """Others can see that this worker lives, as well as they ever will."""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _bell: tuple[socket.socket, socket.socket] | None = None
    """To interrupt the thread's waiting: what is written into the first end arrives at the second."""

    def start(self) -> None:
        if self._thread is None:
            self._bell = socket.socketpair()
            self._thread = threading.Thread(target=self._run, name="pubsub-leases", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread and self._bell:
            self._bell[0].send(b"!")
            self._thread.join()
            for end in self._bell:
                end.close()
            self._thread = self._bell = None

    def wait_until_seen(self) -> None:
        if self._thread:
            self._seen.wait(WAIT_TO_BE_SEEN_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with dedicated_connection(self.using) as connection:
                    self.lock_key = show_alive(connection)
                    self._renew(connection, list(self.held.values()))
                    self._seen.set()
                    while not self._stopping.is_set():
                        self._wait_or_hear_from(connection, self.lease_s / 3)
                        self._renew(connection, list(self.held.values()))
            except psycopg.Error as error:
                logger.warning("leases cannot be renewed (%s); connecting again", error)
            except Exception:
                logger.exception("renewing leases failed; starting again")
            self.lock_key = None
            if not self._seen.is_set():
                self._stopping.wait(self.lease_s / 10)
            self._seen.clear()

    def _wait_or_hear_from(self, connection: psycopg.Connection[Any], seconds: float) -> None:
        """Raises as soon as the connection is cut off: until there is another one, others believe this worker dead."""
        assert self._bell  # noqa: S101 - start() has made it
        with selectors.DefaultSelector() as selector:
            session = selector.register(connection, selectors.EVENT_READ)
            selector.register(self._bell[1], selectors.EVENT_READ)
            if any(heard is session for heard, _ in selector.select(seconds)):
                connection.execute("SELECT")

    def renew(self, lease: Lease) -> None:
        """One that its own thread could not renew in time."""
        with connections[lease.place.using].cursor() as cursor:
            self._renew(cursor, [lease])

    def _renew(self, session: Any, held: Sequence[Lease]) -> None:
        """On a connection or a cursor, in autocommit."""
        if not held:
            return
        runs_out_at = time.monotonic() + self.lease_s
        groups, topics, partitions, epochs = zip(*((*lease.place.key, lease.epoch) for lease in held), strict=True)
        parameters = {
            "groups": list(groups),
            "topics": list(topics),
            "partitions": list(partitions),
            "epochs": list(epochs),
            "lock_key": self.lock_key,
            "lease_s": self.lease_s,
        }
        renewed = set()
        # One after the other has its claim moved on where the default isolation is strict: then once more.
        for again in (True, True, False):
            try:
                answer = session.execute(load("renew_claims"), parameters) or session
                renewed = {tuple(row) for row in answer.fetchall()}
                break
            except psycopg.errors.SerializationFailure:
                if not again:
                    raise
        for lease in held:
            if lease.place.key in renewed:
                lease.runs_out_at = runs_out_at
            else:
                lease.lost = True
