"""What the tables need before the first message: done after each `migrate`, and harmless to repeat."""

from typing import Any

from django.db import connections, router

from .conf import conf
from .keeping import storage
from .operating import sync_topics
from .topics import finding


def prepare_after_migrate(*, using: str, **kwargs: Any) -> None:
    from .models import OutboxMessage

    finding.forget_ids()
    if connections[using].vendor == "postgresql" and router.allow_migrate_model(using, OutboxMessage):
        prepare(using)


def prepare(using: str) -> None:
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('log_sequencer') IS NOT NULL")
        if cursor.fetchone() != (True,):
            return  # migrated back to zero, or with --fake
        cursor.execute(
            "INSERT INTO log_sequencer (id, system_identifier) SELECT 1, system_identifier FROM pg_control_system() "
            "ON CONFLICT DO NOTHING"
        )
        cursor.execute(
            "INSERT INTO outbox_topics (id, name, total_partitions) VALUES (1, %s, %s) ON CONFLICT DO NOTHING",
            [finding.DEFAULT_TOPIC, conf().total_partitions],
        )
        # Topic 1 was numbered by hand; the sequence must not come to it again. It never goes back.
        cursor.execute(
            "SELECT setval(numbers, 1) FROM pg_get_serial_sequence('outbox_topics', 'id') AS numbers "
            "WHERE pg_sequence_last_value(numbers::regclass) IS NULL"
        )
        cursor.execute("SELECT to_regclass('operator_events') IS NOT NULL")
        complete = cursor.fetchone() == (True,)
    if complete:
        sync_topics(using=using)
    else:  # migrated to the first migration only
        finding.create_topics(connection, conf().topics)
    storage.make_partitions_ahead(using)
