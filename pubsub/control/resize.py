"""Changing the number of partitions of a topic in use, without disturbing the order of keys.

From some position in the log on, a key's events go to another partition. That position is stored as a row: a group
reads nothing after it until all of the group's partitions have passed it. So the events in a key's old partition are
handled before those in its new one, and no event is moved.
"""

import dataclasses
from typing import Any

from pubsub.db.audit import record
from pubsub.db.locks import lock_sequencer
from pubsub.db.sql import load
from pubsub.db.transactions import read_committed
from pubsub.models import Topic
from pubsub.topic_options import checked
from pubsub.topics.registry import no_such_topic


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resized:
    """A change of the number of partitions, and the first offset it applies to."""

    topic: str
    before: int
    after: int
    offset: int | None
    """None: nothing was changed."""

    @property
    def changed(self) -> bool:
        return self.before != self.after


def resize_topic(topic: str, partitions: int, *, actor: str, using: str, reason: str = "") -> Resized:
    """Gives a topic more or fewer partitions, for all events numbered from now on. Publishers do not wait.

    The sequencer waits for this transaction, which takes a few milliseconds; commit soon.

    >>> from pubsub.control import create_topic
    >>> topic = create_topic("doctest.resized", partitions=2, actor="doctest", using="default")
    >>> resize_topic("doctest.resized", 4, actor="doctest", using="default")
    Resized(topic='doctest.resized', before=2, after=4, offset=1)
    """
    checked(topic, {"partitions": partitions})
    with read_committed(using) as cursor:
        lock_sequencer(cursor)
        row = locked_topic(topic, using)
        return resize_locked(cursor, row, partitions, actor=actor, using=using, reason=reason)


def resize_locked(cursor: Any, topic: Topic, partitions: int, *, actor: str, using: str, reason: str) -> Resized:
    """The same, for a caller that has locked the sequencer's row and the topic's."""
    before, offset = topic.total_partitions, None
    if before != partitions:
        here = {"topic_id": topic.pk, "partitions": partitions}
        cursor.execute(load("control/note_resize"), here)
        position, offset = cursor.fetchone()
        topic.total_partitions = partitions
        topic.save(using=using, update_fields=["total_partitions"])
        cursor.execute(load("control/open_partitions"), here)
        record(
            "resize",
            actor=actor,
            using=using,
            topic=topic.name,
            reason=reason,
            before={"partitions": before},
            after={"partitions": partitions, "from_offset": offset, "from_position": position},
        )
    return Resized(topic=topic.name, before=before, after=partitions, offset=offset)


def locked_topic(name: str, using: str, *, to_remove: bool = False) -> Topic:
    """The topic's row, locked against other operators; with `to_remove`, also against rows that refer to it."""
    topic = Topic.objects.using(using).filter(name=name).select_for_update(no_key=not to_remove).first()
    if topic is None:
        raise no_such_topic(name, using)
    return topic
