"""Waking up: a publisher hints that there is something to number, whoever numbers tells the others what moved.

Hints save waiting and carry nothing: everybody also polls, so a lost one costs time and never an event. A publisher
notifies after its commit, when no lock of its own is held, and only if somebody waits to be woken.

Somebody waits exactly while an exclusive advisory lock is held; asking is to try for it, shared. The question travels
with the insert, so that under load, when nobody waits, a hint costs nothing at all.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connections
from psycopg import sql

from pubsub.statements import ask

HINT_CHANNEL = "event_channel"
"""To whoever numbers: something was published."""

MOVED_CHANNEL = "pubsub_moved"
"""To everybody else: these topics have new entries (their numbers, in the payload; all, if that is empty)."""

MOVED_SETTING = "pubsub.moved"
"""Of the session that numbers: the topics of its last pass, for the statement that tells of them."""

FAMILY = 0x70756273
LEADING = f"{FAMILY}, 1"
"""Held by the process that numbers for all."""
WAITING = f"{FAMILY}, 2"
"""Held by the same process while it waits for a hint."""
FOLLOWING = f"{FAMILY}, 3"
"""Shared by all that wait to be told what moved."""

# Losing a notification in a crash costs nothing, so its commit need not wait for the disk.
_NOTIFY = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{HINT_CHANNEL}', '')"
_ASK_AND_NOTIFY = f"{_NOTIFY} WHERE NOT pg_try_advisory_xact_lock_shared({WAITING})"
_MOVED = f"current_setting('{MOVED_SETTING}')"
TELL_MOVED = (
    f"SELECT set_config('synchronous_commit', 'off', true), "
    f"pg_notify('{MOVED_CHANNEL}', CASE WHEN length({_MOVED}) < 7000 THEN {_MOVED} ELSE '' END) "
    f"WHERE {_MOVED} <> '' AND NOT pg_try_advisory_xact_lock({FOLLOWING})"
)
"""Wakes those who wait for new entries, if anybody does. PostgreSQL takes less than 8000 bytes."""

ANSWER_HOLDS_S = 0.02
"""Seconds for which the answer that came with an insert is good enough. Who begins to wait in between looks again after
a few milliseconds, then ever more slowly; a transaction that takes longer than this asks anew after its commit."""


class Hint:
    """What one transaction has to say after its commit, however many events it publishes."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.somebody_waits = False
        self.asked_at = float("-inf")

    def add(self, somebody_waits: bool | None) -> None:
        """Of one event. None: it has not been asked whether anybody waits."""
        self.somebody_waits |= bool(somebody_waits)
        self.asked_at = float("-inf") if somebody_waits is None else time.monotonic()

    def give(self) -> None:
        if self.somebody_waits:
            statement = _NOTIFY
        elif time.monotonic() - self.asked_at > ANSWER_HOLDS_S:
            statement = _ASK_AND_NOTIFY
        else:
            return
        # In autocommit: no transaction of the caller's holds PostgreSQL's notify lock.
        ask(connections[self.alias], statement)


def after_commit(connection: Any, somebody_waits: bool | None = None) -> None:
    """Sees to it that whoever waits is woken after the commit. None: it has not been asked whether anybody does."""
    if connection.in_atomic_block:
        # Django replaces the list of hooks when the transaction ends or a savepoint is undone, and only then.
        hooks, hint = getattr(connection, "_pubsub_hint", (None, None))
        if hint is None or hooks is not connection.run_on_commit:
            hint = Hint(connection.alias)
            connection.on_commit(hint.give, robust=True)
            connection._pubsub_hint = connection.run_on_commit, hint
        hint.add(somebody_waits)
    elif somebody_waits is not False and connection.get_autocommit():
        # It has committed. (Manual transaction management has no commit hooks: there, polling finds the event.)
        hint = Hint(connection.alias)
        hint.add(somebody_waits)
        connection.on_commit(hint.give, robust=True)


@contextmanager
def dedicated_connection(alias: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection outside Django's keeping, that notices a peer which is gone without a word."""
    parameters = {
        "application_name": "pubsub",
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,
        "connect_timeout": 10,
        **connections[alias].get_connection_params(),
    }
    with psycopg.connect(**parameters, autocommit=True) as connection:
        if role := connections[alias].settings_dict["OPTIONS"].get("assume_role"):
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        yield connection


def can_listen(connection: psycopg.Connection[Any]) -> bool:
    """Whether the connection is one session of the server's. Behind a transaction pooler it is not."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is not None and row[0] == connection.info.backend_pid
