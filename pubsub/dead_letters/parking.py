"""Parking: with `on_failure="park_key"` the later events of a key wait, in order, behind one that failed.

They are parked in the dead-letter queue, each with the rest of its transaction, and go on when nothing that waits comes
before them: it was handled after all, or given up.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.db import connections

from pubsub.db.sql import load
from pubsub.errors import NotHandled
from pubsub.events import Entry
from pubsub.payloads.visible import visible
from pubsub.subscriptions.task import PartitionTask


class Parked(NotHandled):
    """The event has to wait behind an earlier one of its key, which failed."""


def unblocked(entries: Iterable[Entry], blocked: set[str]) -> Iterator[Entry]:
    """The entries of a transaction, until one of them has to wait: then all of them have to, and Parked is raised.

    `blocked` are keys of which events have failed since the entries were read.
    """
    for entry in entries:
        if is_held_up(entry, blocked):
            raise Parked(why_parked(entry))
        yield entry


def or_parked(error: BaseException, entries: Iterable[Entry], blocked: set[str]) -> BaseException:
    """What a transaction is to be set aside for that has failed before all of it was looked at: where one of these
    entries, which its handler has not come to, has to wait, all of it has to. Tried again, it would overtake."""
    try:
        for _ in unblocked(entries, blocked):
            continue
    except Parked as parked:
        return parked
    return error


def is_held_up(entry: Entry, blocked: set[str]) -> bool:
    """Whether the event has to wait."""
    return entry.is_mine and (entry.is_blocked or entry.ordering_key in blocked)


def why_parked(entry: Entry) -> str:
    """What it waits for, for people."""
    return f'an earlier event of key "{visible(entry.ordering_key or "")}" has failed'


def hold_blockers(db: Any, group: str, topic_id: int, keys: Sequence[str], before_offsets: Sequence[int]) -> None:
    """Keeps what each of these keys waits for as it is until the transaction is over: who resolves it then sees who
    waits. Each offset is that of the first event of its key that waits."""
    db.execute(
        load("dead_letters/hold_blockers"),
        {"group_id": group, "topic_id": topic_id, "keys": keys, "before_offsets": before_offsets},
    )


def park_due(db: Any, task: PartitionTask, most: int) -> None:
    """Parks what is due, of about so many events, and would overtake what waits with one of its keys."""
    db.execute(load("dead_letters/park_due"), {**task.parameters, "limit": most})
    if first_offsets := dict(db.fetchall()):
        let_wait(db, task, list(first_offsets), list(first_offsets.values()))


def let_wait(db: Any, task: PartitionTask, keys: Sequence[str], first_offsets: Sequence[int]) -> None:
    """For what has just been parked: what it waits for may have been resolved since that was read."""
    hold_blockers(db, task.declared.group, task.topic_id, keys, first_offsets)
    unpark(db, task.declared.group, task.topic_id, keys)


def unpark(db: Any, group: str, topic_id: int, keys: Sequence[str]) -> int:
    """Lets parked events of these keys go that wait for nothing any more. Returns how many."""
    db.execute(load("dead_letters/unpark"), {"group_id": group, "topic_id": topic_id, "keys": keys})
    return int(db.rowcount)


def unpark_left_behind(using: str) -> int:
    """Lets parked events go that were left behind: the last one before them may have been handled elsewhere meanwhile.

    >>> unpark_left_behind("default")
    0
    """
    with connections[using].cursor() as db:
        db.execute(load("dead_letters/find_parked"))
        return sum(unpark(db, *found) for found in db.fetchall())
