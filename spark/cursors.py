"""Moving the cursors of the groups of archives and streams. It runs beside Spark's driver, without Django."""

from collections.abc import Mapping
from typing import Any

from pubsub.db.locks import lock_sequencer
from pubsub.db.sql import load

SUBSCRIBE = load("spark/subscribe")
MOVE = load("spark/move_cursors")


def move_group(cursor: Any, group: str, offsets: Mapping[int, int], *, subscribe: bool = False) -> None:
    """Moves the group's cursors to the next offset of each topic id, never back, in the caller's transaction.

    With ``subscribe``, a missing subscription is made first.
    """
    # No pass of the sequencer comes between, so that the offset means one moment in all partitions.
    lock_sequencer(cursor)
    for topic_id, next_offset in offsets.items():
        parameters = {"group": group, "topic_id": topic_id, "next_offset": next_offset}
        if subscribe:
            cursor.execute(SUBSCRIBE, parameters)
        cursor.execute(MOVE, parameters)
