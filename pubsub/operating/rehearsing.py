"""Trying something out: everything is checked and worked out as in earnest, and nothing stays."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from pubsub.transactions import read_committed


@contextmanager
def rehearsal(using: str, *, really: bool = False) -> Iterator[None]:
    """What is done inside is undone at the end, unless it is done ``really``. Locks are held as long as it lasts.

    >>> from pubsub.operating import create_topic
    >>> from pubsub.models import Topic
    >>> with rehearsal("default"):
    ...     topic = create_topic("doctest.rehearsed", actor="doctest", using="default")
    >>> Topic.objects.filter(name="doctest.rehearsed").exists()
    False
    """
    with read_committed(using):
        yield
        if not really:
            transaction.set_rollback(True, using=using)
