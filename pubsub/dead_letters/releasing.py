"""Letting parked events go when what they wait for is done with: handled after all, or given up."""

from collections.abc import Sequence
from typing import Any

from django.db import connections

from pubsub.sql import load


def release_followers(cursor: Any, group: str, topic_id: int, keys: Sequence[str] | None = None) -> int:
    """Lets parked events go before which nothing waits any more. Returns how many. None: whatever their keys are."""
    cursor.execute(load("release_followers"), {"group_id": group, "topic_id": topic_id, "keys": keys})
    return int(cursor.rowcount)


def release_stranded(using: str) -> int:
    """Lets parked events go that nobody has let go: the last one before them may have been handled elsewhere meanwhile.

    >>> release_stranded("default")
    0
    """
    with connections[using].cursor() as cursor:
        cursor.execute(load("groups_with_parked_letters"))
        return sum(release_followers(cursor, group, topic_id) for group, topic_id in cursor.fetchall())
