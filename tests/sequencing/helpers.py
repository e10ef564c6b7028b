"""Sessions of our own, signals to wait for, and what must hold of every log."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import psycopg
from django.db import connections

from pubsub.sequencing.numbering import Pass, sequence_on

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


def insert(session: Session, name: Any, *, topic: int = 1, key: str | None = None, host: str | None = None) -> int:
    """Publishes as any language could: one plain INSERT. Returns the message's id."""
    row = session.execute(
        "INSERT INTO outbox_message_t (topic_id, key, host_id, payload)"
        " VALUES (%s, %s, %s, jsonb_build_object('n', %s::text)) RETURNING id",
        [topic, key, host, str(name)],
    ).fetchone()
    assert row
    return int(row[0])


@contextmanager
def transaction_of(session: Session) -> Iterator[Session]:
    session.execute("BEGIN")
    try:
        yield session
    except BaseException:
        session.execute("ROLLBACK")
        raise
    session.execute("COMMIT")


def number(session: Session) -> Pass:
    return sequence_on(session)


class Entry(NamedTuple):
    position: int
    topic: int
    offset: int
    partition: int
    message: int
    name: str
    transaction: str


def entries(session: Session, after: int = 0) -> list[Entry]:
    """The log from a position on, in its order."""
    rows = session.execute(
        "SELECT position, entry.topic_id, c_offset, partition_id, message_id, payload ->> 'n', transaction_id::text"
        " FROM log_entry AS entry LEFT JOIN outbox_message_t AS message ON message.id = entry.message_id"
        " WHERE position > %s ORDER BY position, c_offset",
        [after],
    ).fetchall()
    return [Entry(*row) for row in rows]


def names(log: Iterable[Entry]) -> list[str]:
    return [entry.name for entry in log]


def checked_log(session: Session, *, together: bool = True) -> list[Entry]:
    """The whole log, after checking what must hold of it whatever has happened before."""
    log = entries(session)
    assert [entry.position for entry in log] == list(range(1, len(log) + 1)), "positions have gaps"
    (following,) = session.execute("SELECT next_position FROM log_sequencer").fetchone() or (None,)
    assert following == len(log) + 1
    doubled = [message for message, times in Counter(entry.message for entry in log).items() if times > 1]
    assert not doubled, f"numbered more than once: messages {doubled[:20]}"
    assert all(entry.name is not None for entry in log), "entries of messages that do not exist"
    tips: Counter[int] = Counter()
    for entry in log:
        tips[entry.topic] += 1
        assert entry.offset == tips[entry.topic], f"{entry} should have offset {tips[entry.topic]}"
    told = dict(session.execute("SELECT topic_id, next_offset - 1 FROM log_counter").fetchall())
    assert told == dict(tips)
    counted = {
        (topic, partition): n
        for topic, partition, n in session.execute("SELECT topic_id, partition_id, entries FROM log_partition_counter")
    }
    assert counted == Counter((entry.topic, entry.partition) for entry in log)
    partitions = dict(session.execute("SELECT id, total_partitions FROM outbox_topics").fetchall())
    assert all(0 <= entry.partition < partitions[entry.topic] for entry in log)
    if together:
        runs = Counter(transaction for transaction, _ in groupby(log, key=lambda entry: entry.transaction))
        assert set(runs.values()) <= {1}, "transactions that are not contiguous"
    return log


def unnumbered(session: Session) -> int:
    (count,) = session.execute(
        "SELECT count(*) FROM outbox_message_t AS message"
        " WHERE NOT EXISTS (SELECT FROM log_entry WHERE message_id = message.id)"
    ).fetchone() or (0,)
    return int(count)


def in_ci() -> bool:
    return bool(os.environ.get("CI"))
