"""A shop to look at: groups in every state there is, an hour of samples, failures, members, findings."""

import datetime as dt

from django.db import connection, transaction
from django.utils import timezone

from pubsub import publish, publish_many
from pubsub.models import ConsumerOffset, Sample, Subscription, Topic
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from tests.factories import DeadLetterFactory, FindingFactory, MemberFactory, OperatorEventFactory, TopicFactory


def a_lively_shop():
    """Groups in every state there is, an hour of samples, failures, members."""
    topic, _ = Topic.objects.get_or_create(name="orders.events", defaults={"total_partitions": 8})
    other = TopicFactory(name="parcels.events", total_partitions=4)
    groups = ("emails", "inventory", "analytics", "shipping")
    for group in groups:
        register_subscription(Declaration(topic=topic.name, group=group, handler=print), using="default")
    register_subscription(Declaration(topic=other.name, group="tracking", handler=print), using="default")
    for number in range(1, 121):
        with transaction.atomic():
            for type_ in ("order.created", "order.paid"):
                order = {"order": number, "customer": {"name": "Zoë Köhler", "city": "Köln"}, "total": "49.90"}
                publish(
                    "orders.events", order, type=type_, key=f"customer-{number % 20}", metadata={"trace": "4bf92f35"}
                )
    with transaction.atomic():
        publish_many(other.name, ({"payload": {"parcel": n}, "type": "parcel.scanned", "key": n} for n in range(60)))
    sequence("default")
    now = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE consumer_offsets AS cursor SET passed = entries, next_offset = 1000, next_position = 100000, "
            "updated_at = now() FROM log_partition_counter AS numbered WHERE numbered.topic_id = cursor.topic_id "
            "AND numbered.partition_id = cursor.partition_id AND group_id IN ('emails', 'inventory', 'tracking')"
        )
        cursor.execute("UPDATE outbox_message_t SET created_at = created_at - interval '8 minutes'")
    ConsumerOffset.objects.update(updated_at=now - dt.timedelta(minutes=7))
    Subscription.objects.filter(group_id="analytics").update(
        status="PAUSED", status_changed_at=now - dt.timedelta(minutes=40), status_reason="the warehouse moves (olga)"
    )
    for group, host in (("emails", "app-1"), ("emails", "app-2"), ("inventory", "app-1"), ("tracking", "app-3")):
        chosen = other if group == "tracking" else topic
        MemberFactory(topic=chosen, group_id=group, worker_id=f"{host}-{group}", host=host)
    for number in range(1, 7):
        DeadLetterFactory(
            topic=topic, group_id="emails", c_offset=number, created_at=now - dt.timedelta(minutes=30 - number)
        )
    OperatorEventFactory(
        actor="olga", action="pause", topic=topic.name, group_id="analytics", reason="the warehouse moves"
    )
    samples = []
    for minute in range(60, 0, -1):
        at = now - dt.timedelta(minutes=minute)
        samples.append(Sample(topic=topic, tip=240 - 3 * minute - (minute % 7), taken_at=at))
        samples.append(Sample(topic=other, tip=60 - minute // 2, taken_at=at))
        samples.append(Sample(topic=topic, group_id="emails", tip=240, lag=(minute * 7) % 11, taken_at=at))
        samples.append(Sample(topic=topic, group_id="inventory", tip=240, lag=max(0, minute - 30), taken_at=at))
        if minute < 41:
            for group in ("shipping", "analytics"):
                samples.append(Sample(topic=topic, group_id=group, tip=240, lag=240 - 6 * minute, taken_at=at))
    Sample.objects.bulk_create(samples)
    for hour in range(24):
        FindingFactory(
            run_id="8d7f9a40-0000-4000-8000-000000000001",
            job="throughput",
            row_number=hour,
            data={"hour": f"{hour:02}:00", "events": 100 + (hour * 37) % 160},
        )
    return topic
