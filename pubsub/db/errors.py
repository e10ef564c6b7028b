"""Telling a failure of the database, which passes, from one of the handler, which does not."""

import psycopg
from django.db import InterfaceError

from pubsub.errors import PubSubError

LOCK_NOT_AVAILABLE = "55P03"
"""The SQLSTATE of a lock that NOWAIT or lock_timeout gave up."""

INSUFFICIENT_PRIVILEGE = "42501"
"""The SQLSTATE of what the role may not do."""

TRANSIENT_STATES = ("08", "40", "53", "57", "58", "25006", LOCK_NOT_AVAILABLE)
"""SQLSTATEs, or classes of them: connection, serialization and deadlock, resources, operator intervention, system
error, a server that has become read-only, a lock that was not to be had."""


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
    cause: BaseException | None = error
    seen = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))  # `raise error from error` makes a ring
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
        cause = cause.__cause__
    return False


def is_the_handlers(error: BaseException) -> bool:
    """Whether the handler is to blame. `sys.exit()` in a handler is one more way to fail; Ctrl-C is none."""
    return not isinstance(error, KeyboardInterrupt | GeneratorExit) and not is_transient(error)
