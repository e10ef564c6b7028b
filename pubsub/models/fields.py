"""PostgreSQL types that Django has no field for, and functions that fill columns."""

from typing import Any

from django.db import models


class TransactionIdField(models.Field):  # type: ignore[type-arg]
    """A transaction id that never wraps (``xid8``)."""

    def db_type(self, connection: Any) -> str:
        return "xid8"

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> int | None:
        return None if value is None else int(value)


class SnapshotField(models.Field):  # type: ignore[type-arg]
    """Which transactions were over at some moment (``pg_snapshot``), in PostgreSQL's own notation."""

    def db_type(self, connection: Any) -> str:
        return "pg_snapshot"


class RandomUUID(models.Func):
    function = "gen_random_uuid"
    output_field = models.UUIDField()


class CurrentTransaction(models.Func):
    """The number of the top-level transaction, savepoints included."""

    function = "pg_current_xact_id"
    output_field = TransactionIdField()


class TransactionUUID(models.Func):
    """The same for all rows of one top-level transaction, and for no other transaction ever."""

    function = "pubsub_transaction_id_v1"
    output_field = models.UUIDField()


class Octets(models.Func):
    """The length of a text in bytes."""

    function = "octet_length"
    output_field = models.IntegerField()


class ClockTimestamp(models.Func):
    """The time now. ``Now()`` is the time at which the transaction began."""

    function = "clock_timestamp"
    output_field = models.DateTimeField()


__all__ = [
    "ClockTimestamp",
    "CurrentTransaction",
    "Octets",
    "RandomUUID",
    "SnapshotField",
    "TransactionIdField",
    "TransactionUUID",
]
