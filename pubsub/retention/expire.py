"""Temporary subscriptions: kept while they are in use, removed after they have been idle for too long."""

import logging

from pubsub.db.sql import load
from pubsub.db.transactions import read_committed

logger = logging.getLogger(__name__)


def expire_idle(using: str) -> list[tuple[str, str]]:
    """Remove subscriptions that have been idle for longer than their ``expires_after``. Returns topics and groups.

    Safe to repeat, and to run twice at once. A group that subscribes again later is new, and begins where it declares.

    >>> expire_idle("default")
    []
    """
    with read_committed(using) as cursor:
        cursor.execute(load("retention/expire_idle"))
        expired = [(topic, group) for topic, group in cursor.fetchall()]
    for topic, group in expired:
        logger.info(
            "the subscription of group %s to topic %s has expired", group, topic, extra={"group": group, "topic": topic}
        )
    return expired
