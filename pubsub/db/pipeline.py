"""Statements that travel together, and the shortest way to the server: where statements are small, round trips and the
layers above libpq are what they cost.

On ``pubsub.db.backend`` they go the short way (:mod:`.libpq`), unless ``PUBSUB["short_way"]`` is off. Otherwise they go
by psycopg's cursors, as public interfaces have it: there BEGIN takes a round trip of its own, and so does what stands
behind a COMMIT. What is done is the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeGuard, TypeVar, overload

import psycopg
from django.db.backends import utils
from psycopg import cursor as psycopgs_cursor
from psycopg.pq import PipelineStatus
from psycopg.rows import tuple_row

from . import libpq
from .backend.cursors import BeginningCursor
from .backend.session import Session, begin
from .libpq import FailedBehindCommit

__all__ = [
    "Answers",
    "FailedBehindCommit",
    "ask",
    "begin",
    "execute_together",
    "is_short_way_open",
    "keeping",
    "rendered",
    "run",
    "send",
]

R = TypeVar("R")


class Answers(Protocol):
    """What the server has answered to statements that travelled together. They are counted from the last one: a BEGIN
    may have travelled before the first."""

    @overload
    def rows(self, index: int = -1) -> list[tuple[Any, ...]]: ...

    @overload
    def rows(self, index: int = -1, *, make: Callable[[Iterable[Any]], R]) -> list[R]: ...

    def row(self, index: int = -1) -> tuple[Any, ...] | None: ...

    @property
    def is_true(self) -> bool:
        """Whether the one value of the last one is: `rows` takes much longer than to look at it."""


def execute_together(connection: Any, statements: Sequence[str], parameters: Mapping[str, Any]) -> Answers:
    """Sends them in one round trip, past whatever kind of cursor Django uses otherwise.

    Where Django's transaction has not begun on the server, BEGIN travels before them: it is for the caller to spell
    only behind a COMMIT. Of what is behind a COMMIT none is executed if something before it fails.

    >>> from django.db import connection
    >>> execute_together(connection, ["SELECT %(n)s + 1", "SELECT %(text)s"], {"n": 1, "text": "it's"}).rows(-2)
    [(2,)]
    """
    _prepare(connection)
    session = connection.connection
    with connection.wrap_database_errors:
        if _goes_short(session):
            return session.send_together(statements, parameters)
        return _by_cursors(session, statements, parameters)


def rendered(connection: Any, statement: str, parameters: Mapping[str, Any]) -> bytes:
    """A statement with its values in it, to be sent by :func:`send` as often as one likes."""
    _prepare(connection)
    with connection.wrap_database_errors:
        session = connection.connection
        if isinstance(session, Session):
            return session.render(statement, parameters)
        return psycopg.ClientCursor(session).mogrify(statement, parameters).encode(libpq.encoding(session))


def ask(connection: Any, statement: str, values: Sequence[str | int | None] = ()) -> bool:
    """Whether what a statement answers is true. Goes past Django's cursors and psycopg's if nothing watches these: they
    take longer than PostgreSQL does. The values stand in the place of %b, with commas between them.

    >>> from django.db import connection
    >>> ask(connection, "SELECT concat(%b) = '1 o''clock'", [1, None, " o'clock"])
    True
    """
    _prepare(connection)
    if is_short_way_open(connection):
        session = connection.connection
        try:
            text = statement.encode()
            if values:
                text %= b",".join(session.literals(values))
            return bool(session.send(text).is_true)
        except psycopg.Error:
            with connection.wrap_database_errors:  # entering it costs as much as the rest, so only now
                raise
    with connection.cursor() as cursor:
        cursor.execute(statement.replace("%b", ", ".join(["%s"] * len(values))), values)
        return bool(cursor.fetchone() == (True,))


def is_short_way_open(connection: Any) -> bool:
    """Whether an open connection may go the short way unseen: no tool watches its cursors, nor psycopg's pipeline."""
    session = connection.connection
    return (
        not connection.execute_wrappers
        and not connection.queries_logged
        and "cursor" not in vars(connection)  # a tool that wants to see what goes through it
        and _is_of(utils, utils.CursorWrapper.execute)  # likewise
        and _is_of(psycopgs_cursor, psycopg.Cursor.execute)
        and session.cursor_factory is BeginningCursor
        and session.pgconn.pipeline_status == PipelineStatus.OFF
        and _goes_short(session)
    )


def send(connection: Any, statement: bytes) -> Answers:
    """The answer to a statement, by the short way. If it is a transaction's first one, BEGIN travels with it.

    >>> from django.db import connection, transaction
    >>> with transaction.atomic():
    ...     send(connection, b"SELECT 'it''s'").row()
    ("it's",)
    """
    _prepare(connection)
    with connection.wrap_database_errors:
        if _goes_short(connection.connection):
            return connection.connection.send(statement)
        return _by_cursor(connection.connection, statement)


def run(session: psycopg.Connection[Any], statements: Sequence[str]) -> Answers:
    """Sends statements in one round trip on a connection of psycopg's."""
    if _goes_short(session):
        return session.send("; ".join(statements).encode(libpq.encoding(session)))
    return _by_cursors(session, statements, {})


def keeping(connection: Any) -> Session | None:
    """The session, if what the application wants may wait in it for the next message, and no tool has to see it."""
    _prepare(connection)
    session = connection.connection
    if not (connection.in_atomic_block and is_short_way_open(connection) and session.may_keep):
        return None
    if session.is_full:
        with connection.wrap_database_errors:
            session.send_unsent()
    return session  # type: ignore[no-any-return]


def _goes_short(session: psycopg.Connection[Any]) -> TypeGuard[Session]:
    return isinstance(session, Session) and session.goes_short


def _prepare(connection: Any) -> None:
    """What Django does before it makes a cursor, and before that is used."""
    connection.validate_thread_sharing()
    connection.validate_no_broken_transaction()
    connection.close_if_health_check_failed()
    connection.ensure_connection()


def _by_cursors(
    session: psycopg.Connection[Any], statements: Sequence[str], parameters: Mapping[str, Any]
) -> "_ByCursor":
    # psycopg does not say how far it came: so what must not be in doubt comes first, by itself.
    end = statements.index("COMMIT") + 1 if "COMMIT" in statements else len(statements)
    done = _by_cursor(session, "; ".join(statements[:end]), parameters)
    if end < len(statements):
        try:
            done += _by_cursor(session, "; ".join(statements[end:]), parameters)
        except psycopg.Error as error:
            raise FailedBehindCommit(done) from error
    return done


class _ByCursor(list[tuple[psycopg.Cursor[Any], int]]):
    """Answers that psycopg's cursors hold: which cursor, and which of its results."""

    def rows(self, index: int = -1, *, make: Callable[[Iterable[Any]], Any] = tuple) -> list[Any]:
        cursor, number = self[index]
        cursor.set_result(number)
        return [make(row) for row in cursor.fetchall()] if cursor.description else []

    def row(self, index: int = -1) -> tuple[Any, ...] | None:
        return next(iter(self.rows(index)), None)

    @property
    def is_true(self) -> bool:
        return self.rows() == [(True,)]


def _by_cursor(
    session: psycopg.Connection[Any], statement: str | bytes, parameters: Mapping[str, Any] | None = None
) -> _ByCursor:
    cursor = psycopg.ClientCursor(session, row_factory=tuple_row)
    cursor.execute(statement, parameters or None)
    return _ByCursor((cursor, number) for number, _ in enumerate(cursor.results()))


def _is_of(module: Any, function: Any) -> bool:
    """Whether a function was written in this module. A tool's in its place has other globals, whatever its name."""
    return getattr(function, "__globals__", None) is vars(module)
