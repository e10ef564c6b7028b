"""The sessions and cursors that Django gets from psycopg: they begin with the first statement, and refuse to end.

psycopg begins a transaction by itself before the first statement, in a round trip of its own. Here BEGIN stands in the
same message as the statement, wherever psycopg sends that as text, which is what Django asks of it. All else – COPY,
named cursors, executemany(), pipelines, binding on the server – begins as psycopg begins it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from django.db.backends.postgresql import base
from psycopg import sql
from psycopg.abc import PQGen
from psycopg.pq import PipelineStatus, TransactionStatus

from pubsub.db import libpq
from pubsub.db.guard import refusal, refuse_if_it_ends
from pubsub.db.libpq import begin

_MAY_TRAVEL = hasattr(psycopg.Connection, "_start_query")


class Session(psycopg.Connection[Any]):
    """A session of psycopg's that begins with its first statement."""

    _begin_travels = False

    @classmethod
    def connect(cls, *arguments: Any, **parameters: Any) -> Self:
        session = super().connect(*arguments, **parameters)
        if libpq.is_on() and not libpq.is_tried() and not libpq.try_on(session):
            session.close()
            session = super().connect(*arguments, **parameters)
        return session

    @property
    def is_to_begin(self) -> bool:
        """Whether the next statement has to begin a transaction, and can do so in its own message."""
        return (
            not self.autocommit
            and self.pgconn.transaction_status == TransactionStatus.IDLE
            and self.pgconn.pipeline_status == PipelineStatus.OFF
        )

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """What is sent meanwhile begins the transaction itself."""
        self._begin_travels = True
        try:
            yield
        finally:
            self._begin_travels = False

    # Private in psycopg: what its cursors send first. If it is called otherwise one day, the transaction is begun
    # twice: PostgreSQL warns and goes on.
    def _start_query(self) -> PQGen[None]:
        if not self._begin_travels:
            yield from super()._start_query()


class RefusingSession(Session):
    """A session in whose transaction a handler is called: it ends nothing."""

    def commit(self) -> None:
        raise refusal("commit()")

    def rollback(self) -> None:
        raise refusal("rollback()")


class _Refusing(psycopg.Cursor[Any]):
    """A cursor that sends nothing that would end a transaction which must not end."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        self._check(query)
        return super().execute(query, params, **options)

    def executemany(self, query: Any, params_seq: Iterable[Any], **options: Any) -> None:
        self._check(query)
        super().executemany(query, params_seq, **options)

    def stream(self, query: Any, params: Any = None, **options: Any) -> Iterator[Any]:
        self._check(query)
        return super().stream(query, params, **options)

    def copy(self, statement: Any, params: Any = None, **options: Any) -> Any:
        self._check(statement)
        return super().copy(statement, params, **options)

    def _check(self, statement: Any) -> None:
        if isinstance(self.connection, RefusingSession):
            refuse_if_it_ends(statement, self.connection)


class ServerBindingCursor(_Refusing, base.ServerBindingCursor):
    """For ``OPTIONS["server_side_binding"]``: one statement at a time is all that may be sent."""


class BeginningCursor(_Refusing, base.Cursor):
    """Binds values itself, as Django's cursor does, and may so send BEGIN and a statement as one text."""

    begun_with = ""
    """What stands before the caller's statement in what was sent last."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        session = self.connection
        self.begun_with = ""
        if not (isinstance(session, Session) and session.is_to_begin and _MAY_TRAVEL and libpq.is_on()):
            return super().execute(query, params, **options)
        first = f"{begin(session)};\n"  # a line of its own: errors show the caller's as it is
        if isinstance(query, str):
            query = first + query
        elif isinstance(query, bytes):
            query = first.encode() + query
        elif isinstance(query, sql.Composable):
            query = sql.SQL(first) + query
        else:
            return super().execute(query, params, **options)
        self.begun_with = first
        with session.beginning():
            super().execute(query, params, **options)
        self.nextset()  # BEGIN has a result, too
        return self
