"""What the tables need before the first message: done after each `migrate`, and harmless to repeat."""

from typing import Any

from django.db import connections, router

from .conf import conf
from .control import sync_topics
from .retention import partitions
from .topics import registry
from .topics.names import DEFAULT_TOPIC


def prepare_after_migrate(*, using: str, **kwargs: Any) -> None:
    from .models import OutboxMessage

    registry.forget_ids()
    if connections[using].vendor == "postgresql" and router.allow_migrate_model(using, OutboxMessage):
        prepare(using)


def prepare(using: str) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT to_regclass('log_sequencer') IS NOT NULL")
        if cursor.fetchone() != (True,):
            return  # migrated back to zero, or with --fake
        cursor.execute(
            "INSERT INTO log_sequencer (id, system_identifier) SELECT 1, system_identifier FROM pg_control_system() "
            "ON CONFLICT DO NOTHING"
        )
        cursor.execute(
            "INSERT INTO outbox_topics (id, name, total_partitions) VALUES (1, %s, %s) ON CONFLICT DO NOTHING",
            [DEFAULT_TOPIC, conf().partitions],
        )
        # Topic 1 was numbered by hand; the sequence must not come to it again. It never goes back.
        cursor.execute(
            "SELECT setval(numbers, 1) FROM pg_get_serial_sequence('outbox_topics', 'id') AS numbers "
            "WHERE pg_sequence_last_value(numbers::regclass) IS NULL"
        )
    sync_topics(using=using)
    partitions.make_partitions_ahead(using)
