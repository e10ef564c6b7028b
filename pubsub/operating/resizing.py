"""Another number of partitions for a topic that is in use, without disturbing the order of keys.

A key's events go to another partition from some place in the log on. The place is kept as a row: a group reads nothing
behind it before all of its partitions have passed it. So what a key's old partition holds is handled before what its
new one does, and no event moves.
"""

import dataclasses
from typing import Any

from pubsub.models import Topic
from pubsub.observing.journal import record
from pubsub.sql import load
from pubsub.topics.finding import no_such_topic
from pubsub.topics.options import checked
from pubsub.transactions import read_committed

LOCK_SEQUENCER = "SELECT FROM log_sequencer WHERE id = 1 FOR UPDATE"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resized:
    """A change of the number of partitions, and from which offset on it holds."""

    topic: str
    before: int
    after: int
    offset: int | None
    """None: nothing was changed."""

    @property
    def changed(self) -> bool:
        return self.before != self.after


def resize_topic(topic: str, total_partitions: int, *, actor: str, using: str, reason: str = "") -> Resized:
    """Gives a topic more or fewer partitions, for all that is numbered from now on. Publishers are not held up.

    Numbering waits for this transaction, a few milliseconds; commit soon.

    >>> from pubsub.operating import create_topic
    >>> topic = create_topic("doctest.resized", total_partitions=2, actor="doctest", using="default")
    >>> resize_topic("doctest.resized", 4, actor="doctest", using="default")
    Resized(topic='doctest.resized', before=2, after=4, offset=1)
    """
    checked(topic, {"total_partitions": total_partitions})
    with read_committed(using) as cursor:
        cursor.execute(LOCK_SEQUENCER)
        row = locked_topic(topic, using)
        return resize_locked(cursor, row, total_partitions, actor=actor, using=using, reason=reason)


def resize_locked(cursor: Any, topic: Topic, total_partitions: int, *, actor: str, using: str, reason: str) -> Resized:
    """The same, where the caller has locked the sequencer's row and the topic's."""
    before, offset = topic.total_partitions, None
    if before != total_partitions:
        here = {"topic_id": topic.pk, "partitions": total_partitions}
        cursor.execute(load("note_resize"), here)
        position, offset = cursor.fetchone()
        topic.total_partitions = total_partitions
        topic.save(using=using, update_fields=["total_partitions"])
        cursor.execute(load("open_partitions"), here)
        record(
            "resize",
            actor=actor,
            using=using,
            topic=topic.name,
            reason=reason,
            before={"total_partitions": before},
            after={"total_partitions": total_partitions, "from_offset": offset, "from_position": position},
        )
    return Resized(topic=topic.name, before=before, after=total_partitions, offset=offset)


def locked_topic(name: str, using: str, *, to_remove: bool = False) -> Topic:
    """The topic's row, locked against other operators; rows that refer to it can still be written, unless it goes."""
    topic = Topic.objects.using(using).filter(name=name).select_for_update(no_key=not to_remove).first()
    if topic is None:
        raise no_such_topic(name, using)
    return topic
