"""What a handler must not do to the transaction it is called in, and seeing that it has done it all the same.

A handler's effects, those of the others in its batch, and the cursor's move belong to one transaction: ended by a
handler, it would leave some of them undone, or done twice. Two things see to that, and each has its part:

- **What is load-bearing is the check at the end.** `pubsub_move_cursors_v1` moves the cursor only in the transaction
  that has locked it, and fails in any other, before the COMMIT that travels behind it; and
  :func:`check_still_in_transaction` says whose fault it was. Whatever way a handler finds to end a transaction, no
  cursor is moved over it.
- **What refuses beforehand** (:func:`refusing_to_end`) is for the others in the batch: what they did is not lost, and
  the handler gets an error that says what to do instead. On ``pubsub.db.backend`` it covers every cursor, and
  ``commit()`` and ``rollback()`` of Django's connection and psycopg's. On Django's own engine it covers what goes
  through Django's cursors; the rest is seen at the end.
"""

from contextlib import AbstractContextManager
from typing import Any

import psycopg
from django.db import connections
from psycopg import sql
from psycopg.pq import TransactionStatus

from pubsub.errors import HandlerEndedTransaction, HandlerTimeout

from .first_words import first_words

_BEGINS_PLAINLY = ("SELECT", "INSERT", "UPDATE", "DELETE", "SAVEPOINT", "RELEASE", "WITH", "SET")


def refusing_to_end(using: str) -> AbstractContextManager[None]:
    """Meanwhile the open transaction cannot be ended: to try raises :class:`HandlerEndedTransaction`, and nothing is
    sent. Savepoints, and so ``transaction.atomic()``, are free; hooks for after the commit cannot harm one another."""
    connection: Any = connections[using]
    if refuses := getattr(connection, "refusing_to_end", None):
        return refuses()  # type: ignore[no-any-return]
    return connection.execute_wrapper(refuse_through_django)  # type: ignore[no-any-return]


def refuse_if_it_ends(statement: Any, context: Any = None) -> None:
    """Raises if a statement, in any form that psycopg takes, would end the transaction that it is executed in."""
    if isinstance(statement, str):
        text = statement
    elif isinstance(statement, bytes):
        text = statement.decode("latin-1")  # what matters is ASCII in any encoding
    else:
        text = sql.as_string(statement, context)
    if ";" not in text and text.startswith(_BEGINS_PLAINLY):
        return  # nearly always, and the cheapest way to know
    for words in first_words(text):
        if _ends_transaction(words):
            raise refusal(words[0])


def refusal(what: str) -> HandlerEndedTransaction:
    """The error for a handler that tries to end its transaction."""
    return HandlerEndedTransaction(
        f"A handler must not end the transaction that it is called in, as {what} would. Use transaction.atomic() for a "
        f"part that may fail, or Delivery.AT_LEAST_ONCE."
    )


def was_lost(using: str) -> bool:
    """Whether the connection went away under the handler: whatever it made of that, it is not to blame."""
    session = connections[using].connection
    return session is not None and session.closed and session.broken


def cannot_continue(connection: Any) -> bool:
    """Whether a handler has left nothing to go on in: neither a savepoint nor the transaction is there any more."""
    return bool(connection.needs_rollback or connection.closed_in_transaction)


def was_closed(using: str) -> bool:
    """Whether a handler has closed the session under Django: what fails then is its own fault."""
    session = connections[using].connection
    return session is not None and session.closed and not session.broken


def check_still_in_transaction(using: str, *, because: BaseException | None = None) -> None:
    """Raises if a handler has ended the transaction that its effects belong to, or closed the connection."""
    session = connections[using].connection
    if session is None:
        ended = True
    elif session.closed:
        ended = not session.broken  # one that was lost is not the handler's doing
    else:
        ended = session.info.transaction_status == TransactionStatus.IDLE
    if ended and isinstance(because, HandlerTimeout):
        raise because  # what was interrupted was rolled back by the worker itself
    if ended:
        raise HandlerEndedTransaction(
            "The handler committed, rolled back or closed the connection that it was called in. It must leave that to "
            "the consumer: use transaction.atomic() for a part that may fail, or Delivery.AT_LEAST_ONCE."
        ) from because


def check_left_outside(using: str) -> None:
    """Raises if a handler that is called outside transactions has left one open. It is undone."""
    connection = connections[using]
    session = connection.connection
    is_there = session is not None and not session.closed
    is_open = is_there and session.info.transaction_status != TransactionStatus.IDLE
    # Without autocommit the worker's own next statement would begin one that nothing ends.
    begins = is_there and connection.get_autocommit() != connection.settings_dict["AUTOCOMMIT"]
    # In an atomic block that is never left Django makes no other connection, though this one may be closed.
    if connection.in_atomic_block or is_open or begins:
        forget(using)
        raise HandlerEndedTransaction(
            "The handler began a transaction, or switched autocommit off, and did not end that: it is undone. "
            "Use transaction.atomic()."
        )


def forget(using: str) -> None:
    """Forgets the connection, in whatever state a handler has left it: Django makes another one when it needs it.

    Django resets these attributes itself when it connects, but closes nothing for good in what it takes for a block.
    """
    connection = connections[using]
    connection.in_atomic_block = connection.closed_in_transaction = False
    connection.close()


def _ends_transaction(words: tuple[str, ...]) -> bool:
    match words:
        case ("COMMIT" | "END" | "ABORT", *_) | ("PREPARE", "TRANSACTION", *_):
            return True
        case ("ROLLBACK", "TO", *_) | ("ROLLBACK", "WORK" | "TRANSACTION", "TO", *_):
            return False
        case ("ROLLBACK", *_):
            return True
    return False


def refuse_through_django(execute: Any, statement: Any, params: Any, many: bool, context: Any) -> Any:
    session: psycopg.Connection[Any] | None = context["connection"].connection
    refuse_if_it_ends(statement, session)
    return execute(statement, params, many, context)
