"""Interrupting a thread that runs code of others: its statement is cancelled, and an exception is raised in it.

The hazards, and what is done about each:

- **An exception comes between any two steps of Python code**, also in the midst of another `finally`, of Django or of
  psycopg. So none of the thread's connections is trusted afterwards: :func:`abandon` rolls back and closes the
  worker's, on the lowest level there is, and forgets those to other databases. What else the code keeps – files, locks,
  caches of its own – is up to that code.
- **It comes late.** CPython raises it at the thread's next step in Python: not while the thread waits in C, for a
  socket or a lock. A statement is another matter: that is cancelled, and so comes back.
- **It comes too late**, when the code has returned already. `pubsub/consuming/time_limit.py` sees to that: the thread
  goes on only when nothing is under way any more, and what has not come by then comes in :func:`let_it_come`.
- **A cancel request hits whichever statement runs.** The same wait covers it: :func:`cancel_statement` returns when the
  server has passed it on.
"""

import ctypes
import logging
import time
from typing import Any

import psycopg
from django.db import connections
from psycopg.pq import TransactionStatus

from .guard import forget

logger = logging.getLogger(__name__)

CANCEL_S = 5.0
"""How long it may take to reach the server."""

SETTLE_S = 1.0
"""How long a cancelled statement may take to come back before the exception is raised all the same."""


def raise_in(thread_id: int, kind: type[BaseException]) -> None:
    """Raises an exception in another thread, at its next step in Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(kind))


def let_it_come() -> None:
    """What was raised in the calling thread comes in here at the latest: CPython looks for it at each turn of a loop.

    Not taken back, as the C API offers: CPython 3.11 then looks for it for ever, and a profiled program stands still.
    """
    for _ in range(10):
        continue


def cancel_statement(session: psycopg.Connection[Any] | None) -> None:
    """Cancels what another thread executes on a session, if anything, and waits a moment for it to come back."""
    if session is None or not _is_active(session):
        return
    try:
        session.cancel_safe(timeout=CANCEL_S)
    except Exception as error:
        logger.warning("a statement could not be cancelled: %s", error)
    until = time.monotonic() + SETTLE_S
    while _is_active(session) and time.monotonic() < until:
        time.sleep(0.005)


def abandon(connection: Any) -> None:
    """Rolls back what is open on one of Django's connections, and closes it, in whatever state it is; and closes the
    others of this thread, on which later calls would find what this one has left there."""
    for other in connections.all(initialized_only=True):
        if connection is not None and other is not connection:
            forget(other.alias)
    session = getattr(connection, "connection", None)
    if session is None:
        return
    try:
        if session.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            session.pgconn.exec_(b"ROLLBACK")  # waits for it: the locks are free then
    except psycopg.Error as error:
        logger.debug("the server rolls back by itself: %s", error)
    connection.close()


def _is_active(session: psycopg.Connection[Any]) -> bool:
    return bool(session.pgconn.transaction_status == TransactionStatus.ACTIVE)
