"""Telling a failure of the database, which may pass, from one of the handler, which does not."""

import signal
import threading
import traceback
from collections.abc import Iterator

import psycopg
from django.db import DatabaseError, InterfaceError, connections
from django.db.utils import DatabaseErrorWrapper

from pubsub.errors import PubSubError

from .guard import was_closed, was_lost

LOCK_NOT_AVAILABLE = "55P03"
"""The SQLSTATE of a lock that NOWAIT or lock_timeout gave up."""

INSUFFICIENT_PRIVILEGE = "42501"
"""The SQLSTATE of what the role may not do."""

TRANSIENT_STATES = ("08", "40", "53", "57", "58", "25006", "25P03", "25P04", LOCK_NOT_AVAILABLE)
"""SQLSTATEs, or classes of them: connection, serialization and deadlock, resources, operator intervention, system
error, a server that has become read-only, a transaction that was idle or open for too long, a lock that was not to be
had."""


def sqlstate(error: BaseException | None) -> str | None:
    """The SQLSTATE of an error of psycopg's, or of Django's around one. None where there is none.

    >>> sqlstate(psycopg.errors.LockNotAvailable()), sqlstate(ValueError())
    ('55P03', None)
    """
    state = getattr(error, "sqlstate", None) or getattr(getattr(error, "__cause__", None), "sqlstate", None)
    return state if isinstance(state, str) else None


def is_lock_not_available(error: BaseException | None) -> bool:
    """Whether a lock was not to be had in time: by NOWAIT, or within ``lock_timeout``.

    >>> is_lock_not_available(psycopg.errors.LockNotAvailable())
    True
    """
    return sqlstate(error) == LOCK_NOT_AVAILABLE


def may_not_write(error: BaseException) -> bool:
    """Whether a role that may only read, or a server that is a standby, was asked to write.

    >>> may_not_write(psycopg.errors.ReadOnlySqlTransaction())
    True
    """
    return sqlstate(error) in ("25006", "42501")


def is_transient(error: BaseException) -> bool:
    """Whether the same work may succeed when it is done again: PostgreSQL says so, or is gone.

    >>> is_transient(psycopg.errors.DeadlockDetected()), is_transient(psycopg.errors.UniqueViolation())
    (True, False)
    """
    for cause in _causes(error):
        if isinstance(cause, PubSubError):
            return False  # raised on purpose, whatever its cause
        if isinstance(cause, psycopg.Error):
            if cause.sqlstate:
                return cause.sqlstate.startswith(TRANSIENT_STATES)
            # psycopg has no SQLSTATE to tell where the connection went away under it. One's own closed cursor is no
            # such thing.
            gone = isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)
            return gone and "cursor is closed" not in str(cause)
        if isinstance(cause, InterfaceError) and cause.__cause__ is None:
            return True
    return False


def is_disk_full(error: BaseException | None) -> bool:
    """Whether the server has no room left, which is never an event's doing.

    >>> is_disk_full(psycopg.errors.DiskFull())
    True
    """
    return error is not None and any(sqlstate(cause) == "53100" for cause in _causes(error))


def in_the_databases_words(error: BaseException | None) -> str:
    """What the database has said, without what a handler has made of it: that may quote payloads.

    >>> in_the_databases_words(psycopg.errors.DeadlockDetected("deadlock detected"))
    'deadlock detected'
    """
    for cause in _causes(error) if error else ():
        if isinstance(cause, psycopg.Error | DatabaseError | InterfaceError):
            return next(iter(str(cause).splitlines()), type(cause).__name__)
    return type(error).__name__


def is_the_handlers(error: BaseException, using: str) -> bool:
    """Whether a handler is to blame, and not the worker's own connection, which has failed in a way that may pass.

    What another connection raises is the handler's, in whatever words: that the worker has its database says nothing of
    the others. `sys.exit()` is one more way to fail, and so is KeyboardInterrupt; Ctrl-C is none.
    """
    if was_lost(using) or is_ctrl_c(error):
        return False
    return was_closed(using) or not is_transient(error) or not _raised_on(error, using)


def is_ctrl_c(error: BaseException) -> bool:
    """Whether an operator may have pressed it. In `run_consumer`, which has a signal handler, that raises nothing.

    >>> is_ctrl_c(ValueError())
    False
    """
    return (
        isinstance(error, KeyboardInterrupt)
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        and threading.current_thread() is threading.main_thread()
    )


def _raised_on(error: BaseException, using: str) -> bool:
    """Whether a connection has raised it, or what it was caused by: the frames that it has come through tell."""
    connection = connections[using]
    session = connection.connection
    for cause in _causes(error):
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            owner = frame.f_locals.get("self")
            if isinstance(owner, DatabaseErrorWrapper):
                found = owner.wrapper is connection  # type: ignore[attr-defined]  # it translates errors for this one
            elif isinstance(owner, psycopg.Cursor | psycopg.Connection):
                found = session is not None and getattr(owner, "connection", owner) is session
            else:
                continue
            if found:
                return True
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what has caused it. `raise error from error` makes a ring."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__
