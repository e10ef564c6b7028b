"""Dry runs: everything is checked and done as usual, then undone."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from pubsub.db.transactions import read_committed


@contextmanager
def dry_run(*, using: str) -> Iterator[None]:
    """Undoes at the end what was done inside. Locks are held until then.

    >>> from pubsub.control import create_topic
    >>> from pubsub.models import Topic
    >>> with dry_run(using="default"):
    ...     topic = create_topic("doctest.tried", actor="doctest", using="default")
    >>> Topic.objects.filter(name="doctest.tried").exists()
    False
    """
    with read_committed(using):
        yield
        transaction.set_rollback(True, using=using)
