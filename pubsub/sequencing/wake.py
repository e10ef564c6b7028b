"""Waking those that wait for new entries: after a pass, the leader notifies the others of what moved, if any wait."""

from collections.abc import Set

from pubsub.db.locks import FOLLOWING

MOVED_CHANNEL = "pubsub_moved"
"""Tells all that wait which partitions have new entries: `1:0,1:3` is the payload. An empty one means any."""

MOVED_SETTING = "pubsub.moved"
"""A setting of the leader's session: the partitions of its last pass, for the statement that notifies."""

# Losing a notification in a crash costs nothing, so its commit need not wait for the disk.
_MOVED = f"current_setting('{MOVED_SETTING}')"
NOTIFY_MOVED = (
    f"SELECT set_config('synchronous_commit', 'off', true), "
    f"pg_notify('{MOVED_CHANNEL}', CASE WHEN length({_MOVED}) < 7000 THEN {_MOVED} ELSE '' END) "
    f"WHERE {_MOVED} <> '' AND NOT pg_try_advisory_xact_lock({FOLLOWING})"
)
"""Wakes those that wait for new entries, if any. A payload must be shorter than 8000 bytes."""

Moved = Set[tuple[int, int]]
"""Partitions that have new entries, each with its topic's id."""


def moved_in(payload: str) -> Moved | None:
    """What a notification tells; None: any partition.

    >>> sorted(moved_in("1:0,12:3"))
    [(1, 0), (12, 3)]
    """
    if not payload:
        return None
    topics_and_partitions = (pair.split(":") for pair in payload.split(","))
    return {(int(topic), int(partition)) for topic, partition in topics_and_partitions}
