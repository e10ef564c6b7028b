"""Crashes: where a worker seems to have died of an event, the next attempt is counted before it is made.

A transaction that dies takes its traces with it, but one: the row lock on the cursor names it. A worker that finds that
the last transaction to lock a cursor was aborted handles one publisher's transaction at a time, counts each attempt in
`consumer_claims` before it begins, and sets the transaction aside when too many attempts have ended with a death.

Only deaths may count. So the counter has a connection of its own, which shows that the worker lives, whatever becomes
of the one on which its handlers work: until it has uncounted what it had counted, no other worker counts.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import psycopg
from django.db import Error, connections, transaction

from pubsub.db.connections import dedicated_connection
from pubsub.db.guard import forget
from pubsub.db.sql import load
from pubsub.db.transactions import in_atomic_block
from pubsub.errors import WorkerDied
from pubsub.subscriptions.task import PartitionKey, PartitionTask

from .cursor import lock_cursors
from .lease import attempt_after, forget_lease, lock_unless_leased, show_alive

logger = logging.getLogger(__name__)

MOST_DEATHS = 3
"""Attempts that may end with the worker's death, at least; more where `retry` allows for more attempts."""

BELIEVED_S = 5
"""How long the others keep away from an attempt that was counted behind a transaction pooler, where it does not show
whether its worker lives. By then it has the lock on the cursor, without which no worker counts, or it has failed."""

SHOWN_S = 24 * 60 * 60
"""And where it does show: for as long as any handler takes. A death is seen at once."""


def most_attempts(task: PartitionTask) -> int:
    return max(MOST_DEATHS, 1 + task.declared.retry.retries)


def died(attempts: int) -> WorkerDied:
    return WorkerDied(
        f"Workers died {attempts} times while they handled this transaction, or were killed. It is not tried again "
        f"unless you replay it."
    )


@dataclass(frozen=True, kw_only=True)
class Counted:
    """An attempt that has been counted."""

    attempt: int
    epoch: int
    next_offset: int
    """Where the cursor stands."""
    last_offset: int
    """The end of what the worker that died may have had in hand."""
    taken_over: bool
    """Whether another was counted before, or there is more of what a worker that died may have had in hand."""
    poisoned: WorkerDied | None = None
    """Why the first transaction with something for the group is not to be tried again."""


class Deferred:
    """What is left to do where an attempt was broken off while the database was away, by partition."""

    def __init__(self) -> None:
        self.left: dict[PartitionKey, list[Callable[[], None]]] = {}

    def do(self, task: PartitionTask, action: Callable[[], None]) -> None:
        """Does it on a connection that no handler and no failure has touched; if the database is away, before this
        worker works on the partition again."""
        forget_connection(task)
        try:
            action()
        except Error as error:
            logger.warning("%s: %s; what is left is done when the database is back", task, error, extra=task.facts)
            self.left.setdefault(task.key, []).append(action)

    def finish(self, task: PartitionTask) -> None:
        """Does what is left to do in a partition, in order, or raises what keeps it from being done."""
        actions = self.left.pop(task.key, [])
        while actions:
            try:
                actions[0]()
            except Error:
                self.left[task.key] = actions
                raise
            del actions[0]


class CrashCounter:
    """Counts one worker's attempts in a partition. Close it, or use it in a `with` statement."""

    def __init__(self, task: PartitionTask, worker_id: str, deferred: Deferred | None = None) -> None:
        self._task = task
        self._worker_id = worker_id
        self._deferred = deferred or Deferred()
        with ExitStack() as closing:
            self._session = closing.enter_context(dedicated_connection(task.using))
            self._lock_key = show_alive(self._session)
            self._closing = closing.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._closing.close()

    def count(self, batch_size: int) -> Counted | None:
        """Notes that the next publisher's transaction is going to be tried. None where nothing is left, or another
        worker is at it."""
        counted = None
        try:
            with self._session.transaction(), self._session.cursor() as db:
                counted = self._count(db, batch_size)
        except psycopg.Error:
            if counted:  # it may have been counted: the answer to the COMMIT is what got lost
                self.uncount(counted)
            raise
        return counted

    def uncount(self, counted: Counted) -> None:
        """No worker has died of this attempt: it failed for another reason, or was not made."""
        statement, parameters = load("consuming/uncount_attempt"), self._parameters(counted)

        def uncount() -> None:
            with connections[self._task.using].cursor() as db:
                db.execute(statement, parameters)

        try:
            self._session.execute(statement, parameters)
        except psycopg.Error:
            self._deferred.do(self._task, uncount)

    def _count(self, db: Any, batch_size: int) -> Counted | None:
        task = self._task
        found = lock_unless_leased(db, task, self._worker_id)
        if found is None:
            return None
        cursor, lease = found
        db.execute(
            load("consuming/next_range"),
            {
                **task.parameters,
                "position": cursor.next_position,
                "below_position": task.below_position,
                "limit": batch_size,
            },
        )
        first, last = db.fetchone() or (None, None)
        if first is None or last is None:
            forget_lease(db, task)
            return None
        attempt = attempt_after(lease, cursor)
        is_poisoned = attempt > most_attempts(task)
        counted = Counted(
            attempt=attempt - is_poisoned,
            epoch=cursor.epoch + 1,
            next_offset=cursor.next_offset,
            last_offset=lease.last_offset if lease and lease.last_offset >= first else last,
            taken_over=lease is not None,
            poisoned=died(attempt - 1) if is_poisoned else None,
        )
        db.execute(
            load("consuming/take_lease"),
            {
                **self._parameters(counted),
                "first_offset": first,
                "last_offset": counted.last_offset,
                "lock_key": self._lock_key,
                "attempts": attempt,
                "lease_s": BELIEVED_S if self._lock_key is None else SHOWN_S,
            },
        )
        return counted

    def _parameters(self, counted: Counted) -> dict[str, Any]:
        return {
            **self._task.parameters,
            "worker_id": self._worker_id,
            "epoch": counted.epoch,
            "next_offset": counted.next_offset,
            "taken_over": counted.taken_over,
        }


def show_that_no_worker_died(*tasks: PartitionTask) -> None:
    """What has failed in partitions of a group is no death. A lock that is committed says so to the next worker."""
    task = tasks[0]
    forget_connection(task)
    try:
        with transaction.atomic(using=task.using), connections[task.using].cursor() as db:
            lock_cursors(db, tasks)
    except Error as error:
        logger.debug("%s: the next worker there will count as after a crash: %s", task, error)


def forget_connection(task: PartitionTask) -> None:
    """The next statement is sent on another connection, unless a transaction is open around all this."""
    if not in_atomic_block(connections[task.using]):
        forget(task.using)
