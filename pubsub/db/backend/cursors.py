"""The cursors of our sessions: what they send first begins the transaction, and none ends one that must not end."""

from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
from django.db.backends.postgresql import base
from psycopg import sql

from pubsub.db import libpq
from pubsub.db.guard import refuse_if_it_ends

from .session import MAY_TRAVEL, RefusingSession, Session, begin


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
        if isinstance(session, Session) and session.unsent and _is_release(query):
            with session.beginning():  # it began long ago; what is kept belongs to the outer savepoint from now on
                return super().execute(query, params, **options)
        if not (isinstance(session, Session) and session.is_to_begin and MAY_TRAVEL and libpq.is_on()):
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


def _is_release(query: Any) -> bool:
    """Whether it is a RELEASE as Django sends it, and no more."""
    return isinstance(query, str) and query.startswith("RELEASE SAVEPOINT") and ";" not in query
