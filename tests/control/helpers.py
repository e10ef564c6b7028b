"""What the tests of operators' work share."""

from typing import Any

from django.db import connections, transaction

from pubsub import publish
from pubsub.control import create_topic
from pubsub.models import ConsumerLag, ConsumerOffset, Subscription, Topic
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.register import register_subscription
from tests import audit
from tests.handlers import Recorder, declare, drain
from tests.sessions import Session, wait_until

TOPIC = "orders"
GROUP = "mail"
WHO: dict[str, Any] = {"actor": "olivia", "using": "default"}


def make_topic(partitions: int = 2, name: str = TOPIC, **options: Any) -> Topic:
    return create_topic(name, partitions=partitions, **options, **WHO)


def fill(count: int, topic: str = TOPIC, start: int = 0) -> None:
    """One transaction for each event, and everything numbered."""
    for n in range(start, start + count):
        with transaction.atomic():
            publish(topic, n, key=n)
    sequence("default")


def subscribe(group: str = GROUP, topic: str = TOPIC, *, start: Any = "earliest", read: bool = False) -> Recorder:
    """Gives a group its cursors, at the tip if `read` is given."""
    recorder = Recorder()
    declared = declare(recorder, topic=topic, group=group, start=start)
    if read:
        drain(declared)
    else:
        register_subscription(declared, using="default")
    return recorder


def reread(group: str = GROUP, topic: str = TOPIC) -> list[Any]:
    """What the group is given from where it stands now."""
    recorder = Recorder()
    drain(declare(recorder, topic=topic, group=group))
    return recorder.payloads


def lag(group: str = GROUP, topic: str = TOPIC) -> dict[int, int]:
    places = ConsumerLag.objects.filter(group_id=group, topic=topic).order_by("partition_id")
    return {place.partition_id: place.lag for place in places}


def places(group: str = GROUP) -> dict[int, tuple[int, int, int]]:
    rows = ConsumerOffset.objects.filter(group_id=group).order_by("partition_id")
    return {row.partition_id: (row.next_offset, row.next_position, row.passed) for row in rows}


def status_of(group: str = GROUP) -> str:
    return str(Subscription.objects.get(group_id=group).status)


def journal() -> list[tuple[str, str, str, str]]:
    """Who did what to what, since the topics were made."""
    return list(audit.journal().order_by("id").values_list("actor", "action", "topic", "group_id"))


def check_counts(group: str = GROUP) -> None:
    """The cursors have passed exactly as many events as they say: lag is exact."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT cursor.partition_id, passed, (SELECT count(*) FROM log_entry WHERE topic_id = cursor.topic_id"
            "   AND partition_id = cursor.partition_id AND position < cursor.next_position)"
            " FROM consumer_offsets AS cursor WHERE cursor.group_id = %s",
            [group],
        )
        for partition, passed, really in cursor.fetchall():
            assert passed == really, f"partition {partition}"


def wait_for_waiting(watcher: Session, table: str, sessions: int = 1) -> None:
    """Waits until so many sessions wait for a lock with a statement on a table."""
    asked = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        " AND position(%s in query) > 0"
    )
    wait_until(lambda: watcher.execute(asked, [table]).fetchone() == (sessions,), f"{sessions} wait for {table}")
