"""The transaction of a batch: it begins with the lock on a group's place, and ends with the place's move.

BEGIN travels with the one and COMMIT with the other, and where a worker goes on with what it has read ahead, the next
transaction begins in the round trip that ends the last one: where batches are small, round trips are what they cost.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

import psycopg
from django.db import DatabaseError, connections, transaction

from pubsub.errors import HandlerEndedTransaction
from pubsub.sql import load
from pubsub.statements import FailedBehindCommit, begin, execute_together

from .reading import Entry, Place, ReadAhead

logger = logging.getLogger("pubsub.consuming")

_LOCK = "SELECT * FROM pubsub_lock_place_v1(%(group_id)s, %(topic_id)s, %(partition_id)s)"
_LOCK_AND_TELL = _LOCK.replace("*", "*, set_config('pubsub.stands_at', next_position::text, true)")
"""For what reads from there in the same round trip."""
_MOVE = (
    "SELECT pubsub_move_place_v1(%(group_id)s, %(topic_id)s, %(partition_id)s, "
    "%(next_offset)s, %(next_position)s, %(count)s, %(xid)s)"
)


class LockedCursor(NamedTuple):
    """A group's place in a partition, while nobody else can move it."""

    next_offset: int
    next_position: int
    epoch: int
    xid: str
    """The transaction that holds the lock."""


def lock_cursor(cursor: Any, place: Place) -> LockedCursor | None:
    """Locks a place for as long as the open transaction lasts. None where another worker has it."""
    cursor.execute(_LOCK, place.parameters)
    row = cursor.fetchone()
    return LockedCursor(*row) if row else None


class Visit:
    """One worker in one partition, batch after batch. What it carries from each to the next: what has been read ahead,
    and a transaction that has begun already, and holds the place. Leaving ends that; nothing was done in it.

    `may_go_on` is asked before each batch but the first: shall it follow, after so many events that are to be committed
    now, and where it has to be read (True)?
    """

    def __init__(
        self, place: Place, batch_size: int, *, may_go_on: Callable[[int, bool], bool] = lambda passed, reads: False
    ) -> None:
        self.ahead = ReadAhead(place, batch_size)
        self.goes_on = False
        """Whether there is more to do here behind the last batch, and time for it."""
        self._place = place
        self._may_go_on = may_go_on
        self._begun: tuple[ExitStack, LockedCursor] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._begun:
            block, _ = self._begun
            self._begun = None
            try:
                block.close()  # committing nothing: what is rolled back looks as if a worker had died here
            except DatabaseError:
                if error is None:
                    raise

    def take_over(self) -> tuple[ExitStack, LockedCursor | None]:
        """The transaction that is to hold the place, with the place if it holds it already."""
        begun, self._begun = self._begun, None
        self.goes_on = False
        return begun or (ExitStack(), None)

    def hand_over(self, block: ExitStack, locked: LockedCursor) -> None:
        self._begun = block, locked

    def may_follow(self, passed: int) -> None:
        """There is more to do here, and it has to be read."""
        self.goes_on = self._may_go_on(passed, True)

    def may_begin_next(self, passed: int) -> bool:
        """Whether another batch is to follow at once, and will need nothing that might fail for a reason of its own:
        what has been committed by then must not seem to have failed."""
        in_hand = self.ahead.holds_a_batch
        self.goes_on = bool(self.ahead) and self._may_go_on(passed, not in_hand)
        return self.goes_on and (in_hand or self._place.is_read_plainly)


class Hold:
    """A place that this transaction has locked."""

    def __init__(self, place: Place, locked: LockedCursor, *, commits: bool, visit: Visit) -> None:
        self.next_offset = locked.next_offset
        self.next_position = locked.next_position
        self.next: LockedCursor | None = None
        """The same place, locked by the transaction that has begun behind this one."""
        self._place = place
        self._xid = locked.xid
        self._commits = commits
        self._visit = visit

    def move_behind(self, last: Entry, passed: int, *, guarded: bool = False) -> None:
        """Moves the place behind this event, and commits. A guard that has been passed ends with it."""
        place, visit = self._place, self._visit
        connection = connections[place.using]
        statements = [_MOVE]
        if guarded:
            statements.append(load("pass_guarded"))
        if self._commits:
            statements.append("COMMIT")
        # What handlers want to be called after the commit may use the database, and must find no transaction there.
        at_once = visit.may_begin_next(passed) and self._commits and not connection.run_on_commit
        parameters = {
            **place.parameters,
            "next_offset": last.offset + 1,
            "next_position": last.position + 1,
            "count": passed,
            "xid": self._xid,
        }
        try:
            if at_once:
                statements.append(begin(connection.connection))
                self.next = _lock_and_read(connection, visit, statements, parameters)
                visit.goes_on = self.next is not None
            else:
                execute_together(connection, statements, parameters)
        except FailedBehindCommit as error:
            logger.warning("%s: the next batch has to wait: %s", place, error.__cause__, extra=place.facts)
            visit.goes_on = False
            transaction.set_rollback(True, using=place.using)  # of what has begun, if it has
        except DatabaseError as error:
            if isinstance(error.__cause__, psycopg.errors.InvalidTransactionState):
                raise HandlerEndedTransaction(
                    f"A handler of {place} ended the transaction that it was called in."
                ) from error
            raise


@contextmanager
def holding(place: Place, visit: Visit) -> Iterator[Hold | None]:
    """A transaction that holds the place; None where another worker has it."""
    block, locked = visit.take_over()
    commits = True
    with block:
        if locked is None:
            connection = connections[place.using]
            commits = connection.get_autocommit() and not connection.in_atomic_block
            if commits:
                _enter_block_without_beginning(block, connection)
                locked = _lock_and_read(connection, visit, [begin(connection.connection)], place.parameters)
            else:
                block.enter_context(transaction.atomic(using=place.using))
                locked = _lock_and_read(connection, visit, [], place.parameters)
        if locked is None:
            yield None
            return
        hold = Hold(place, locked, commits=commits, visit=visit)
        yield hold
        if hold.next:
            visit.hand_over(block.pop_all(), hold.next)


def _lock_and_read(
    connection: Any, visit: Visit, statements: list[str], parameters: dict[str, Any]
) -> LockedCursor | None:
    """Behind these statements, in the same round trip. None where another worker has the place."""
    missing = visit.ahead.missing()
    if missing:
        statement, more = missing
        answers = execute_together(connection, [*statements, _LOCK_AND_TELL, statement], {**parameters, **more})
        row = answers.row(-2)
    else:
        answers = execute_together(connection, [*statements, _LOCK_AND_TELL], parameters)
        row = answers.row()
    if row is None:
        return None
    locked = LockedCursor(*row[:-1])
    if missing:
        visit.ahead.add(answers.rows(), locked.next_position)
    return locked


def _enter_block_without_beginning(block: ExitStack, connection: Any) -> None:
    """An atomic block whose first statement is to be BEGIN: psycopg would send that in a round trip of its own."""
    # Django calls this instead for databases that have to be told.
    connection._start_transaction_under_autocommit = lambda: None
    try:
        block.enter_context(transaction.atomic(using=connection.alias))
    finally:
        del connection._start_transaction_under_autocommit
