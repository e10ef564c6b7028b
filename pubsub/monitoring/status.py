"""The status of the whole system, worked out in one place: for the admin, `pubsub_status` and metrics.

A handful of statements, however many events there are: nothing is counted that could be large.

>>> status("default").topics[0].name
'default'
"""

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import Any

from django.db import connections

from pubsub.db.locks import FAMILY
from pubsub.db.sql import load
from pubsub.db.transactions import run_uncompiled
from pubsub.retention.plan import Held, make_plan
from pubsub.retention.segments import find_unread, read_storage
from pubsub.subscriptions import declare

from .calls import calls_in_hand, waiting_for
from .facts import (
    XIDS_LIMIT,
    Blocker,
    CallInHand,
    GroupStatus,
    PartitionStatus,
    RecentFailures,
    SequencerStatus,
    Stop,
    SystemStatus,
    TopicStatus,
)
from .recent_failures import recent_failures

RATE_WINDOW = dt.timedelta(minutes=5)
"""The time over which a publish rate is averaged."""

OLD_TRANSACTION = dt.timedelta(seconds=30)
"""Transactions open for longer are reported."""

NUMBERING_LATE = dt.timedelta(seconds=10)
"""While a consumer runs, a published event has its offset within milliseconds."""

LETTERS_LIMIT = 1001
"""How far the open dead letters of a group are counted."""

NEWEST_MESSAGES = 50
"""How many messages the size of an event is averaged over."""

UNNUMBERED_LIMIT = 10_001
"""How far events without an offset are counted, all topics together."""

BYTES_BESIDE = 240
"""What a message takes besides its own text: headers, ids, its entry in the log, and its share of the indexes."""


def status(using: str) -> SystemStatus:
    """The status now, in six statements; another one looks at groups that have failed on several events, one at what
    blocks the sequencer where it is late, one at who waits for a call that takes long, and some at what groups keep on
    disk that has expired."""
    sequencer = next(_rows(using, "status_sequencer", family=FAMILY, limit=XIDS_LIMIT))
    taken_at: dt.datetime = sequencer.pop("taken_at")
    has_expired = sequencer.pop("has_expired")
    sequencer["bytes"] = int(sequencer["bytes"] or 0)
    waiting_since = sequencer["waiting_since"]
    is_late = waiting_since is not None and taken_at - waiting_since > NUMBERING_LATE
    partitions = partitions_by_group(using, taken_at)
    topics = list(_rows(using, "status_topics", bytes_beside=BYTES_BESIDE, newest=NEWEST_MESSAGES, window=RATE_WINDOW))
    return SystemStatus(
        taken_at=taken_at,
        topics=tuple(_topic(row) for row in topics),
        groups=_groups(using, partitions, {row["name"]: row["id"] for row in topics}),
        sequencer=SequencerStatus(
            blocked_by=_sequencer_blocker(using, taken_at, sequencer["leader_pid"]) if is_late else None, **sequencer
        ),
        held=_held(using) if has_expired else (),
        blockers=tuple(_blocker(row, taken_at) for row in _rows(using, "status_blockers", older=OLD_TRANSACTION)),
    )


def partitions_by_group(using: str, now: dt.datetime) -> dict[tuple[str, str], tuple[PartitionStatus, ...]]:
    """The cursors of each group, by topic and group."""
    found: dict[tuple[str, str], list[PartitionStatus]] = {}
    for row in _rows(using, "status_partitions", limit=UNNUMBERED_LIMIT):
        waiting_since = row["waiting_since"]
        found.setdefault((row["topic"], row["group_id"]), []).append(
            PartitionStatus(
                partition=row["partition_id"],
                next_offset=row["next_offset"],
                lag=row["lag"] + row["unnumbered"],
                unnumbered=row["unnumbered"],
                waiting_since=waiting_since,
                behind_s=max(0.0, (now - waiting_since).total_seconds()) if waiting_since else 0.0,
                moved_at=row["updated_at"],
            )
        )
    return {key: tuple(partitions) for key, partitions in found.items()}


def _topic(row: dict[str, Any]) -> TopicStatus:
    rate = row.pop("recent") / max(1.0, row.pop("seconds"))
    return TopicStatus(rate=rate, bytes=row["kept"] * row.pop("event_bytes"), **row)


def _held(using: str) -> tuple[Held, ...]:
    """By retention's own plan. Which messages go with the log does not matter here, and would take long to find."""
    with connections[using].cursor() as cursor:
        storage = read_storage(cursor)
        return tuple(make_plan(storage, find_unread(cursor, storage), least_needed_id=None).held)


def _blocker(row: dict[str, Any], now: dt.datetime) -> Blocker:
    return Blocker(age_s=(now - row["since"]).total_seconds() if row["since"] else None, **row)


def _sequencer_blocker(using: str, now: dt.datetime, leader: int | None) -> Blocker | None:
    rows = _rows(using, "sequencer_blocker", leader=leader, older=NUMBERING_LATE / 2)
    return next((_blocker(row, now) for row in rows), None)


def _groups(
    using: str, partitions: Mapping[tuple[str, str], tuple[PartitionStatus, ...]], topic_ids: Mapping[str, int]
) -> tuple[GroupStatus, ...]:
    rows = list(_rows(using, "status_groups", limit=LETTERS_LIMIT, window=RATE_WINDOW))
    failures = recent_failures(using, rows, topic_ids)
    calls = calls_in_hand(using)
    waiting = waiting_for(using, calls)
    return tuple(
        _group(
            row,
            failures.get(row["id"]),
            partitions=partitions.get((row["topic"], row["group_id"]), ()),
            calls=tuple(call for call in calls if (call.topic, call.group) == (row["topic"], row["group_id"])),
            waits_for=waiting.get((row["topic"], row["group_id"]), ()),
        )
        for row in rows
    )


COPIED = (
    *(
        "topic",
        "status",
        "status_reason",
        "status_changed_at",
        "on_failure",
        "delivery",
        "members",
        "silent",
        "heard_at",
    ),
    *("dead", "retrying", "parked", "failed_since", "failed_last", "exception", "with_exception", "lag_before"),
)


def _group(row: dict[str, Any], failures: RecentFailures | None, **seen: Any) -> GroupStatus:
    missed = row["missed"]
    return GroupStatus(
        subscription_id=row["id"],
        group=row["group_id"],
        missed=(json.loads(missed) if isinstance(missed, str) else missed) or {},
        letters_bounded=row["open"] >= LETTERS_LIMIT,
        stop=Stop(
            offset=row["stop_offset"],
            exception=row["stop_exception"],
            since=row["stop_since"],
            until=row["stop_until"],
            partitions=tuple(row["stop_partitions"]),
        )
        if row["stop_offset"]
        else None,
        recent_failures=failures,
        has_handler=declare.registry.has(row["topic"], row["group_id"]),
        **seen,
        **{name: row[name] for name in COPIED},
    )


def _rows(using: str, statement: str, **parameters: Any) -> Iterator[dict[str, Any]]:
    names, rows = run_uncompiled(using, load(f"monitoring/{statement}"), parameters)
    return iter([dict(zip(names, row, strict=True)) for row in rows])


__all__ = [
    "Blocker",
    "CallInHand",
    "GroupStatus",
    "PartitionStatus",
    "RecentFailures",
    "SequencerStatus",
    "Stop",
    "SystemStatus",
    "TopicStatus",
    "partitions_by_group",
    "status",
]
