"""Calling a handler: with one event after another, or with lists of them, in whichever way it is written."""

import inspect
import itertools
import re
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import async_to_sync
from django.db import connections
from psycopg.pq import TransactionStatus

from pubsub.errors import HandlerEndedTransaction
from pubsub.signals import around, around_handler

from .reading import Entry, Place, events_from


def handle(place: Place, entries: Iterable[Entry], *, at_once: int, attempt: int = 1) -> None:
    """Hands the group's own of these entries to the handler, in order; in lists of `at_once`, if it takes lists."""
    declared = place.declared
    handler = async_to_sync(declared.handler) if declared.is_asynchronous else declared.handler
    events = events_from(place, entries, attempt)
    if declared.batch:
        while several := list(itertools.islice(events, at_once)):
            with around(*several):
                _finish(handler(several))
        return
    is_observed = bool(around_handler)
    for event in events:
        if is_observed:
            with around(event):
                _finish(handler(event))
        elif (result := handler(event)) is not None:
            _finish(result)


def _finish(result: Any) -> None:
    """An asynchronous function that does not look like one, behind a lambda or a decorator, is awaited all the same."""
    if inspect.isawaitable(result):
        async_to_sync(_await)(result)


async def _await(result: Awaitable[Any]) -> None:
    await result


def check_still_in_transaction(using: str, *, because: BaseException | None = None) -> None:
    """Raises if a handler has ended the transaction that its effects belong to, or closed the connection."""
    present = connections[using].connection
    if present is None:
        ended = True
    elif present.closed:
        ended = not present.broken  # one that was lost is nobody's fault
    else:
        ended = present.info.transaction_status == TransactionStatus.IDLE
    if ended:
        raise HandlerEndedTransaction(
            "The handler committed, rolled back or closed the connection that it was called in. It must leave that to "
            "the consumer: use transaction.atomic() for a part that may fail, or Delivery.AT_LEAST_ONCE."
        ) from because


def was_lost(using: str) -> bool:
    """Whether the connection went away under the handler: whatever it made of that, it is nobody's fault."""
    present = connections[using].connection
    return present is not None and present.closed and present.broken


def was_closed(using: str) -> bool:
    """Whether a handler has closed the session under Django: what fails then is its own fault."""
    present = connections[using].connection
    return present is not None and present.closed and not present.broken


def check_left_outside(using: str) -> None:
    """Raises if a handler that is called outside transactions has left one open. It is undone."""
    connection = connections[using]
    present = connection.connection
    is_there = present is not None and not present.closed
    # In an atomic block that nobody leaves Django makes no other connection, though this one may be closed.
    if connection.in_atomic_block or (is_there and present.info.transaction_status != TransactionStatus.IDLE):
        connect_anew(using)
        raise HandlerEndedTransaction(
            "The handler began a transaction and did not end it, so that it was undone. Use transaction.atomic()."
        )


def connect_anew(using: str) -> None:
    """Forgets the connection, in whatever state a handler has left it."""
    connection = connections[using]
    connection.in_atomic_block = connection.closed_in_transaction = False
    connection.close()


@contextmanager
def in_our_transaction(using: str) -> Iterator[None]:
    """What a handler does meanwhile shall not end the transaction that others' effects are in, too."""
    connection = connections[using]
    session = connection.connection

    def refuse() -> None:
        raise _refusal("commit() or rollback()")

    session.commit = session.rollback = refuse
    try:
        with connection.execute_wrapper(_refuse_to_end):
            yield
    finally:
        del session.commit, session.rollback


_COMMENTS = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_ENDING = re.compile(
    rf"(?:^|;){_COMMENTS}(COMMIT|END|ROLLBACK(?!{_COMMENTS}(?:(?:WORK|TRANSACTION)\b{_COMMENTS})?TO\b)|ABORT|"
    rf"PREPARE{_COMMENTS}TRANSACTION)\b",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|(\$\w*\$).*?\1", re.DOTALL)
_BEGINS_PLAINLY = ("SELECT", "INSERT", "UPDATE", "DELETE", "SAVEPOINT", "RELEASE", "WITH", "SET")


def _refuse_to_end(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
    if isinstance(sql, str) and (";" in sql or not sql.startswith(_BEGINS_PLAINLY)):
        found = _ENDING.search(_QUOTED.sub("''", sql))
        if found:
            raise _refusal(found[1].upper())
    return execute(sql, params, many, context)


def _refusal(what: str) -> HandlerEndedTransaction:
    return HandlerEndedTransaction(
        f"A handler must not end the transaction that it is called in, as {what} would. Use transaction.atomic() for a "
        f"part that may fail, or Delivery.AT_LEAST_ONCE."
    )
