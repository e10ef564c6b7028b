"""A log with something in it, for the tests to read."""

from collections.abc import Iterable
from typing import Any

from django.db import transaction

from pubsub import publish_many
from pubsub.models import Topic
from pubsub.sequencing.sequencer import sequence
from tests.sessions import wait_until


def make_topic(name: str = "orders", partitions: int = 4) -> int:
    return Topic.objects.create(name=name, total_partitions=partitions).pk


def publish_all(topic: str, events: Iterable[dict[str, Any]]) -> None:
    """One transaction, numbered at once."""
    with transaction.atomic():
        publish_many(topic, events)
    number_all()


def number_all() -> None:
    # A stream that moves its group's cursors has the sequencer's row meanwhile, and for a moment after it was killed.
    wait_until(lambda: sequence("default").outcome != "busy", "no other pass is running")


def orders(count: int, first: int = 1) -> Iterable[dict[str, Any]]:
    return (
        {"payload": {"id": n, "total": n * 1.5}, "type": f"order.{n % 3}", "key": f"customer-{n % 7}"}
        for n in range(first, first + count)
    )
