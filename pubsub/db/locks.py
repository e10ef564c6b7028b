"""Every lock that makes one part of the system wait for another, who takes it, and in which order.

**Advisory locks of a session** say that a process lives. They end with its connection, so the dead keep none. They are
not taken behind a transaction pooler, where no session belongs to one client.

- :data:`LEADING`: the one process that numbers for all. The others try for it once per wait period.
- :data:`WAITING`: the leader, while it waits for a hint. Publishers try for it, shared, behind their commit: where they
  get it, no hint is needed. `publish_v1.sql` does the same.
- :data:`FOLLOWING`: shared by all that listen for what has moved. The leader tries for it: where it gets it, there is
  no listener.
- :func:`alive`: a worker, for as long as it is connected. A worker that wants its lease tries for it, shared.
- :func:`archiving`: one run of the archive for a group and a topic. Another one tries, and gives up.

**Advisory locks of a transaction:**

- :data:`PARTITIONING`: the process that makes or drops segments. Another one tries, and gives up.

LEADING and PARTITIONING are never waited for. The others are, if at all, before the session locks a row. So no advisory
lock can be part of a deadlock.

**Rows**, always in this order:

1. `consumer_offsets`, a group's cursors, by partition. A worker locks one, and skips those that are locked. An
   operator's change locks all of them, and waits only if it is forced.
2. `log_sequencer`, one row (:func:`lock_sequencer`). The sequencer locks it for each pass, and skips it while locked.
   What needs the log's tip to stand still waits for it: subscribing, seeking to the tip, resizing or removing a topic,
   retention, the placing of Spark's groups.
3. `outbox_topics`, then `outbox_topic_subscriptions`: operators' changes, retention.
4. `consumer_claims`, then `dead_letter_queue`: a worker, behind the cursor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Spark's side runs without Django, and finds psycopg for itself
    import psycopg

FAMILY = 0x70756273
"""Of the locks by which numbering is shared out. `publish_v1.sql` spells it, too."""

WORKERS = 0x70756274
"""Of the locks by which others see that a worker is still connected."""


@dataclass(frozen=True)
class AdvisoryLock:
    """A lock of PostgreSQL's that means what we agree on; as text, the arguments of PostgreSQL's functions.

    >>> f"SELECT pg_advisory_lock({LEADING})"
    'SELECT pg_advisory_lock(1886741107, 1)'
    """

    key: str
    parameters: tuple[Any, ...] = ()
    """For the marks in the key."""

    def __str__(self) -> str:
        return self.key


LEADING = AdvisoryLock(f"{FAMILY}, 1")
"""Held by the process that numbers for all."""
WAITING = AdvisoryLock(f"{FAMILY}, 2")
"""Held by the same process while it waits for a hint."""
FOLLOWING = AdvisoryLock(f"{FAMILY}, 3")
"""Shared by all that listen for what has moved."""
PARTITIONING = AdvisoryLock("hashtext('pubsub partitions')")
"""Held by the transaction that makes or drops segments."""


def alive(key: int) -> AdvisoryLock:
    """Held by a worker that is connected, under a key that it has chosen and written into its leases."""
    return AdvisoryLock(f"{WORKERS}, %s", (key,))


def archiving(group: str, topic_id: int) -> AdvisoryLock:
    """Held by the one run that archives a topic for a group. One number, not two: never the same as another lock."""
    return AdvisoryLock(f"hashtext(%s) # {WORKERS}", (f"{topic_id} {group}",))


def take(session: psycopg.Connection[Any], lock: AdvisoryLock, *, shared: bool = False) -> None:
    """Waits for a lock, and keeps it for as long as the session lasts."""
    session.execute(f"SELECT pg_advisory_lock{_shared(shared)}({lock})", lock.parameters)


def try_to_take(session: psycopg.Connection[Any], lock: AdvisoryLock, *, shared: bool = False) -> bool:
    """Takes a lock for the session if that can be done at once. Returns whether it could."""
    return _is_true(session, f"SELECT pg_try_advisory_lock{_shared(shared)}({lock})", lock)


def release(session: psycopg.Connection[Any], lock: AdvisoryLock, *, shared: bool = False) -> None:
    """Gives a session's lock back before the session ends."""
    session.execute(f"SELECT pg_advisory_unlock{_shared(shared)}({lock})", lock.parameters)


def try_for_transaction(cursor: Any, lock: AdvisoryLock) -> bool:
    """Takes a lock for the open transaction if that can be done at once. Returns whether it could."""
    return _is_true(cursor, f"SELECT pg_try_advisory_xact_lock({lock})", lock)


@contextmanager
def held_by_session(cursor: Any, lock: AdvisoryLock) -> Iterator[bool]:
    """Holds a lock of the session meanwhile, if it is to be had at once, which is what it gives."""
    got_it = _is_true(cursor, f"SELECT pg_try_advisory_lock({lock})", lock)
    try:
        yield got_it
    finally:
        if got_it:
            cursor.execute(f"SELECT pg_advisory_unlock({lock})", lock.parameters)


def follow(session: psycopg.Connection[Any], channel: str) -> None:
    """Listens on the channel that tells what has moved, and shows the leader that there is a listener."""
    session.execute(f"LISTEN {channel}")
    take(session, FOLLOWING, shared=True)


def lock_sequencer(cursor: Any) -> None:
    """Holds the log's tip where it is until the transaction ends: there is no sequencing meanwhile.

    Waits for a pass that has begun. Commit soon: publishers go on, but their events wait.
    """
    cursor.execute("SELECT FROM log_sequencer WHERE id = 1 FOR UPDATE")


def _shared(shared: bool) -> str:
    return "_shared" if shared else ""


def _is_true(where: Any, statement: str, lock: AdvisoryLock) -> bool:
    cursor = where.execute(statement, lock.parameters or None)
    return bool(cursor.fetchone() == (True,))
