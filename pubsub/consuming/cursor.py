"""A group's cursors, and the locks that keep other workers from moving them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pubsub.subscriptions.task import PartitionTask

LOCK = "SELECT * FROM pubsub_lock_cursors_v1(%(group_id)s, %(topic_id)s, %(partitions)s::integer[])"


class Cursor(NamedTuple):
    """A group's cursor in a partition, while no other worker can move it."""

    partition_id: int
    next_offset: int
    next_position: int
    epoch: int
    xid: str
    """The transaction that holds the lock."""
    is_bounded: bool
    """Whether the group has not passed a resize of the topic."""


def lock_cursor(db: Any, task: PartitionTask) -> Cursor | None:
    """Locks a cursor for as long as the open transaction lasts. None where another worker has it."""
    return next(iter(lock_cursors(db, [task])), None)


def lock_cursors(db: Any, tasks: Sequence[PartitionTask]) -> list[Cursor]:
    """The same in several partitions of a group, without those that another worker has."""
    db.execute(LOCK, {**tasks[0].parameters, "partitions": array([task.partition_id for task in tasks])})
    return [Cursor(*row) for row in db.fetchall()]


def array(numbers: Iterable[int]) -> str:
    """As a text that PostgreSQL reads as an array: that takes less than what psycopg does for lists."""
    return f"{{{','.join(map(str, numbers))}}}"
