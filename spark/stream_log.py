"""What a stream reads from the log and writes to it, on a connection of its own. It runs beside Spark's driver.

There is no Django: the address comes with the code.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pubsub.db.sql import load

from .cursors import move_group
from .errors import InvalidRead, RangeNotThere

STATE = load("spark/stream_state")
GROUP = load("spark/stream_group")


@dataclass(frozen=True, kw_only=True)
class TopicState:
    """What the log holds of a topic, and the event before the requested offset."""

    topic_id: int
    oldest: int
    next_offset: int
    event_before: str | None


class StreamLog:
    """The log as one stream sees it. A lost connection is replaced at the next query."""

    def __init__(self, address: Mapping[str, Any]) -> None:
        self.address = dict(address)
        self._connection: Any = None

    def states(self, offsets: Mapping[str, int]) -> dict[str, TopicState]:
        """The state of each topic at its offset; raises if a topic does not exist."""
        rows = self._ask(STATE, {"topics": list(offsets), "offsets": list(offsets.values())})
        missing = [row[0] for row in rows if row[1] is None]
        if missing:
            raise InvalidRead(f'There is no topic "{missing[0]}". Topics are matched exactly; see manage.py migrate.')
        return {
            row[0]: TopicState(topic_id=row[1], oldest=row[2], next_offset=row[3], event_before=row[4]) for row in rows
        }

    def group_state(self, group: str, topic_id: int) -> tuple[str, int | None] | None:
        """The status of the group's subscription and the first offset it has not passed; None if there is none."""
        rows = self._ask(GROUP, {"group": group, "topic_id": topic_id})
        return (rows[0][0], rows[0][1]) if rows else None

    def move_group(self, group: str, offsets: Mapping[int, int], *, subscribe: bool = False) -> None:
        """Moves the group's cursors to the next offset of each topic id, all in one transaction."""
        connection = self._connected()
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE")
            move_group(cursor, group, offsets, subscribe=subscribe)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Any:
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(**self.address, autocommit=True)
        return self._connection

    def _ask(self, query: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        import psycopg

        for last in (False, True):
            try:
                return self._connected().execute(query, parameters).fetchall()  # type: ignore[no-any-return]
            except psycopg.OperationalError:
                # The database may have been restarted since the last trigger.
                with contextlib.suppress(psycopg.Error):
                    self.close()
                if last:
                    raise
        raise AssertionError


def check_offset(topic: str, offset: int, event: str | None, state: TopicState, *, may_skip: bool) -> int:
    """The offset to continue from: the checkpoint's, if it was written for this log."""
    if offset > state.next_offset or (
        event and offset > state.oldest and state.event_before and state.event_before != event
    ):
        difference = (
            f"the log ends at {state.next_offset - 1}"
            if offset > state.next_offset
            else f"offset {offset - 1} is event {state.event_before}, and was {event} when it was read"
        )
        raise RangeNotThere(
            f'The stream is at offset {offset} of topic "{topic}", but {difference}: the database is not the one '
            f"that the checkpoint was written for, or an older copy of it. Begin with a new checkpoint, and "
            f"startingOffsets at the offset where the two differ."
        )
    if offset < state.oldest:
        if not may_skip:
            raise RangeNotThere(
                f'The stream is at offset {offset} of topic "{topic}", but the log begins at {state.oldest}: '
                f"retention has dropped {state.oldest - offset} unread events. failOnDataLoss=false continues without "
                f"them; the option group prevents this."
            )
        return state.oldest
    return offset
