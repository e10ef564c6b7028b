"""Statements that travel together, and the shortest way to the server: where statements are small, round trips and the
layers above libpq are what they cost.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors, generators
from psycopg.pq import Escaping, ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult

_PLAIN = (str, int, type(None))


def begin(session: psycopg.Connection[Any]) -> str:
    """What psycopg would begin a transaction with: the levels that the database's OPTIONS may ask for, included."""
    words = ["BEGIN"]
    if session.isolation_level is not None:
        words.append(f"ISOLATION LEVEL {session.isolation_level.name.replace('_', ' ')}")
    if session.read_only is not None:
        words.append("READ ONLY" if session.read_only else "READ WRITE")
    if session.deferrable is not None:
        words.append("DEFERRABLE" if session.deferrable else "NOT DEFERRABLE")
    return " ".join(words)


def execute_together(
    connection: Any, statements: Sequence[str], parameters: Mapping[str, Any] | None = None
) -> psycopg.ClientCursor[Any]:
    """Sends them in one round trip, whatever kind of cursor Django uses otherwise. The cursor shows the last result."""
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    together = "; ".join(statements)
    with connection.wrap_database_errors:
        cursor = psycopg.ClientCursor(connection.connection)
        if parameters is not None and all(isinstance(value, _PLAIN) for value in parameters.values()):
            # What psycopg does for values of any type takes as long as the statements themselves.
            names = (name.encode() for name in parameters)
            cursor.execute(
                together.encode() % dict(zip(names, _literals(connection, parameters.values()), strict=True))
            )
        else:
            cursor.execute(together, parameters)
        cursor.set_result(-1)
    return cursor


def is_short_way_open(connection: Any) -> bool:
    """Whether nobody watches the connection's cursors, and nothing else keeps :func:`send` from being the same."""
    connection.ensure_connection()
    return not (
        connection.execute_wrappers
        or connection.queries_logged
        or "cursor" in vars(connection)  # replaced by somebody who wants to see what goes through it
        or connection.connection.pgconn.pipeline_status != PipelineStatus.OFF
    )


def send(connection: Any, statement: bytes) -> PGresult:
    """The result of a statement, past Django's cursors and psycopg's: these take longer than PostgreSQL does. If it is
    a transaction's first one, BEGIN travels with it.

    >>> from django.db import connection, transaction
    >>> with transaction.atomic():
    ...     send(connection, b"SELECT 1 + 1").get_value(0, 0)
    b'2'
    """
    connection.validate_thread_sharing()
    connection.validate_no_broken_transaction()
    session = connection.connection
    with connection.wrap_database_errors, session.lock:
        if not session.autocommit and session.pgconn.transaction_status == TransactionStatus.IDLE:
            statement = begin(session).encode() + b"; " + statement
        session.pgconn.send_query(statement)
        result: PGresult = session.wait(generators.execute(session.pgconn))[-1]
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise errors.error_from_result(result, encoding=session.info.encoding)
    return result


def literals(connection: Any, values: Iterable[str | int | None]) -> bytes:
    """Values as they stand in a statement, separated by commas.

    >>> from django.db import connection
    >>> connection.ensure_connection()
    >>> literals(connection, [1, None, "it's"])
    b"1,NULL,'it''s'"
    """
    return b",".join(_literals(connection, values))


def _literals(connection: Any, values: Iterable[str | int | None]) -> list[bytes]:
    session = connection.connection
    quote, encoding = Escaping(session.pgconn).escape_literal, session.info.encoding
    return [
        quote(value.encode(encoding))
        if isinstance(value, str)
        else b"NULL"
        if value is None
        else str(value).encode()  # PostgreSQL reads Python's True and False, too
        for value in values
    ]
