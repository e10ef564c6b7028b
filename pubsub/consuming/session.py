"""A session: one worker in one partition, batch after batch, each in a transaction that holds the cursor.

A batch begins with the lock on the group's cursor and ends by moving it. BEGIN travels with the one and COMMIT with the
other, and while a worker goes on in the partition, the next transaction begins in the round trip that ends the last
one: where batches are small, round trips are what they cost.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from types import TracebackType
from typing import Any

import psycopg
from django.db import DatabaseError, connections, transaction

from pubsub.db.pipeline import FailedBehindCommit, begin, execute_together
from pubsub.db.transactions import hooks_of, in_atomic_block, make_hooks_robust
from pubsub.errors import HandlerEndedTransaction
from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionTask

from .cursor import LOCK, Cursor
from .kept import KeptEntries
from .reader import EntryReader

logger = logging.getLogger(__name__)

_MOVE = (
    "SELECT pubsub_move_cursors_v1(%(group_id)s, %(topic_id)s, %(partitions)s, ARRAY[%(next_offset)s]::bigint[], "
    "ARRAY[%(next_position)s]::bigint[], ARRAY[%(passed)s]::bigint[], %(xid)s)"
)


class PartitionSession(AbstractContextManager["PartitionSession"]):
    """One worker in one partition, batch after batch. Leaving it gives the partition up.

    `may_go_on` is asked before each batch but the first: may it follow, after so many events that are to be committed
    now, and where it has to be read (True)?

    >>> with PartitionSession(task, 100) as session:  # doctest: +SKIP
    ...     with session.batch() as cursor:
    ...         entries = session.entries.begin_at(cursor.next_position)
    ...         session.move(last, passed=3)
    """

    def __init__(
        self,
        task: PartitionTask,
        batch_size: int,
        *,
        kept: KeptEntries | None = None,
        may_go_on: Callable[[int, bool], bool] = lambda passed, reads: False,
    ) -> None:
        self.task = task
        self._batch_size = batch_size
        self._kept = kept
        self.goes_on = False
        """Whether there is more to do here behind the last batch, and time for it."""
        self._may_go_on = may_go_on
        self._block: AbstractContextManager[None] | None = None
        """The transaction that is open."""
        self._commits = True
        """Whether it is ours to commit: tests may have one open around it."""
        self._held: Cursor | None = None
        """The cursor of the batch that is under way."""
        self._next: Cursor | None = None
        """The cursor, where the next batch has begun already."""

    @cached_property
    def entries(self) -> EntryReader:
        """What there is in the partition."""
        return EntryReader(self.task, self._batch_size, self._kept)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end()  # committing nothing: what is rolled back looks as if a worker had died here
        except DatabaseError:
            if error is None:
                raise

    @contextmanager
    def batch(self) -> Iterator[Cursor | None]:
        """A transaction that holds the cursor; None where another worker has it. An error undoes it."""
        self.goes_on = False
        try:
            self._held, self._next = self._next or self._begin(), None
            yield self._held
        except BaseException:
            self._end(*sys.exc_info())
            raise
        if self._next is None:
            self._end()

    def move(self, last: Entry, passed: int, *, also: str | None = None) -> None:
        """Moves the cursor behind this event, and commits, with another statement if there is one to go with it."""
        assert self._held  # noqa: S101 - within batch()
        connection = connections[self.task.using]
        if hooks_of(connection):
            make_hooks_robust(connection)
        self.entries.keep_from(last.position + 1)
        statements = [_MOVE, *([also] if also else []), *(["COMMIT"] if self._commits else [])]
        # What handlers want to be called after the commit may use the database, and must find no transaction there.
        # Nor may it need anything that might fail for a reason of its own: what is committed by then must not seem to
        # have failed.
        entries = self.entries
        self.goes_on = entries.may_have_more and self._may_go_on(passed, not entries.holds_a_batch)
        may_begin = self.goes_on and (entries.holds_a_batch or entries.is_plain)
        at_once = may_begin and self._commits and not hooks_of(connection)
        parameters = {
            **self.task.parameters,
            "next_offset": last.offset + 1,
            "next_position": last.position + 1,
            "passed": passed,
            "xid": self._held.xid,
        }
        try:
            if at_once:
                self._next = self._lock_and_read([*statements, begin(connection.connection)], parameters)
                self.goes_on = self._next is not None
            else:
                execute_together(connection, statements, parameters)
        except FailedBehindCommit as error:
            logger.warning("%s: the next batch has to wait: %s", self.task, error.__cause__, extra=self.task.facts)
            self.goes_on = False
            transaction.set_rollback(True, using=self.task.using)  # of what has begun, if it has
        except DatabaseError as error:
            check_not_ended(error, self.task)
            raise

    def may_follow(self, passed: int) -> None:
        """There is more to do here, and it has to be read."""
        self.goes_on = self._may_go_on(passed, True)

    def _begin(self) -> Cursor | None:
        connection = connections[self.task.using]
        self._commits = connection.get_autocommit() and not in_atomic_block(connection)
        block = transaction.atomic(using=self.task.using)
        block.__enter__()
        self._block = block
        return self._lock_and_read([], self.task.parameters)  # BEGIN travels with it

    def _end(self, *raised: Any) -> None:
        """Leaves the transaction that is open, if one is."""
        block, self._block, self._next = self._block, None, None
        if block:
            block.__exit__(*(raised or (None, None, None)))

    def _lock_and_read(self, statements: list[str], parameters: dict[str, Any]) -> Cursor | None:
        """Locks behind these statements, in the same round trip. None where another worker has the cursor."""
        connection = connections[self.task.using]
        return self.entries.read_along(connection, [*statements, LOCK], parameters)


def check_not_ended(error: DatabaseError, task: PartitionTask) -> None:
    """Where cursors could not be moved because their transaction was over, a handler has ended it."""
    if isinstance(error.__cause__, psycopg.errors.InvalidTransactionState):
        raise HandlerEndedTransaction(f"A handler of {task} ended the transaction that it was called in.") from error
