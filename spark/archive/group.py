"""The archive's subscription: a group like any other, for which retention waits. It moves when a range is safe."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from ...models import Status, Subscription
from ..errors import ArchiveBusy
from ..statements import statement

FAMILY = 0x70756274
"""Of the advisory locks by which archiving runs once at a time."""


@contextmanager
def alone(group: str, topic_id: int, using: str) -> Iterator[None]:
    """Nobody else archives this topic for the group meanwhile; raises :class:`ArchiveBusy` if somebody does."""
    lock = f"hashtext('{topic_id} ' || %s) # {FAMILY}"
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT pg_try_advisory_lock({lock})", [group])
        if not cursor.fetchone()[0]:
            raise ArchiveBusy(f'Somebody is archiving for the group "{group}" at this moment. Wait for that run.')
        try:
            yield
        finally:
            cursor.execute(f"SELECT pg_advisory_unlock({lock})", [group])


def subscribe(group: str, topic_id: int, next_offset: int, using: str) -> None:
    """Makes the subscription where there is none; raises :class:`ArchiveBusy` where it does not count."""
    _place(group, topic_id, next_offset, using, subscribe=True)
    found = Subscription.objects.using(using).select_related("topic").get(topic_id=topic_id, group_id=group)
    if found.status != Status.ACTIVE:
        raise ArchiveBusy(
            f'The group "{group}" on topic "{found.topic.name}" is {found.status}: what it has not archived '
            f"{'waits' if found.status == Status.PAUSED else 'may be dropped'}. Let it go on with `manage.py "
            f"pubsub_group resume {group}`."
        )


def move_to(group: str, topic_id: int, next_offset: int, using: str) -> None:
    """Everything before this offset is archived: retention may drop it."""
    _place(group, topic_id, next_offset, using)


def _place(group: str, topic_id: int, next_offset: int, using: str, *, subscribe: bool = False) -> None:
    parameters: dict[str, str | int] = {"group": group, "topic_id": topic_id, "next_offset": next_offset}
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        if not connections[using].savepoint_ids:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        # Nobody numbers meanwhile, as the place in all partitions must mean one moment.
        cursor.execute("SELECT FROM log_sequencer WHERE id = 1 FOR UPDATE")
        if subscribe:
            cursor.execute(statement("archive_subscribe"), parameters)
        cursor.execute(statement("archive_place"), parameters)
