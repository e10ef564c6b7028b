"""Hints: after its commit a publisher wakes the sequencer, if that waits.

A hint saves waiting and carries nothing: the sequencer also polls, so a lost one costs time and never an event. It is
given after the commit, when the publisher holds no lock.

The sequencer waits exactly while it holds an advisory lock; to ask is to try for that lock, shared. Where a session
takes the events along with its COMMIT, it takes along the question, too, and the hint. Elsewhere the question travels
with the insert, and a hook gives the hint, so that under load, when the sequencer is busy, it costs nothing.
"""

import time
from typing import Any
from weakref import WeakKeyDictionary

from django.db import connections

from pubsub.db.locks import WAITING
from pubsub.db.pipeline import ask, keeping
from pubsub.db.transactions import in_atomic_block

HINT_CHANNEL = "event_channel"
"""To the sequencer: something was published."""

# Losing a notification in a crash costs nothing, so its commit need not wait for the disk.
_NOTIFY = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{HINT_CHANNEL}', '')"
_ASK_AND_NOTIFY = f"{_NOTIFY} WHERE NOT pg_try_advisory_xact_lock_shared({WAITING})"

HINT = _ASK_AND_NOTIFY.encode()
"""The statement that gives it, for a session that sends it with the COMMIT."""

ANSWER_HOLDS_S = 0.02
"""Seconds for which the answer that came with an insert is good enough. A sequencer that begins to wait in between
looks again after a few milliseconds, then ever more slowly; a longer transaction asks again after its commit.
"""


class Hint:
    """The one hint of a transaction, however many events it publishes, where no session takes it along. Once given it
    is empty."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._empty()

    def add(self, sequencer_waits: bool | None) -> None:
        """Of one event. None: it has not been asked whether the sequencer waits."""
        self.sequencer_waits |= bool(sequencer_waits)
        self.asked_at = float("-inf") if sequencer_waits is None else time.monotonic()

    def give(self) -> None:
        sequencer_waits, asked_at = self.sequencer_waits, self.asked_at
        connection = connections[self.alias]
        self._empty()
        if sequencer_waits:
            statement = _NOTIFY
        elif time.monotonic() - asked_at > ANSWER_HOLDS_S:
            statement = _ASK_AND_NOTIFY
        else:
            return
        # In autocommit: no transaction of the caller's holds PostgreSQL's notify lock.
        ask(connection, statement)

    def _empty(self) -> None:
        self.sequencer_waits = False
        self.asked_at = float("inf")


_hints: WeakKeyDictionary[Any, Hint] = WeakKeyDictionary()
"""Of connections, for one transaction and the next."""


def after_commit(connection: Any, sequencer_waits: bool | None = None) -> None:
    """Wakes the sequencer after the commit, if it waits. None: it has not been asked whether it does."""
    if session := keeping(connection):
        session.behind_commit = HINT
        return
    if in_atomic_block(connection):
        hint = _hints.setdefault(connection, Hint(connection.alias))
    elif sequencer_waits is not False and connection.get_autocommit():
        # It has committed. (Manual transaction management has no commit hooks: there, polling finds the event.)
        hint = Hint(connection.alias)
    else:
        return
    hint.add(sequencer_waits)
    # Django does not say when a transaction, or a savepoint in it, is undone: each event needs a hook of its own.
    connection.on_commit(hint.give, robust=True)
