"""Telling a failure of the database, which passes, from one of the handler, which does not."""

from django.db import InterfaceError

TRANSIENT_STATES = ("08", "40", "53", "57", "58", "25006", "55P03")
"""SQLSTATEs, or classes of them: connection, serialization and deadlock, resources, operator intervention, system
error, a server that has become read-only, a lock that was not to be had."""


def is_transient(error: BaseException) -> bool:
    """Whether the same work may succeed when it is done again."""
    cause: BaseException | None = error
    while cause is not None:
        state = getattr(cause, "sqlstate", None)
        if state is not None and state.startswith(TRANSIENT_STATES):
            return True
        # psycopg gives no SQLSTATE where the connection went away under it.
        if state is None and type(cause).__name__ == "OperationalError":
            return True
        if isinstance(cause, InterfaceError):
            return True
        cause = cause.__cause__
    return False
