"""Leases: what a worker has in hand outside any transaction, as it sees it itself, and as the others see it.

A lease is a row of `consumer_claims`, one for a partition at most. It has the cursor's epoch: an acknowledgement that
comes too late finds another one, and changes nothing. It says which worker counted the last attempt, so that a worker
that takes an attempt back takes back its own.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from django.db import connections

from pubsub.db.connections import can_listen
from pubsub.db.locks import WORKERS, alive, take
from pubsub.db.sql import load
from pubsub.dead_letters.attempts import Letters
from pubsub.errors import LeaseLost
from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionTask

from .cursor import Cursor, lock_cursor
from .entries import Given
from .failing import Failing
from .reader import EntryReader


class OtherLease(NamedTuple):
    """A lease that is there already: of a worker that lives, or of one that has fallen silent."""

    is_alive: bool
    attempts: int
    first_offset: int
    last_offset: int


def lock_unless_leased(db: Any, task: PartitionTask, worker_id: str) -> tuple[Cursor, OtherLease | None] | None:
    """The cursor, locked, and the lease that a dead worker has left. None where a worker that lives has either."""
    cursor = lock_cursor(db, task)
    if cursor is None:
        return None
    db.execute(load("consuming/find_lease"), {**task.parameters, "worker_id": worker_id, "family": WORKERS})
    row = db.fetchone()
    lease = OtherLease(*row) if row else None
    return None if lease and lease.is_alive else (cursor, lease)


def attempt_after(lease: OtherLease | None, cursor: Cursor) -> int:
    """Which attempt at what comes next it is, behind the lease that a dead worker has left."""
    return lease.attempts + 1 if lease and lease.first_offset >= cursor.next_offset else 1


def forget_lease(db: Any, task: PartitionTask) -> None:
    """Removes the lease of a partition, which the caller has locked."""
    db.execute(load("consuming/forget_lease"), task.parameters)


def leases_in_hand(using: str, *, topic_id: int, group: str, partitions: Sequence[int] | None = None) -> dict[int, str]:
    """The partitions that workers which live have under a lease, and who."""
    asked: dict[str, Any] = {
        "topic_id": topic_id,
        "group_id": group,
        "partitions": None if partitions is None else list(partitions),
        "family": WORKERS,
    }
    with connections[using].cursor() as db:
        db.execute(load("consuming/leases_in_hand"), asked)
        return dict(db.fetchall())


def show_alive(session: psycopg.Connection[Any]) -> int | None:
    """Takes a lock that goes with this connection. Returns its key; None where that cannot be had."""
    if not can_listen(session):
        return None
    key = random.randrange(2**31)  # noqa: S311
    take(session, alive(key))
    return key


@dataclass(kw_only=True, eq=False)
class HeldLease:
    """A worker's lease on a partition, from taking it to acknowledging."""

    task: PartitionTask
    epoch: int
    worker_id: str
    next_offset: int
    """Where the cursor stands."""
    attempt: int
    """Which attempt at the first publisher's transaction it is."""
    runs_out_at: float
    """By this process's own clock, if it is not renewed."""
    renew: Callable[["HeldLease"], None]
    entries: list[Entry]
    """What was read when it was taken. A long transaction goes on behind it."""
    is_whole: bool = True
    """Whether no transaction goes on behind it."""
    letters: Letters | None = None
    """What is tried again, where that is what it was taken for."""
    taken_over: bool = False
    """Whether another worker seems to have died with it."""
    failing: Failing | None = None
    """At what the database has failed before, under a handler."""
    given: Given | None = None
    """What the handler was given last."""
    lost: bool = False
    last: Entry | None = None
    """The last one that was handled, or set aside."""
    unacknowledged: int = 0
    """Entries up to there that are still to be acknowledged."""

    @property
    def parameters(self) -> dict[str, Any]:
        return {
            **self.task.parameters,
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
        rest = EntryReader(self.task, len(self.entries)).begin_at(last.position + 1)
        of_it = itertools.takewhile(lambda entry: entry.transaction_id == last.transaction_id, rest)
        return map(self._watched, itertools.chain(self.entries, of_it))

    def _watched(self, entry: Entry) -> Entry:
        if time.monotonic() > self.runs_out_at:
            self.renew(self)  # the process has stood still, or its thread could not renew
        if self.lost:
            raise LeaseLost(f"{self.task}: another worker has taken over, from offset {entry.offset} on or before.")
        is_same = self.given and self.given.last.transaction_id == entry.transaction_id
        self.given = Given(self.given.first if self.given and is_same else entry, entry)
        return entry

    # Its row. The caller has a transaction, or a connection in autocommit.

    def take(self, db: Any, *, first: int, last: int, lock_key: int | None, lease_s: float) -> None:
        """Writes it down, under the next epoch of the cursor, which the caller has locked."""
        db.execute(
            load("consuming/take_lease"),
            {
                **self.parameters,
                "first_offset": first,
                "last_offset": last,
                "lock_key": lock_key,
                "attempts": self.attempt,
                "lease_s": lease_s,
            },
        )

    def move(self, db: Any, last: Entry, count: int, *, keep: bool, keep_range: bool = False) -> None:
        """Moves the cursor behind this entry, over so many, if it is still the same lease. It ends, unless it is to be
        kept for what is still in hand."""
        db.execute(
            load("consuming/acknowledge"),
            {
                **self.parameters,
                "next_offset": last.offset + 1,
                "next_position": last.position + 1,
                "count": count,
                "keep": keep,
                "keep_range": keep_range,
            },
        )
        if db.fetchone() != (1,):
            raise LeaseLost(
                f"{self.task}: the lease ran out and another worker has taken over; what was handled up to offset "
                f"{last.offset} is not acknowledged."
            )
        self.next_offset = last.offset + 1

    def drop(self, db: Any) -> bool:
        """Ends it. Says whether it was still the same lease."""
        db.execute(load("consuming/drop_lease"), self.parameters)
        return bool(db.rowcount)

    def uncount(self) -> None:
        """No worker has died: whichever holds the lease now, this attempt at what comes next does not count. Not before
        the handler has come to its end: until then it may still be what this worker dies of."""
        with connections[self.task.using].cursor() as db:
            db.execute(load("consuming/uncount_attempt"), self.parameters)
