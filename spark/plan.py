"""How PostgreSQL reads the log. It is set here, because its planner would read all messages for any range.

Messages are stored roughly in log order. If a range has much of what is stored between its ends, both tables are walked
side by side; if it has little, as with a small topic beside large ones, each message is looked up. Neither depends on
statistics, which new tables do not have.
"""

from collections.abc import Mapping

from django.db import connections

from pubsub.db.sql import load

from .ranges import LogRange

_ALWAYS = {
    "jit": "off",
    "enable_hashjoin": "off",
    "enable_material": "off",
    "enable_seqscan": "off",
    "max_parallel_workers_per_gather": "0",
}

BY_INDEX: Mapping[str, str] = {**_ALWAYS, "enable_mergejoin": "off"}
"""Each message is looked up. The first row comes at once, and nothing is kept in memory."""

# 100,000 entries are sorted in 11 MB.
IN_ORDER: Mapping[str, str] = {**_ALWAYS, "enable_mergejoin": "on", "enable_nestloop": "off", "work_mem": "32MB"}
"""The messages between two ids are walked along with the range's entries, which are sorted for that."""

DENSE = 0.25
"""Looking up a message costs about as much as walking past four."""


def is_dense(piece: LogRange, using: str, share: float = 1.0) -> bool:
    """Whether a range, of which only `share` is wanted, has enough of what is stored between its ends."""
    with connections[using].cursor() as cursor:
        cursor.execute(load("spark/positions"), {"topic_id": piece.topic_id, "first": piece.first, "last": piece.last})
        (stored,) = cursor.fetchone()
    return bool(share * piece.count >= DENSE * max(stored, 1))


def message_bounds(piece: LogRange) -> str:
    """The condition that keeps a walk from going further than the range."""
    return load("spark/message_bounds").format(topic_id=piece.topic_id, first=piece.first, last=piece.last)
