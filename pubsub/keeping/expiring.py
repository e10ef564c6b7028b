"""Temporary subscriptions: they are kept while they are used, and go when nobody has used them for a while."""

import logging

from pubsub.sql import load
from pubsub.transactions import read_committed

logger = logging.getLogger("pubsub.expiring")


def expire_idle(using: str) -> list[tuple[str, str]]:
    """Removes subscriptions that have been idle for longer than their ``expires_after``. Returns topics and groups.

    Harmless to repeat, or to do twice at once. A group that comes back later is a new one, and begins as it declares.

    >>> expire_idle("default")
    []
    """
    with read_committed(using) as cursor:
        cursor.execute(load("expire_idle"))
        expired = [(topic, group) for topic, group in cursor.fetchall()]
    for topic, group in expired:
        logger.info(
            "the subscription of group %s to topic %s has expired", group, topic, extra={"group": group, "topic": topic}
        )
    return expired
