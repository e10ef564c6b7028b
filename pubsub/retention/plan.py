"""What retention would do: which segments it drops, which it keeps and why. Pure: plain data in, a plan out.

The log is dropped from its oldest end, a whole segment at a time: a segment is dropped when everything in it has
expired and every subscription that counts has passed it. Messages are dropped with the last entry that needs them.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile


@dataclass(frozen=True, kw_only=True)
class TablePartition:
    """A partition of one of the two big tables."""

    name: str
    lower: int
    upper: int
    bytes: int
    """With its indexes."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A full partition of the log."""

    lower: int
    upper: int
    filled_at: dt.datetime
    expires_at: dt.datetime
    longest_topic: str
    """The topic whose retention keeps it longest."""
    entries: int
    first_message_id: int | None
    last_message_id: int
    log_bytes: int
    message_bytes: int
    """Of the messages that would be dropped with it."""

    @property
    def bytes(self) -> int:
        return self.log_bytes + self.message_bytes

    @property
    def name(self) -> str:
        return f"log_entry_{self.lower}"


@dataclass(frozen=True, kw_only=True)
class Unread:
    """The first event in a partition of a topic that a group has not read."""

    topic_id: int
    topic: str
    group: str
    status: str
    partition: int
    position: int
    offset: int
    max_age: dt.timedelta | None
    max_bytes: int | None

    @property
    def counts(self) -> bool:
        return self.status in ("ACTIVE", "PAUSED")

    def __str__(self) -> str:
        return (
            f"{self.group} on {self.topic}/{self.partition} has not read offset {self.offset} ({self.status.lower()})"
        )


@dataclass(frozen=True, kw_only=True)
class Storage:
    """What is stored, at one moment by the database's clock."""

    now: dt.datetime
    segments: Sequence[Segment]
    """The oldest first."""
    messages: Sequence[TablePartition]
    """The oldest first."""
    last_message_id: int
    """The last id given to a message."""

    @property
    def noted_up_to(self) -> int:
        """The position at which the part of the log outside of noted segments begins."""
        return self.segments[-1].upper if self.segments else 0

    @property
    def expired_up_to(self) -> int:
        """The position after the last expired segment; 0 if none has expired."""
        return max((segment.upper for segment in self.segments if self.has_expired(segment)), default=0)

    def has_expired(self, segment: Segment) -> bool:
        return segment.expires_at <= self.now


@dataclass(frozen=True, kw_only=True)
class Held:
    """What has expired and stays because a group has not read it, whether others keep it too or not."""

    topic: str
    group: str
    bytes: int
    since: dt.datetime
    """When the oldest of it expired."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    storage: Storage
    unread: Sequence[Unread]
    """Where groups have not read everything that has expired."""
    going: Sequence[Segment]
    messages: Sequence[TablePartition]
    """The partitions of messages that no entry needs once the segments are dropped."""

    @property
    def staying(self) -> Sequence[Segment]:
        return self.storage.segments[len(self.going) :]

    @property
    def upper(self) -> int:
        """The position at which the log begins afterwards; 0 if nothing is dropped."""
        return self.going[-1].upper if self.going else 0

    @property
    def missed(self) -> list[Unread]:
        """Where groups miss unread events."""
        return [each for each in self.unread if each.position < self.upper]

    @property
    def names(self) -> list[str]:
        """The partitions of both tables that are dropped."""
        return [*(segment.name for segment in self.going), *(partition.name for partition in self.messages)]

    @property
    def bytes(self) -> int:
        """Their size on disk."""
        return sum(segment.log_bytes for segment in self.going) + sum(partition.bytes for partition in self.messages)

    @property
    def held(self) -> list[Held]:
        """By group, in the order of what they have not read."""
        kept: dict[tuple[str, str], list[Segment]] = {}
        for segment in self.staying:
            if self.storage.has_expired(segment):
                for key in dict.fromkeys(
                    (each.topic, each.group) for each in _blockers(segment, self.storage, self.unread)
                ):
                    kept.setdefault(key, []).append(segment)
        return [
            Held(
                topic=topic,
                group=group,
                bytes=sum(segment.bytes for segment in segments),
                since=min(segment.expires_at for segment in segments),
            )
            for (topic, group), segments in kept.items()
        ]

    @property
    def numbered_below_id(self) -> int:
        """Every smaller id must have been numbered before this is carried out."""
        return max(
            1,
            *(segment.last_message_id + 1 for segment in self.going),
            *(partition.upper for partition in self.messages),
        )

    def why(self, segment: Segment) -> list[str]:
        """Why a segment stays, as text."""
        if not self.storage.has_expired(segment):
            return [
                f"not expired before {segment.expires_at:%Y-%m-%d %H:%M:%S %Z}: retention of {segment.longest_topic}"
            ]
        return [str(each) for each in _blockers(segment, self.storage, self.unread)] or ["an older segment stays"]


def make_plan(
    storage: Storage, unread: Sequence[Unread], *, least_needed_id: int | None, at_most: int | None = None
) -> Plan:
    """Decide what to drop: from the oldest segment up to the first that has not expired or that a group needs.

    `least_needed_id` is the smallest message id that an entry after the segments needs. At most `at_most` segments are
    dropped.
    """

    def may_go(segment: Segment) -> bool:
        return storage.has_expired(segment) and not any(_blockers(segment, storage, unread))

    going = list(takewhile(may_go, storage.segments))[:at_most]
    staying = storage.segments[len(going) :]
    messages = _unneeded(storage, staying, least_needed_id) if going else []
    return Plan(storage=storage, unread=unread, going=going, messages=messages)


def _blockers(segment: Segment, storage: Storage, unread: Iterable[Unread]) -> Iterator[Unread]:
    """What keeps an expired segment: groups that count, have not read all of it, and are within their topics' caps."""
    kept = [each for each in storage.segments if each.lower >= segment.lower and storage.has_expired(each)]
    kept_bytes = sum(each.bytes for each in kept)
    for each in unread:
        too_old = each.max_age is not None and storage.now - segment.filled_at >= each.max_age
        too_much = each.max_bytes is not None and kept_bytes > each.max_bytes
        if each.counts and each.position < segment.upper and not too_old and not too_much:
            yield each


def _unneeded(storage: Storage, staying: Iterable[Segment], least_needed_id: int | None) -> list[TablePartition]:
    """The partitions of messages whose ids are no longer needed, and to which none is added any more."""
    needed = [least_needed_id, *(segment.first_message_id for segment in staying)]
    end = min([storage.last_message_id + 1, *(number for number in needed if number is not None)])
    return [partition for partition in storage.messages if partition.upper <= end]
