"""The engine: ``ENGINE = "pubsub.db.backend"`` in DATABASES, in the place of ``django.db.backends.postgresql``.

It stores and asks as Django's does. What it adds is about transactions: they begin with their first statement, a
handler cannot end the one it is called in, and what is published travels with the COMMIT. With Django's engine
all of the app works, too, by public interfaces and somewhat slower.

docs/backend.md lists what is private in Django or psycopg and used here, and what becomes of it if that changes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS
from django.db.backends.postgresql import base, operations

from pubsub.db.guard import refusal, refuse_through_django

from .cursors import BeginningCursor, ServerBindingCursor
from .session import RefusingSession, Session


class _Driver(ModuleType):
    """psycopg, but that it connects with sessions of ours. Django takes errors and everything else from it as well."""

    def __getattr__(self, name: str) -> Any:
        return getattr(psycopg, name)

    def connect(self, **parameters: Any) -> Any:
        # Tools that trace put their own in the place of this function, and must see what they are there to see.
        is_psycopgs = psycopg.connect == psycopg.Connection.connect
        return (Session.connect if is_psycopgs else psycopg.connect)(**parameters)


class DatabaseOperations(operations.DatabaseOperations):
    """Django's, for cursors whose statement is not all that was sent."""

    def last_executed_query(self, cursor: Any, sql: Any, params: Any) -> str:
        sent: str = super().last_executed_query(cursor, sql, params)
        return sent.removeprefix(getattr(cursor, "begun_with", "")) if sent else sent


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's connection to PostgreSQL, with the seams that publishing and consuming need."""

    Database = _Driver("psycopg")
    ops_class = DatabaseOperations

    def __init__(self, settings_dict: dict[str, Any], alias: str = DEFAULT_DB_ALIAS) -> None:
        options = settings_dict.get("OPTIONS") or {}
        if pool := options.get("pool"):
            pool = {"connection_class": Session, **(pool if isinstance(pool, dict) else {})}
            settings_dict = {**settings_dict, "OPTIONS": {**options, "pool": pool}}
        super().__init__(settings_dict, alias)

    def get_connection_params(self) -> dict[str, Any]:
        parameters: dict[str, Any] = super().get_connection_params()
        ours = {base.Cursor: BeginningCursor, base.ServerBindingCursor: ServerBindingCursor}
        parameters["cursor_factory"] = ours.get(parameters["cursor_factory"], parameters["cursor_factory"])
        return parameters

    @contextmanager
    def refusing_to_end(self) -> Iterator[None]:
        """Nothing that is done by this connection ends its transaction meanwhile."""
        self.ensure_connection()
        session = self.connection
        if not isinstance(session, Session):  # a tool's
            with self.execute_wrapper(refuse_through_django):
                yield
            return
        # Classes of their own: where nothing is refused, nothing is asked.
        ours, sessions = self.__class__, session.__class__
        self.__class__, session.__class__ = RefusingDatabaseWrapper, RefusingSession
        try:
            yield
        finally:
            self.__class__, session.__class__ = ours, sessions

    def close(self) -> None:
        session: Any = self.connection
        if isinstance(session, Session):
            session.__class__ = Session  # never a refusing one: a pool rolls back what it gets
            session.forget()
        super().close()

    def savepoint_rollback(self, sid: str) -> None:
        if isinstance(self.connection, Session):
            self.connection.unsent = None  # all that waits came behind the savepoint, which was a statement itself
        super().savepoint_rollback(sid)


class RefusingDatabaseWrapper(DatabaseWrapper):
    """A connection in whose transaction a handler is called: it ends nothing."""

    def commit(self) -> None:
        raise refusal("commit()")

    def rollback(self) -> None:
        raise refusal("rollback()")

    def on_commit(self, func: Callable[[], Any], robust: bool = False) -> None:
        # Those of one handler must not keep those of another from being called.
        super().on_commit(named(func) if callable(func) else func, robust=True)


def named(hook: Callable[[], Any]) -> Callable[[], Any]:
    """Django 5.2 logs a hook that fails by its name, and fails itself where a partial() or another object has none."""
    if hasattr(hook, "__qualname__"):
        return hook

    def call() -> None:
        hook()

    call.__qualname__ = repr(hook)
    return call
