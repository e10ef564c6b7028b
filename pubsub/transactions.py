"""Transactions that are right whatever the database's default isolation is."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction


@contextmanager
def read_committed(using: str) -> Iterator[Any]:
    """A transaction, and its cursor, in which each statement has a snapshot of its own."""
    connection = connections[using]
    outermost = not connection.in_atomic_block
    with transaction.atomic(using=using), connection.cursor() as cursor:
        if outermost:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        yield cursor


def make_hooks_robust(connection: Any) -> None:
    """What handlers have registered for after the commit shall not stand in one another's way: a failure is logged."""
    if connection.run_on_commit:
        connection.run_on_commit = [(savepoints, hook, True) for savepoints, hook, _ in connection.run_on_commit]
