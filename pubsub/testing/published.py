"""The events that a test has published, as the database holds them."""

import datetime as dt
import uuid
from dataclasses import dataclass

from django.db import connections

from pubsub.db.sql import load
from pubsub.db.transactions import in_atomic_block
from pubsub.events import NAMES, Entry, Event, columns_of

BEFORE_ALL = uuid.UUID(int=0)
"""Older than any transaction's id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedEvent(Event):
    """An event that no group has been given yet: `group` is empty. Until it is committed, its offset is a forecast."""

    to_group: str | None
    deliver_at: dt.datetime | None


def transaction_under_way(using: str) -> uuid.UUID:
    """The id of the transaction that is open; where none is, one that is older than any."""
    connection = connections[using]
    if not in_atomic_block(connection):
        return BEFORE_ALL
    with connection.cursor() as cursor:
        cursor.execute("SELECT pubsub_transaction_id_v1()")
        (transaction_id,) = cursor.fetchone()
    return uuid.UUID(str(transaction_id))


def published_since(transaction_id: uuid.UUID, using: str) -> list[PublishedEvent]:
    """What was published since a transaction began, in the order of delivery; what is delayed comes last."""
    with connections[using].cursor() as cursor:
        cursor.execute(load("testing/published", names=NAMES, columns=columns_of("message")), {"since": transaction_id})
        return [
            PublishedEvent(**vars(Entry(*columns).as_event(name, partition)), to_group=to_group, deliver_at=deliver_at)
            for name, partition, to_group, deliver_at, *columns in cursor.fetchall()
        ]
