"""Dedup keys: the first event of a key stands for all that follow it within a window of time."""

import uuid
from typing import Any

from pubsub.conf import conf
from pubsub.db.sql import load


def first_of_key(connection: Any, topic_number: int, dedup_key: str, event_id: uuid.UUID) -> uuid.UUID:
    """The event that has the key: this one, or an earlier one. Waits for an open transaction that took it first."""
    parameters = {
        "topic_id": topic_number,
        "dedup_key": dedup_key,
        "event_id": event_id,
        "window": conf().dedup_window_s,
    }
    with connection.cursor() as cursor:
        while True:
            for statement in (load("publishing/find_dedup_key"), load("publishing/take_dedup_key")):
                cursor.execute(statement, parameters)
                found = cursor.fetchone()
                if found:
                    return uuid.UUID(str(found[0]))
            # The key was taken between the two statements: the first one finds it now.
