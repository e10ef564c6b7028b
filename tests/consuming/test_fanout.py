"""What many groups cost: the log is written once, however many read it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection, transaction

from pubsub import publish_many
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.register import register_subscription
from pubsub.topics.registry import forget_ids
from tests.handlers import declare, drain
from tests.sessions import connected_to

from .helpers import lag, topic_of

pytestmark = pytest.mark.django_db(transaction=True)

EVENTS, AT_ONCE = 4000, 50


@contextmanager
def on(url: str) -> Iterator[None]:
    """This process on a server of its own, where no other process writes."""
    parts = urlsplit(url)
    there = {"HOST": parts.hostname, "PORT": parts.port, "USER": parts.username, "NAME": parts.path.strip("/")}
    there["PASSWORD"] = parts.password or ""
    try:
        with connected_to(**there):
            forget_ids()
            yield
    finally:
        forget_ids()


def asked(statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def wal_per_event(topic: str, groups: int) -> float:
    """Of publishing, numbering and handling, one kilobyte an event."""
    topic_of(4, topic)
    handled = []
    declared = [declare(handled.append, topic=topic, group=f"{topic}-{n}") for n in range(groups)]
    for declaration in declared:
        register_subscription(declaration, using="default")
    asked("CHECKPOINT")
    before = asked("SELECT pg_current_wal_insert_lsn()")
    for first in range(0, EVENTS, AT_ONCE):
        with transaction.atomic():
            publish_many(topic, ({"payload": {"text": "x" * 1000}, "key": first + n} for n in range(AT_ONCE)))
    while sequence("default").messages:
        pass
    drain(*declared)
    assert len(handled) == groups * EVENTS
    assert lag() == 0
    return float(asked(f"SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{before}')")) / EVENTS


def test_the_wal_does_not_grow_with_the_groups(server: Any, record_property: Any) -> None:
    with on(server.url()):
        # Whole pages come at random, with checkpoints.
        asked("ALTER SYSTEM SET full_page_writes = off")
        asked("ALTER SYSTEM SET autovacuum = off")
        asked("SELECT pg_reload_conf()")
        wal_per_event("warm", 1)
        one, twenty = wal_per_event("one", 1), wal_per_event("twenty", 20)
    record_property("wal_bytes_per_event", {"1 group": round(one), "20 groups": round(twenty)})
    assert twenty < 1.05 * one
