"""Statements that travel together, and the shortest way to the server: where statements are small, round trips and the
layers above libpq are what they cost.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from django.db.backends import utils
from psycopg import cursor as psycopgs_cursor
from psycopg import errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import Escaping, ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult

_PLAIN = (str, int, bool, type(None))


class Answers:
    """What the server has answered to statements that travelled together. They are counted from the last one: a BEGIN
    may have travelled before the first."""

    def __init__(self, session: psycopg.Connection[Any], results: Sequence[PGresult]) -> None:
        self._session = session
        self._results = results

    def rows(self, index: int = -1) -> list[tuple[Any, ...]]:
        result = self._results[index]
        transformer = Transformer(self._session)
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def row(self, index: int = -1) -> tuple[Any, ...] | None:
        return next(iter(self.rows(index)), None)

    @property
    def is_true(self) -> bool:
        """Whether the one value of the last one is: :meth:`rows` takes much longer than to look at it."""
        result = self._results[-1]
        return bool(result.ntuples) and result.get_value(0, 0) == b"t"


class FailedBehindCommit(Exception):
    """What was to be committed is; a statement behind the COMMIT failed, for the reason that is the cause."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers


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


def execute_together(connection: Any, statements: Sequence[str], parameters: Mapping[str, Any]) -> Answers:
    """Sends them in one round trip, past whatever kind of cursor Django uses otherwise, with the transaction's BEGIN if
    it has not begun.

    >>> from django.db import connection
    >>> execute_together(connection, ["SELECT %(n)s + 1", "SELECT %(text)s"], {"n": 1, "text": "it's"}).rows(-2)
    [(2,)]
    """
    _prepare(connection)
    session = connection.connection
    with connection.wrap_database_errors:
        return _run(session, _rendered(session, "; ".join(statements), parameters))


def rendered(connection: Any, statement: str, parameters: Mapping[str, Any]) -> bytes:
    """A statement with its values in it, to be sent by :func:`send` as often as one likes."""
    _prepare(connection)
    with connection.wrap_database_errors:
        return _rendered(connection.connection, statement, parameters)


def ask(connection: Any, statement: str, values: Sequence[str | int | None] = ()) -> bool:
    """Whether what a statement answers is true. Goes past Django's cursors and psycopg's if nobody watches these: they
    take longer than PostgreSQL does. The values stand in the place of %b, with commas between them.

    >>> from django.db import connection
    >>> ask(connection, "SELECT concat(%b) = '1 o''clock'", [1, None, " o'clock"])
    True
    """
    _prepare(connection)
    if is_short_way_open(connection):
        return _send(connection, statement.encode(), values).is_true
    with connection.cursor() as cursor:
        cursor.execute(statement.replace("%b", ", ".join(["%s"] * len(values))), values)
        return bool(cursor.fetchone() == (True,))


def is_short_way_open(connection: Any) -> bool:
    """Whether nobody watches the cursors of an open connection, and nothing else keeps :func:`send` from being the
    same."""
    session = connection.connection
    return not (
        connection.execute_wrappers
        or connection.queries_logged
        or "cursor" in vars(connection)  # replaced by somebody who wants to see what goes through it
        or utils.CursorWrapper.execute is not _DJANGOS_EXECUTE  # likewise
        or getattr(session.cursor_factory, "execute", None) is not _PSYCOPGS_EXECUTE
        or session.pgconn.pipeline_status != PipelineStatus.OFF
    )


def send(connection: Any, statement: bytes) -> Answers:
    """The answer to a statement, by the short way. If it is a transaction's first one, BEGIN travels with it.

    >>> from django.db import connection, transaction
    >>> with transaction.atomic():
    ...     send(connection, b"SELECT 'it''s'").row()
    ("it's",)
    """
    _prepare(connection)
    return _send(connection, statement)


def run(session: psycopg.Connection[Any], text: str) -> Answers:
    """Sends statements in one round trip on a connection of psycopg's."""
    return _run(session, text.encode(_encoding(session)))


def _prepare(connection: Any) -> None:
    """What Django does before it makes a cursor, and before that is used."""
    connection.validate_thread_sharing()
    connection.validate_no_broken_transaction()
    connection.close_if_health_check_failed()
    connection.ensure_connection()


def _send(connection: Any, statement: bytes, values: Sequence[str | int | None] = ()) -> Answers:
    session = connection.connection
    try:
        if values:
            statement %= b",".join(_literals(session, values))
        return _run(session, statement)
    except psycopg.Error:
        with connection.wrap_database_errors:
            raise


def _run(session: psycopg.Connection[Any], text: bytes) -> Answers:
    pgconn = session.pgconn
    with session.lock:
        if not session.autocommit and pgconn.transaction_status == TransactionStatus.IDLE:
            text = begin(session).encode() + b"; " + text
        pgconn.send_query(text)
        results: list[PGresult] = session.wait(generators.execute(pgconn))
    answers = Answers(session, results)
    if results[-1].status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        error = errors.error_from_result(results[-1], encoding=_encoding(session))
        if any(result.command_status == b"COMMIT" for result in results):
            raise FailedBehindCommit(answers) from error
        raise error
    return answers


def _rendered(session: psycopg.Connection[Any], statement: str, parameters: Mapping[str, Any]) -> bytes:
    if all(type(value) in _PLAIN for value in parameters.values()):
        # What psycopg does for values of any type takes as long as the statements themselves.
        names = (name.encode() for name in parameters)
        return statement.encode() % dict(zip(names, _literals(session, parameters.values()), strict=True))
    return psycopg.ClientCursor(session).mogrify(statement, parameters).encode(_encoding(session))


def _encoding(session: psycopg.Connection[Any]) -> str:
    encoding = session.info.encoding
    return "utf-8" if encoding == "ascii" else encoding  # SQL_ASCII takes any bytes, and psycopg sends these


def _literals(session: psycopg.Connection[Any], values: Iterable[str | int | None]) -> list[bytes]:
    quote = Escaping(session.pgconn).escape_literal
    return [
        quote(value.encode() if value.isascii() else value.encode(_encoding(session)))
        if isinstance(value, str)
        else b"NULL"
        if value is None
        else str(value).encode()  # PostgreSQL reads Python's True and False, too
        for value in values
    ]


def _untouched(function: Any, module: Any) -> Any:
    """The function, if it is the one that stands in the module and nobody has put another one in its place."""
    code = getattr(function, "__code__", None)
    return function if code and code.co_filename == module.__file__ else None


# Tools that watch what goes through cursors put functions of their own in the place of these, some before this is read.
_DJANGOS_EXECUTE = _untouched(utils.CursorWrapper.execute, utils)
_PSYCOPGS_EXECUTE = _untouched(psycopg.Cursor.execute, psycopgs_cursor)
