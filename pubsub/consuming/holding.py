"""The transaction of a batch: it begins with the lock on a group's place, and ends with the place's move.

BEGIN travels with the one and COMMIT with the other: where batches are small, round trips are what they cost.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import psycopg
from django.db import DatabaseError, connections, transaction

from pubsub.errors import HandlerEndedTransaction
from pubsub.sql import load
from pubsub.statements import begin, execute_together

from .reading import Entry, Place

_LOCK = "SELECT * FROM pubsub_lock_place_v1(%(group_id)s, %(topic_id)s, %(partition_id)s)"
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


class Hold:
    """A place that this transaction has locked."""

    def __init__(self, place: Place, locked: LockedCursor, commits: bool) -> None:
        self.next_position = locked.next_position
        self._place = place
        self._xid = locked.xid
        self._commits = commits

    def move_behind(self, last: Entry, passed: int, *, guarded: bool = False) -> None:
        """Moves the place behind this event, and commits. A guard that has been passed ends with it."""
        connection = connections[self._place.using]
        connection.validate_no_broken_transaction()
        statements = [_MOVE]
        if guarded:
            statements.append(load("forget_passed_claim"))
        if self._commits:
            statements.append("COMMIT")
        parameters = {
            **self._place.parameters,
            "next_offset": last.offset + 1,
            "next_position": last.position + 1,
            "count": passed,
            "xid": self._xid,
        }
        try:
            execute_together(connection, statements, parameters)
        except DatabaseError as error:
            if isinstance(error.__cause__, psycopg.errors.InvalidTransactionState):
                raise HandlerEndedTransaction(
                    f"A handler of {self._place} ended the transaction that it was called in."
                ) from error
            raise


@contextmanager
def holding(place: Place) -> Iterator[Hold | None]:
    """A transaction that holds the place; None where another worker has it."""
    connection = connections[place.using]
    outermost = connection.get_autocommit() and not connection.in_atomic_block
    with ExitStack() as stack:
        if outermost:
            _enter_block_without_beginning(stack, connection)
            statements = [begin(connection.connection), _LOCK]
        else:
            stack.enter_context(transaction.atomic(using=place.using))
            statements = [_LOCK]
        row = execute_together(connection, statements, place.parameters).fetchone()
        yield Hold(place, LockedCursor(*row), commits=outermost) if row else None


def _enter_block_without_beginning(stack: ExitStack, connection: Any) -> None:
    """An atomic block whose first statement is to be BEGIN: psycopg would send that in a round trip of its own."""
    # Django calls this instead for databases that have to be told.
    connection._start_transaction_under_autocommit = lambda: None
    try:
        stack.enter_context(transaction.atomic(using=connection.alias))
    finally:
        del connection._start_transaction_under_autocommit
