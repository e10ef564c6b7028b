"""What is known of the whole system at one moment, as plain data."""

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pubsub.retention.plan import Held

XIDS_LIMIT = 1001
"""How far events are counted whose transaction id is still to come."""

HANGING_S = 45
"""A call that takes longer seems to hang. Said before the groups that wait for its worker seem to make no progress."""


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
    rate: float
    """Events numbered per second, over the last minutes."""


@dataclass(frozen=True, kw_only=True)
class PartitionStatus:
    partition: int
    next_offset: int
    lag: int
    """Events that the cursor has not passed, those without an offset included."""
    unnumbered: int = 0
    """Those of them that are published and have no offset yet; counted up to a limit."""
    waiting_since: dt.datetime | None
    """When the first event was published that the cursor has not passed; null if it has passed everything."""
    behind_s: float
    moved_at: dt.datetime

    @property
    def readable(self) -> int:
        """Events that a worker could handle now."""
        return self.lag - self.unnumbered


@dataclass(frozen=True, kw_only=True)
class RecentFailures:
    """How the newest events have gone that a group has passed."""

    in_a_row: int
    """Of so many, up to now, each has failed."""
    newest: int
    """How many of the very newest were looked at."""
    newest_failed: int
    since: dt.datetime | None
    """When the first of these failures was."""
    transactions: int
    """How many publishers' transactions they were in."""
    exception: str
    """The most frequent one."""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The failed event behind which a group with on_failure="stop" has stopped; in several partitions, the first."""

    offset: int
    exception: str
    since: dt.datetime
    until: dt.datetime | None
    """When its next attempt is due; null: an operator has to act."""
    partitions: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class CallInHand:
    """A call of a handler that has taken longer than a second, in a worker that lives."""

    worker_id: str
    host: str
    pid: int
    threads: int
    """How many partitions its worker handles at the same time."""
    group: str
    topic: str
    partition: int
    offset: int
    """Of its event; of the first one, where the handler takes lists."""
    event_id: uuid.UUID
    events: int
    handler: str
    session_pid: int | None
    """The worker's database session in that thread; null where it has none, or where that does not show."""
    is_overdue: bool
    """Whether its timeout is over, and it has not ended."""
    since: dt.datetime
    seconds: float

    @property
    def hangs(self) -> bool:
        """Whether it has taken so long that something seems to be wrong with it."""
        return self.is_overdue or self.seconds > HANGING_S


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
    failed_last: dt.datetime | None = None
    """When the newest of them did."""
    exception: str = ""
    """The most frequent exception of the dead ones."""
    with_exception: int = 0
    """How many of them have it."""
    stop: Stop | None = None
    recent_failures: RecentFailures | None = None
    """Null where there are too few dead letters to look."""
    lag_before: int | None = None
    """The lag some minutes ago, by the samples; null where there are none."""
    has_handler: bool = True
    """Whether the code of this process declares a handler for it."""
    calls: tuple[CallInHand, ...] = ()
    """What its workers have had in hand for long, the oldest first."""
    waits_for: tuple[str, ...] = ()
    """The workers that it waits for, if all that it has hang in calls, its own or other groups'."""
    partitions: tuple[PartitionStatus, ...] = ()

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)

    @property
    def readable(self) -> int:
        """Events that a worker could handle now: the lag without what has no offset yet."""
        return sum(partition.readable for partition in self.partitions)

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
    client: str
    """The address that it connects from; empty for a local one."""
    state: str
    since: dt.datetime | None
    age_s: float | None
    query: str
    bytes: int | None
    """Of WAL that a slot keeps."""
    blocks_sequencer: bool
    blocks_retention: bool

    @property
    def who(self) -> str:
        """The application, the user and the address, as far as they are known."""
        return ", ".join(filter(None, (self.name, self.username, self.client)))


@dataclass(frozen=True, kw_only=True)
class SequencerStatus:
    last_position: int
    is_foreign: bool
    """Whether the database was restored into another cluster: the next pass re-anchors it first."""
    leader_pid: int | None
    """The database session of the process that leads; null if none does."""
    leader_client: str
    leader_seen_at: dt.datetime | None
    """When that session last asked for something. A leader asks at least once per wait period."""
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
    blocked_by: Blocker | None = None
    """The session that keeps it from its work, directly or through others; looked for if it is late."""


@dataclass(frozen=True, kw_only=True)
class SystemStatus:
    taken_at: dt.datetime
    """By the database's clock, like all other times here."""
    topics: tuple[TopicStatus, ...]
    groups: tuple[GroupStatus, ...]
    sequencer: SequencerStatus
    blockers: tuple[Blocker, ...] = field(default=())
    held: tuple[Held, ...] = ()
    """What has expired and stays on disk because a group has not read it."""

    def seconds_since(self, moment: dt.datetime | None) -> float:
        return max(0.0, (self.taken_at - moment).total_seconds()) if moment else 0.0
