"""Sessions beside Django's, threads, and conditions to wait for."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
from django.db import connections

Session = psycopg.Connection[Any]

T = TypeVar("T")
PATIENCE_S = 15


def connection_parameters() -> dict[str, Any]:
    """For a session beside Django's."""
    parameters = connections["default"].get_connection_params()
    return {name: value for name, value in parameters.items() if name not in ("context", "cursor_factory")}


def connect(**options: Any) -> Session:
    """A session outside Django's keeping, in autocommit mode: it says BEGIN where it wants a transaction."""
    session = psycopg.connect(**{**connection_parameters(), "autocommit": True, **options})
    session.execute("SET lock_timeout = '20s'")  # a test whose sessions wait for each other fails, and does not hang
    return session


def database_url() -> str:
    """The test database, for a process of its own."""
    known = connections["default"].settings_dict
    login = quote(known["USER"], safe="")
    if known["PASSWORD"]:
        login += ":" + quote(known["PASSWORD"], safe="")
    return f"postgres://{login}@{known['HOST'] or '127.0.0.1'}:{known['PORT'] or 5432}/{known['NAME']}"


@contextmanager
def connected_to(**settings: Any) -> Iterator[None]:
    """All of Django's connections go elsewhere: to another server, or to this one by another way."""
    known = connections["default"].settings_dict  # which all threads share
    direct = dict(known)
    connections["default"].close()
    known |= settings
    try:
        yield
    finally:
        connections["default"].close()
        known.clear()
        known |= direct


def wait_until(condition: Callable[[], T], what: str, seconds: float = PATIENCE_S) -> T:
    """Returns what the condition was at last."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)
    return found


def wait_until_blocked(session: Session, watcher: Session) -> None:
    """Waits until a statement of `session`, which another thread is executing, waits for a lock."""
    asked = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
    pid = session.info.backend_pid
    wait_until(lambda: watcher.execute(asked, [pid]).fetchone() == (True,), f"session {pid} waits for a lock")


class Running(threading.Thread):
    """A function in a thread of its own; `result()` is what it returned, or raises what it raised."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        super().__init__(daemon=True)
        self._work = lambda: function(*arguments, **named)
        self._result: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        finally:
            connections.close_all()

    def result(self, seconds: float = PATIENCE_S) -> Any:
        self.join(seconds)
        assert not self.is_alive(), f"still running after {seconds} s"
        if self._error:
            raise self._error
        return self._result


def together(barrier: threading.Barrier, function: Callable[..., T]) -> Callable[..., T]:
    """The function, called when all threads of the barrier have come to it, each with its connection."""

    def wait_and_call(*arguments: Any) -> T:
        connections["default"].ensure_connection()
        barrier.wait()
        return function(*arguments)

    return wait_and_call


@contextmanager
def transaction_of(session: Session) -> Iterator[Session]:
    session.execute("BEGIN")
    try:
        yield session
    except BaseException:
        session.execute("ROLLBACK")
        raise
    session.execute("COMMIT")


def in_ci() -> bool:
    return bool(os.environ.get("CI"))
