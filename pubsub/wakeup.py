"""Telling whoever sequences that there is something to do."""

from django.db import connections, transaction

HINT_CHANNEL = "event_channel"
"""Notified after a commit that published; whoever sequences listens."""


def after_commit(alias: str) -> None:
    """Registers one hint per transaction, however many events it publishes."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        return  # manual transaction management has no commit hooks; polling finds the event
    # Django replaces the list of hooks when the transaction ends or a savepoint is undone, and only then.
    if getattr(connection, "_pubsub_hooks", None) is not connection.run_on_commit:
        transaction.on_commit(lambda: hint(alias), using=alias, robust=True)
        connection._pubsub_hooks = connection.run_on_commit


def hint(alias: str) -> None:
    """Notifies in autocommit: no transaction of the caller's holds PostgreSQL's notify lock."""
    with connections[alias].cursor() as cursor:
        cursor.execute(f"NOTIFY {HINT_CHANNEL}")
