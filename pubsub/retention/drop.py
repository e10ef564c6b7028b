"""Dropping what has expired, a few segments in one transaction: plan, account for it, detach; then drop the files."""

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import OperationalError, connections

from pubsub.db.audit import record
from pubsub.db.errors import is_lock_not_available
from pubsub.db.locks import PARTITIONING, lock_sequencer, try_for_transaction
from pubsub.db.sql import load
from pubsub.db.transactions import read_committed

from .detach import detach, drop_detached, lock_out_others
from .missed import ACTOR, Missed, note_missed
from .plan import Plan, make_plan
from .segments import find_unread, least_message_id, next_position, note_full_segments, read_storage

logger = logging.getLogger(__name__)

LOCK_TIMEOUT_MS = 100
"""How long publishers may be kept waiting, at a time, until no other session uses the tables."""

ATTEMPTS = 3
"""How often that is tried before the rest is left for the next run."""

AT_ONCE = 8
"""Segments dropped in one transaction: more would keep other sessions waiting for longer."""


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """What a run dropped."""

    partitions: tuple[str, ...] = ()
    entries: int = 0
    bytes: int = 0
    missed: dict[str, Missed] = field(default_factory=dict)
    """Unread offsets that groups missed, by "group on topic" and partition."""
    locked_ms: float = 0
    """The longest time for which other sessions could not use the tables."""
    blocked: bool = False
    """Whether segments stayed only because other sessions used the tables all the time."""

    def __add__(self, other: "Dropped") -> "Dropped":
        return Dropped(
            partitions=self.partitions + other.partitions,
            entries=self.entries + other.entries,
            bytes=self.bytes + other.bytes,
            missed=self.missed | other.missed,
            locked_ms=max(self.locked_ms, other.locked_ms),
            blocked=self.blocked or other.blocked,
        )


def dry_run(using: str) -> Plan:
    """What would be dropped now, and why the rest stays. Changes nothing.

    >>> dry_run("default").going
    []
    """
    with connections[using].cursor() as cursor:
        storage = read_storage(cursor)
        unread = find_unread(cursor, storage)
        return make_plan(storage, unread, least_needed_id=least_message_id(cursor, storage.noted_up_to))


def drop_expired(using: str, *, lock_timeout_ms: int = LOCK_TIMEOUT_MS, attempts: int = ATTEMPTS) -> Dropped:
    """Drop what has expired and every group that counts has passed. Safe to repeat, and to run in many processes.

    >>> drop_expired("default").partitions
    ()
    """
    note_full_segments(using)
    total = Dropped()
    while attempts:
        try:
            done = _drop_some(using, lock_timeout_ms, total.missed)
        except OperationalError as error:
            if not is_lock_not_available(error) and not isinstance(error, _Unnumbered):
                raise
            attempts -= 1
            if attempts:
                # So that it does not keep time with a session that uses the tables at regular intervals.
                time.sleep(random.uniform(0, 2 * lock_timeout_ms / 1000))  # noqa: S311
            else:
                total += Dropped(blocked=True)
            continue
        if done is None:
            break
        total += done
    drop_detached(using)
    _log(total)
    return total


def _log(total: Dropped) -> None:
    if total.partitions:
        logger.info(
            "dropped %s: %d entries, %d bytes; tables locked for %.0f ms",
            ", ".join(total.partitions),
            total.entries,
            total.bytes,
            total.locked_ms,
        )
    if total.blocked:
        logger.info("expired segments stay for now: other sessions keep using the tables; run_cleanup lists them")


def _drop_some(using: str, lock_timeout_ms: int, missed: Mapping[str, Missed]) -> Dropped | None:
    """Drop the oldest segments that may go, in one transaction; None if there are none. `missed` in this run so far."""
    with connections[using].cursor() as cursor:
        storage = read_storage(cursor)
        if not storage.expired_up_to:
            return None
        # Read most of what follows the segments before other sessions have to wait.
        read_up_to = next_position(cursor)
        least_id = least_message_id(cursor, storage.noted_up_to)
    with read_committed(using) as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = {int(lock_timeout_ms)}")
        if not try_for_transaction(cursor, PARTITIONING):
            return None  # another process is making or dropping partitions
        _keep_log_and_groups_as_they_are(cursor)
        storage = read_storage(cursor)
        unread = find_unread(cursor, storage)
        least_id = _least(least_id, least_message_id(cursor, read_up_to))
        plan = make_plan(storage, unread, least_needed_id=least_id, at_most=AT_ONCE)
        if not plan.going:
            return None
        dropped = _account_for(cursor, using, plan, missed)
        locked_ms = _detach_all(cursor, plan, lock_timeout_ms)
    return replace(dropped, locked_ms=locked_ms)


def _keep_log_and_groups_as_they_are(cursor: Any) -> None:
    """Until the end of the transaction, nothing is numbered, and no group subscribes, seeks or rejoins."""
    lock_sequencer(cursor)
    cursor.execute("SELECT FROM outbox_topic_subscriptions WHERE status IN ('DEAD', 'CANCELLED') FOR UPDATE")


def _account_for(cursor: Any, using: str, plan: Plan, before: Mapping[str, Missed]) -> Dropped:
    """Bring counters, cursors and subscriptions to where the log begins afterwards, and add to the audit log."""
    lowers = [segment.lower for segment in plan.going]
    dropped = Dropped(
        partitions=tuple(plan.names),
        entries=sum(segment.entries for segment in plan.going),
        bytes=plan.bytes,
        missed=note_missed(cursor, using, plan, before),
    )
    cursor.execute(load("retention/count_dropped"), {"lowers": lowers})
    cursor.execute(load("retention/move_past_dropped"), {"upper": plan.upper})
    cursor.execute("DELETE FROM log_segments WHERE lower = ANY (%s)", [lowers])
    cursor.execute(
        "UPDATE log_sequencer SET settled_id = greatest(settled_id, %s) WHERE id = 1", [plan.numbered_below_id]
    )
    record(
        "partition-dropped",
        actor=ACTOR,
        using=using,
        reason="expired, and passed by every group that counts",
        after={"partitions": plan.names, "entries": dropped.entries, "bytes": dropped.bytes},
    )
    return dropped


def _detach_all(cursor: Any, plan: Plan, lock_timeout_ms: int) -> float:
    """Detach what a plan drops. Returns for how many milliseconds other sessions had to wait."""
    # A crash loses all of this transaction or none of it, and files are removed later: no need to wait for the disk.
    cursor.execute("SET LOCAL synchronous_commit = off")
    # Compiling plans, or scanning tables without statistics, would take longer than everything else.
    cursor.execute("SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
    find_unnumbered, parameters = _unnumbered_query(cursor, plan)
    lock_out_others(cursor, plan.names, lock_timeout_ms)
    locked_at = time.monotonic()
    cursor.execute(find_unnumbered, parameters)
    if cursor.fetchone() != (False,):
        raise _Unnumbered
    detach(cursor, plan.names)
    return 1000 * (time.monotonic() - locked_at)


def _unnumbered_query(cursor: Any, plan: Plan) -> tuple[str, dict[str, Any]]:
    """A query to run while publishers are locked out: is there a message with an old id and no offset?"""
    cursor.execute(
        "SELECT pg_snapshot_xmax(seen)::text, ARRAY(SELECT pg_snapshot_xip(seen)::text) FROM log_sequencer WHERE id = 1"
    )
    xmax, xip = cursor.fetchone()
    below_id = plan.numbered_below_id
    names = [partition.name for partition in plan.storage.messages if partition.lower < below_id]
    tests = [load("retention/find_unnumbered").format(partition=name) for name in [*names, "outbox_message_t_default"]]
    return f"SELECT {' OR '.join(tests)}", {"below_id": below_id, "xmax": xmax, "xip": xip}


class _Unnumbered(OperationalError):
    """A message with an old id has just been committed. The next pass of the sequencer numbers it."""

    def __init__(self) -> None:
        super().__init__("messages with old ids have not been numbered yet")


def _least(*ids: int | None) -> int | None:
    return min((each for each in ids if each is not None), default=None)
