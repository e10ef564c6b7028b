"""What the streams' tests publish: committed, and numbered at once."""

from typing import Any

from django.db import connection, transaction

from pubsub import publish
from pubsub.sequencing.sequencer import sequence


def say(*payloads: Any, topic: str = "default", **options: Any) -> None:
    """Each in a transaction of its own."""
    for payload in payloads:
        with transaction.atomic():
            publish(topic, payload, **options)
    sequence("default")


def say_together(*payloads: Any, topic: str = "default", **options: Any) -> None:
    """All in one transaction."""
    with transaction.atomic():
        for payload in payloads:
            publish(topic, payload, **options)
    sequence("default")


def store(json_text: str) -> None:
    """Publishes to `default` what publish() would refuse."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO outbox_message_t (payload) VALUES (%s::jsonb)", [json_text])
    sequence("default")
