"""The archive's subscription: a group like any other, for which retention waits. It moves when a range is safe."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from pubsub.db.locks import archiving, held_by_session
from pubsub.db.transactions import read_committed
from pubsub.models import Status, Subscription
from pubsub.spark.cursors import move_group
from pubsub.spark.errors import ArchiveBusy


@contextmanager
def alone(group: str, topic_id: int, using: str) -> Iterator[None]:
    """Only one run at a time may archive this topic for the group; raises :class:`ArchiveBusy` if one already does."""
    with connections[using].cursor() as cursor, held_by_session(cursor, archiving(group, topic_id)) as is_alone:
        if not is_alone:
            raise ArchiveBusy(f'Another run is archiving for the group "{group}". Wait until it has finished.')
        yield


def subscribe(group: str, topic_id: int, next_offset: int, using: str) -> None:
    """Makes the subscription if there is none; raises :class:`ArchiveBusy` if it does not count for retention."""
    with read_committed(using) as cursor:
        move_group(cursor, group, {topic_id: next_offset}, subscribe=True)
    found = Subscription.objects.using(using).select_related("topic").get(topic_id=topic_id, group_id=group)
    if found.status != Status.ACTIVE:
        raise ArchiveBusy(
            f'The group "{group}" on topic "{found.topic.name}" is {found.status}: its unarchived events '
            f"{'wait' if found.status == Status.PAUSED else 'may be dropped'}. Resume it with `manage.py "
            f"pubsub_group resume {group}`."
        )


def move_to(group: str, topic_id: int, next_offset: int, using: str) -> None:
    """Everything before this offset is archived: retention may drop it."""
    with read_committed(using) as cursor:
        move_group(cursor, group, {topic_id: next_offset})
