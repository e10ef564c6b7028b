"""A valid row of every table, for tests that need one to be there."""

import datetime as dt
import uuid
from typing import Any

import factory
from django.utils import timezone
from factory.django import DjangoModelFactory

from pubsub import models

TYPES = ("order.created", "order.paid", "order.shipped")


def order(number: int) -> dict[str, Any]:
    return {"order": number, "total": f"{number * 7 % 90 + 9}.90", "lines": [{"sku": f"A-{number % 5}", "count": 1}]}


class TopicFactory(DjangoModelFactory):
    class Meta:
        model = models.Topic

    name = factory.Sequence(lambda n: f"orders-{n}.events")
    total_partitions = 4
    retention = dt.timedelta(days=7)


class SubscriptionFactory(DjangoModelFactory):
    class Meta:
        model = models.Subscription

    topic = factory.SubFactory(TopicFactory)
    group_id = factory.Sequence(lambda n: f"email-service-{n}")
    retry_delays = factory.LazyFunction(lambda: [60, 300])


class MessageContentFactory(DjangoModelFactory):
    class Meta:
        abstract = True

    class Params:
        number = factory.Sequence(lambda n: n + 1)

    topic = factory.SubFactory(TopicFactory)
    type = factory.Iterator(TYPES)
    key = factory.LazyAttribute(lambda message: f"customer-{message.number % 10}")
    host_id = "shop-1"
    user_id = factory.LazyAttribute(lambda message: str(message.number % 100))
    payload = factory.LazyAttribute(lambda message: order(message.number))
    metadata = factory.LazyFunction(lambda: {"trace": uuid.uuid4().hex})


class OutboxMessageFactory(MessageContentFactory):
    """Published, but not numbered: the sequencer does that."""

    class Meta:
        model = models.OutboxMessage


class DelayedMessageFactory(MessageContentFactory):
    class Meta:
        model = models.DelayedMessage

    deliver_at = factory.LazyFunction(lambda: timezone.now() + dt.timedelta(hours=1))


class DedupKeyFactory(DjangoModelFactory):
    class Meta:
        model = models.DedupKey

    topic = factory.SubFactory(TopicFactory)
    dedup_key = factory.Sequence(lambda n: f"payment-{n}")
    event_id = factory.LazyFunction(uuid.uuid4)
    expires_at = factory.LazyFunction(lambda: timezone.now() + dt.timedelta(days=7))


class LogEntryFactory(DjangoModelFactory):
    """A message at a position in the log, far beyond what the sequencer of a test reaches."""

    class Meta:
        model = models.LogEntry

    class Params:
        message = factory.SubFactory(OutboxMessageFactory, topic=factory.SelfAttribute("..topic"))

    topic = factory.SubFactory(TopicFactory)
    message_id = factory.SelfAttribute("message.id")
    c_offset = factory.Sequence(lambda n: n + 1)
    position = factory.Sequence(lambda n: 1_000_000_000 + n)
    partition_id = factory.LazyAttribute(lambda entry: entry.c_offset % entry.topic.total_partitions)


class LogCounterFactory(DjangoModelFactory):
    class Meta:
        model = models.LogCounter
        django_get_or_create = ("topic",)

    topic = factory.SubFactory(TopicFactory)
    next_offset = 101


class LogPartitionCounterFactory(DjangoModelFactory):
    class Meta:
        model = models.LogPartitionCounter
        django_get_or_create = ("topic", "partition_id")

    topic = factory.SubFactory(TopicFactory)
    partition_id = 0
    entries = 25


class SequencerFactory(DjangoModelFactory):
    """There is one row, which `migrate` has made."""

    class Meta:
        model = models.Sequencer
        django_get_or_create = ("id",)

    id = 1


class ConsumerOffsetFactory(DjangoModelFactory):
    class Meta:
        model = models.ConsumerOffset

    topic = factory.SubFactory(TopicFactory)
    group_id = factory.Sequence(lambda n: f"email-service-{n}")
    partition_id = 0
    next_offset = 11
    next_position = 11
    passed = 10


class LeaseFactory(DjangoModelFactory):
    class Meta:
        model = models.Lease

    topic = factory.SubFactory(TopicFactory)
    group_id = factory.Sequence(lambda n: f"email-service-{n}")
    partition_id = 0
    first_offset = factory.Sequence(lambda n: n * 100 + 1)
    last_offset = factory.LazyAttribute(lambda lease: lease.first_offset + 99)
    worker_id = "worker-1"
    epoch = 1
    expires_at = factory.LazyFunction(lambda: timezone.now() + dt.timedelta(seconds=30))


class ResizeFactory(DjangoModelFactory):
    class Meta:
        model = models.Resize

    topic = factory.SubFactory(TopicFactory)
    position = factory.Sequence(lambda n: n * 1000 + 1)
    c_offset = factory.SelfAttribute("position")
    partitions_before = 2
    partitions_after = 4


class MemberFactory(DjangoModelFactory):
    class Meta:
        model = models.Member

    topic = factory.SubFactory(TopicFactory)
    group_id = "email-service"
    worker_id = factory.Sequence(lambda n: f"worker-{n}")
    host = "app-1"
    pid = factory.Sequence(lambda n: 1000 + n)


class WorkerProcessFactory(DjangoModelFactory):
    class Meta:
        model = models.WorkerProcess

    worker_id = factory.Sequence(lambda n: f"worker-{n}")
    host = "app-1"
    pid = factory.Sequence(lambda n: 1000 + n)
    threads = 1


class OperatorEventFactory(DjangoModelFactory):
    class Meta:
        model = models.OperatorEvent

    actor = "olivia"
    action = "pause"
    topic = "orders.events"
    group_id = "email-service"
    reason = "the mail server is down"


class SampleFactory(DjangoModelFactory):
    class Meta:
        model = models.Sample

    topic = factory.SubFactory(TopicFactory)
    tip = factory.Sequence(lambda n: n * 10)
    lag = factory.Sequence(lambda n: n % 50)


class FindingFactory(DjangoModelFactory):
    class Meta:
        model = models.Finding

    run_id = factory.LazyFunction(uuid.uuid4)
    job = "throughput"
    row_number = factory.Sequence(lambda n: n)
    data = factory.LazyFunction(lambda: {"topic": "orders.events", "events": 100})


class SinkBatchFactory(DjangoModelFactory):
    class Meta:
        model = models.SinkBatch

    sink = "checkpoints/orders"
    batch_id = factory.Sequence(lambda n: n)
    events = 100


class StagedEventFactory(DjangoModelFactory):
    class Meta:
        model = models.StagedEvent

    task_id = factory.LazyFunction(uuid.uuid4)
    topic = "orders.events"
    type = factory.Iterator(TYPES)
    payload = factory.LazyFunction(lambda: order(1))
    metadata = factory.LazyFunction(dict)


class DeadLetterFactory(DjangoModelFactory):
    class Meta:
        model = models.DeadLetter

    class Params:
        number = factory.Sequence(lambda n: n + 1)
        retrying = factory.Trait(
            state=models.DeadLetter.State.RETRYING,
            next_attempt_at=factory.LazyFunction(lambda: timezone.now() + dt.timedelta(minutes=5)),
        )

    topic = factory.SubFactory(TopicFactory)
    group_id = "email-service"
    partition_id = 0
    c_offset = factory.SelfAttribute("number")
    event_id = factory.LazyFunction(uuid.uuid4)
    transaction_id = factory.LazyFunction(uuid.uuid4)
    type = factory.Iterator(TYPES)
    key = factory.LazyAttribute(lambda letter: f"customer-{letter.number % 10}")
    host_id = "shop-1"
    user_id = factory.LazyAttribute(lambda letter: str(letter.number % 100))
    payload = factory.LazyAttribute(lambda letter: order(letter.number))
    metadata = factory.LazyFunction(lambda: {"trace": uuid.uuid4().hex})
    published_at = factory.LazyFunction(timezone.now)
    handler = "shop.subscribers.send_confirmation"
    exception_class = "smtplib.SMTPServerDisconnected"
    exception_message = "Connection unexpectedly closed"
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "shop/subscribers.py", line 12, in send_confirmation\n'
        "    server.send_message(confirmation(event))\n"
        "smtplib.SMTPServerDisconnected: Connection unexpectedly closed\n"
    )


class AttemptFactory(DjangoModelFactory):
    class Meta:
        model = models.Attempt

    letter = factory.SubFactory(DeadLetterFactory)
    attempt = 1
    handler = factory.SelfAttribute("letter.handler")
    exception_class = factory.SelfAttribute("letter.exception_class")
    exception_message = factory.SelfAttribute("letter.exception_message")
    traceback = factory.SelfAttribute("letter.traceback")


class SegmentContentsFactory(DjangoModelFactory):
    class Meta:
        model = models.SegmentContents

    topic = factory.SubFactory(TopicFactory)
    lower = factory.Sequence(lambda n: 2_000_000_000 + n * 1000)
    upper = factory.LazyAttribute(lambda segment: segment.lower + 1000)
    partition_id = 0
    entries = 1000
    first_offset = 1
    last_offset = 1000
    first_message_id = 1
    last_message_id = 1000
    filled_at = factory.LazyFunction(timezone.now)
