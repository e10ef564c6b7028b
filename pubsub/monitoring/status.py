"""The status of the whole system, worked out in one place: for the admin, `pubsub_status` and metrics.

A handful of statements, however many events there are: nothing is counted that could be large.

>>> status("default").topics[0].name
'default'
"""

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pubsub.db.locks import FAMILY
from pubsub.db.sql import load
from pubsub.db.transactions import run_uncompiled

RATE_WINDOW = dt.timedelta(minutes=5)
"""The time over which a publish rate is averaged."""

OLD_TRANSACTION = dt.timedelta(seconds=30)
"""Transactions open for longer are reported."""

LETTERS_LIMIT = 1001
"""How far the open dead letters of a group are counted."""

XIDS_LIMIT = 1001
"""How far events are counted whose transaction id is still to come."""

NEWEST_MESSAGES = 50
"""How many messages the size of an event is averaged over."""

BYTES_BESIDE = 240
"""What a message takes besides its own text: headers, ids, its entry in the log, and its share of the indexes."""


@dataclass(frozen=True, kw_only=True)
class TopicStatus:
    id: int
    name: str
    semantics: str
    total_partitions: int
    retention: dt.timedelta
    zero_subscribers: str
    tip: int
    """The last offset; 0 before the first message."""
    kept: int
    """How many events retention has not dropped."""
    bytes: int
    """What they take on disk, estimated: topics share their tables."""
    published_at: dt.datetime | None
    """The newest message's time; null where there is none."""
    rate: float | None
    """Events published per second, over the last minutes; null while too little is known."""


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    partition: int
    next_offset: int
    lag: int
    waiting_since: dt.datetime | None
    """When the first event was published that the cursor has not passed; null if it has passed everything."""
    behind_s: float
    moved_at: dt.datetime


@dataclass(frozen=True, kw_only=True)
class GroupStatus:
    """A group on one topic."""

    subscription_id: int
    topic: str
    group: str
    status: str
    status_reason: str
    status_changed_at: dt.datetime
    missed: Mapping[str, Any]
    """What retention dropped before the group read it: partition → [first offset, last offset]."""
    on_failure: str
    delivery: str
    members: int
    """Members that have sent a heartbeat within the heartbeat timeout."""
    silent: int
    """Members that have not, and have not left either."""
    heard_at: dt.datetime | None
    dead: int
    """Dead letters that wait for an operator; at least so many, if `letters_bounded`."""
    retrying: int
    parked: int
    letters_bounded: bool
    failed_since: dt.datetime | None
    """When the oldest of the counted dead letters failed."""
    partitions: tuple[PartitionStatus, ...] = ()

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)

    @property
    def behind_s(self) -> float:
        """The age of the oldest event that has not been passed, in seconds."""
        return max((partition.behind_s for partition in self.partitions), default=0.0)

    @property
    def waiting_since(self) -> dt.datetime | None:
        return min((p.waiting_since for p in self.partitions if p.waiting_since), default=None)

    @property
    def moved_at(self) -> dt.datetime | None:
        return max((partition.moved_at for partition in self.partitions), default=None)


@dataclass(frozen=True, kw_only=True)
class Blocker:
    """Something outside this app that others may have to wait for."""

    kind: str
    """transaction, prepared or slot."""
    pid: int | None
    name: str
    """The application, the prepared transaction's id, or the slot."""
    username: str
    state: str
    since: dt.datetime | None
    age_s: float | None
    query: str
    bytes: int | None
    """Of WAL that a slot keeps."""
    blocks_sequencer: bool
    blocks_retention: bool


@dataclass(frozen=True, kw_only=True)
class SequencerStatus:
    last_position: int
    is_foreign: bool
    """Whether the database was restored into another cluster: the next pass re-anchors it first."""
    leader_pid: int | None
    """The database session of the process that leads; null if none does."""
    waiting_since: dt.datetime | None
    """When the oldest message was published that is committed and has no offset yet."""
    overdue_since: dt.datetime | None
    """When the first delayed message was due that has not been moved to the log."""
    bytes: int
    """Of the log and its messages on disk, all topics together, indexes included."""
    xids_to_come: int = 0
    """Events whose transaction id this cluster has not reached, up to a limit: they wait for it."""
    overflowing: Sequence[str] = ()
    """Tables with rows in their default segment, where retention cannot drop them, beside ordinary segments."""


@dataclass(frozen=True, kw_only=True)
class SystemStatus:
    taken_at: dt.datetime
    """By the database's clock, like all other times here."""
    topics: tuple[TopicStatus, ...]
    groups: tuple[GroupStatus, ...]
    sequencer: SequencerStatus
    blockers: tuple[Blocker, ...] = field(default=())

    def seconds_since(self, moment: dt.datetime | None) -> float:
        return max(0.0, (self.taken_at - moment).total_seconds()) if moment else 0.0


def status(using: str) -> SystemStatus:
    """The status now, in five statements."""
    sequencer = next(_rows(using, "status_sequencer", family=FAMILY, limit=XIDS_LIMIT))
    taken_at: dt.datetime = sequencer.pop("taken_at")
    sequencer["bytes"] = int(sequencer["bytes"] or 0)
    partitions = partitions_by_group(using, taken_at)
    return SystemStatus(
        taken_at=taken_at,
        topics=tuple(
            _topic(row)
            for row in _rows(
                using, "status_topics", bytes_beside=BYTES_BESIDE, newest=NEWEST_MESSAGES, window=RATE_WINDOW
            )
        ),
        groups=tuple(
            _group(row, partitions.get((row["topic"], row["group_id"]), ()))
            for row in _rows(using, "status_groups", limit=LETTERS_LIMIT)
        ),
        sequencer=SequencerStatus(**sequencer),
        blockers=tuple(
            Blocker(age_s=(taken_at - row["since"]).total_seconds() if row["since"] else None, **row)
            for row in _rows(using, "status_blockers", older=OLD_TRANSACTION)
        ),
    )


def partitions_by_group(using: str, now: dt.datetime) -> dict[tuple[str, str], tuple[PartitionStatus, ...]]:
    """The cursors of each group, by topic and group."""
    found: dict[tuple[str, str], list[PartitionStatus]] = {}
    for row in _rows(using, "status_partitions"):
        # A cursor that has passed everything waits for nothing, though events for other groups may lie before it.
        waiting_since = row["waiting_since"] if row["lag"] else None
        found.setdefault((row["topic"], row["group_id"]), []).append(
            PartitionStatus(
                partition=row["partition_id"],
                next_offset=row["next_offset"],
                lag=row["lag"],
                waiting_since=waiting_since,
                behind_s=max(0.0, (now - waiting_since).total_seconds()) if waiting_since else 0.0,
                moved_at=row["updated_at"],
            )
        )
    return {key: tuple(partitions) for key, partitions in found.items()}


def _topic(row: dict[str, Any]) -> TopicStatus:
    seconds, before = row.pop("seconds_since"), row.pop("tip_before")
    rate = (row["tip"] - before) / seconds if seconds and seconds >= 1 else None
    return TopicStatus(rate=rate, bytes=row["kept"] * row.pop("event_bytes"), **row)


def _group(row: dict[str, Any], partitions: tuple[PartitionStatus, ...]) -> GroupStatus:
    missed = row["missed"]
    return GroupStatus(
        subscription_id=row["id"],
        topic=row["topic"],
        group=row["group_id"],
        missed=(json.loads(missed) if isinstance(missed, str) else missed) or {},
        letters_bounded=row["open"] >= LETTERS_LIMIT,
        failed_since=row["since"],
        partitions=partitions,
        **{
            name: row[name]
            for name in (
                "status",
                "status_reason",
                "status_changed_at",
                "on_failure",
                "delivery",
                "members",
                "silent",
                "heard_at",
                "dead",
                "retrying",
                "parked",
            )
        },
    )


def _rows(using: str, statement: str, **parameters: Any) -> Iterator[dict[str, Any]]:
    names, rows = run_uncompiled(using, load(f"monitoring/{statement}"), parameters)
    return iter([dict(zip(names, row, strict=True)) for row in rows])
