"""Retention: which storage partitions may go, what keeps the others, and letting go.

The log is retired from its oldest end, by whole storage partitions: one goes when everything in it has expired and
every subscription that counts has passed it. Messages go with the last entry that needs them.
"""

import datetime as dt
import json
import logging
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import OperationalError, connections

from pubsub.observing.journal import record
from pubsub.sql import load
from pubsub.transactions import read_committed

from .dropping import detach, drop_detached, is_locked, lock_out_everybody, note_full_segments

logger = logging.getLogger("pubsub.retention")

LOCK_TIMEOUT_MS = 100
"""How long publishers may be kept waiting for a moment in which nobody uses the tables, at a time."""

ATTEMPTS = 3
"""Such moments that are waited for before it is left for the next time."""

AT_ONCE = 8
"""Storage partitions of the log that go in one transaction: more would lock others out for longer."""

ACTOR = "retention"

Missed = dict[str, list[int]]
"""The first and the last offset that were lost, by partition."""


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


@dataclass(kw_only=True)
class Segment:
    """A full storage partition of the log."""

    lower: int
    upper: int
    filled_at: dt.datetime
    expires_at: dt.datetime
    longest_topic: str
    """The topic through which it expires last."""
    entries: int
    first_message_id: int | None
    last_message_id: int
    asked_at: dt.datetime
    """The database's time of all this."""
    bytes: int = 0
    holders: list[Unread] = field(default_factory=list)
    goes: bool = False

    @property
    def expired(self) -> bool:
        return self.expires_at <= self.asked_at

    @property
    def name(self) -> str:
        return f"log_entry_{self.lower}"

    @property
    def why(self) -> list[str]:
        """Why it stays, for people; nothing if it goes."""
        if self.goes:
            return []
        if not self.expired:
            return [f"not expired before {self.expires_at:%Y-%m-%d %H:%M:%S %Z}: retention of {self.longest_topic}"]
        return [
            f"{each.group} on {each.topic}/{each.partition} has not read offset {each.offset} ({each.status.lower()})"
            for each in self.holders
        ] or ["an older partition stays"]


@dataclass(frozen=True, kw_only=True)
class Session:
    """Somebody who is using the tables at the moment."""

    pid: int
    user: str
    application: str
    state: str
    since: dt.datetime | None
    query: str


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What would happen to the log's storage now."""

    segments: list[Segment]
    messages: list[str]
    """Partitions of the messages that go with the segments that go."""
    unread: list[Unread]
    sessions: list[Session]

    @property
    def going(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.goes]


@dataclass(frozen=True, kw_only=True)
class Retired:
    """What has been let go."""

    partitions: tuple[str, ...] = ()
    entries: int = 0
    bytes: int = 0
    missed: dict[str, Missed] = field(default_factory=dict)
    """Offsets that groups lost unread, by "group on topic" and partition."""
    locked_ms: float = 0
    """For how long nobody else could use the tables."""
    blocked: bool = False
    """Whether more would have gone, had nobody used the tables all the time."""


def examine(using: str, sessions: bool = True) -> Outlook:
    """Says what may go, and of the rest why it stays. Changes nothing.

    >>> examine("default").going
    []
    """
    with connections[using].cursor() as cursor:
        segments, partitions = _segments(cursor)
        expired = [segment for segment in segments if segment.expired]
        unread = _unread(cursor, expired[-1].upper) if expired else []
        _judge(segments, unread)
        messages = _free_messages(cursor, segments, partitions, _least_id(cursor, _noted_up_to(segments)))
        found = []
        if sessions:
            cursor.execute(load("find_lock_holders"))
            found = [
                Session(pid=pid, user=user, application=name, state=state, since=since, query=query)
                for pid, user, name, state, since, query in cursor.fetchall()
            ]
    return Outlook(segments=segments, messages=messages, unread=unread, sessions=found)


def retire(using: str, *, lock_timeout_ms: int = LOCK_TIMEOUT_MS, attempts: int = ATTEMPTS) -> Retired:
    """Lets go of all that may go. Harmless to repeat, and to do in many processes at once."""
    note_full_segments(using)
    total = Retired()
    left = attempts
    while left:
        try:
            done = _retire_some(using, lock_timeout_ms, total.missed)
        except OperationalError as error:
            if not (is_locked(error) or isinstance(error, _Unsettled)):
                raise
            left -= 1
            total = _sum(total, Retired(blocked=not left))
            # Not in step with whoever comes by regularly.
            time.sleep(random.uniform(0, 2 * lock_timeout_ms / 1000) if left else 0)  # noqa: S311
            continue
        if done is None:
            break
        total = _sum(total, done)
    drop_detached(using)
    if total.partitions:
        logger.info(
            "retired %s: %d entries, %d bytes; tables locked for %.0f ms",
            ", ".join(total.partitions),
            total.entries,
            total.bytes,
            total.locked_ms,
        )
    if total.blocked:
        logger.info("what has expired is not dropped now: somebody uses the tables all the time; run_cleanup says who")
    return total


def _sum(one: Retired, other: Retired) -> Retired:
    return Retired(
        partitions=one.partitions + other.partitions,
        entries=one.entries + other.entries,
        bytes=one.bytes + other.bytes,
        missed=one.missed | other.missed,
        locked_ms=max(one.locked_ms, other.locked_ms),
        blocked=other.blocked,
    )


def _retire_some(using: str, lock_timeout_ms: int, before: Mapping[str, Missed]) -> Retired | None:
    """The oldest partitions that may go, in one transaction; none if there are none. `before`: what is lost already."""
    with connections[using].cursor() as cursor:
        segments, _ = _segments(cursor)
        if not any(segment.expired for segment in segments):
            return None
        # Most of what is behind the noted segments is looked at before anybody is kept waiting.
        seen = _next_position(cursor)
        least = _least_id(cursor, _noted_up_to(segments))
    with read_committed(using) as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = {int(lock_timeout_ms)}")
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtext('pubsub partitions'))")
        if cursor.fetchone() != (True,):
            return None  # another process is making or dropping partitions
        # From here on nobody numbers, subscribes, seeks, or comes back to life.
        cursor.execute("SELECT FROM log_sequencer WHERE id = 1 FOR UPDATE")
        cursor.execute("SELECT FROM outbox_topic_subscriptions WHERE status IN ('DEAD', 'CANCELLED') FOR UPDATE")
        segments, partitions = _segments(cursor)
        expired = [segment for segment in segments if segment.expired]
        if not expired:
            return None
        unread = _unread(cursor, expired[-1].upper)
        _judge(segments, unread)
        going = [segment for segment in segments if segment.goes][:AT_ONCE]
        if not going:
            return None
        for segment in segments:
            segment.goes = segment in going
        least = _least([least, _least_id(cursor, seen)])
        messages = _free_messages(cursor, segments, partitions, least)
        bound = max(
            *(segment.last_message_id + 1 for segment in going),
            1,
            *(upper for name, _, upper, _ in partitions["outbox_message_t"] if name in messages),
        )
        lowers = [segment.lower for segment in going]
        lost = [each for each in unread if each.position < going[-1].upper]
        missed = _tell_losers(cursor, using, lost, lowers, before)
        cursor.execute(load("retire_counts"), {"lowers": lowers})
        cursor.execute(load("move_past_retired"), {"upper": going[-1].upper})
        cursor.execute("DELETE FROM log_segments WHERE lower = ANY (%s)", [lowers])
        cursor.execute("UPDATE log_sequencer SET settled_id = greatest(settled_id, %s) WHERE id = 1", [bound])
        names = [*(segment.name for segment in going), *messages]
        sizes = {name: size for rows in partitions.values() for name, _, _, size in rows}
        done = Retired(
            partitions=tuple(names),
            entries=sum(segment.entries for segment in going),
            bytes=sum(sizes.get(name, 0) for name in names),
            missed=missed,
        )
        record(
            "partition-dropped",
            actor=ACTOR,
            using=using,
            reason="expired, and passed by every group that counts",
            after={"partitions": names, "entries": done.entries, "bytes": done.bytes},
        )
        # Nobody waits for the disk: if this is lost in a crash it is lost as a whole, and dropping comes after it.
        cursor.execute("SET LOCAL synchronous_commit = off")
        # Compiling plans, or a scan where statistics are missing, would take longer than all the rest.
        cursor.execute("SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        find_unsettled, parameters = _unsettled_before(cursor, bound, partitions["outbox_message_t"])
        lock_out_everybody(cursor, names, lock_timeout_ms)
        locked_at = time.monotonic()
        cursor.execute(find_unsettled, parameters)
        if cursor.fetchone() != (False,):
            raise _Unsettled
        detach(cursor, names)
    return _sum(done, Retired(locked_ms=1000 * (time.monotonic() - locked_at)))


def _unsettled_before(cursor: Any, bound: int, partitions: Sequence[tuple[str, int, int, int]]) -> tuple[str, Any]:
    """A statement, ready to run when publishers are locked out, that says whether old ids wait to be numbered."""
    cursor.execute(
        "SELECT pg_snapshot_xmax(seen)::text, ARRAY(SELECT pg_snapshot_xip(seen)::text) FROM log_sequencer WHERE id = 1"
    )
    xmax, xip = cursor.fetchone()
    names = [*(name for name, lower, _, _ in partitions if lower < bound), "outbox_message_t_default"]
    looks = " OR ".join(load("find_unsettled").format(partition=name) for name in names)
    return f"SELECT {looks}", {"bound": bound, "xmax": xmax, "xip": xip}


class _Unsettled(OperationalError):
    """Somebody has published under an old id and committed just now. The next pass numbers that."""

    def __init__(self) -> None:
        super().__init__("messages with old ids have not been numbered yet")


def _segments(cursor: Any) -> tuple[list[Segment], dict[str, list[tuple[str, int, int, int]]]]:
    """The full storage partitions of the log, and all there are of both tables."""
    partitions = {}
    for table in ("log_entry", "outbox_message_t"):
        cursor.execute(load("list_partitions"), [table])
        partitions[table] = cursor.fetchall()
    cursor.execute(load("find_segments"))
    segments = [
        Segment(
            lower=lower,
            upper=upper,
            filled_at=filled_at,
            expires_at=expires_at,
            longest_topic=longest_topic,
            entries=entries,
            first_message_id=first_id,
            last_message_id=last_id,
            asked_at=now,
        )
        for lower, upper, filled_at, expires_at, longest_topic, entries, first_id, last_id, now in cursor.fetchall()
    ]
    there = {lower: size for _, lower, _, size in partitions["log_entry"]}
    segments = [segment for segment in segments if segment.lower in there]
    end = 0
    for segment in segments:
        # The messages' bytes are counted where they would be freed.
        messages = [
            size for _, _, upper, size in partitions["outbox_message_t"] if end < upper - 1 <= segment.last_message_id
        ]
        segment.bytes = there[segment.lower] + sum(messages)
        end = max(end, segment.last_message_id)
    return segments, partitions


def _unread(cursor: Any, before: int) -> list[Unread]:
    cursor.execute(load("find_unread"), {"before": before})
    return [
        Unread(
            topic_id=topic_id,
            topic=topic,
            group=group,
            status=status,
            partition=partition,
            position=position,
            offset=offset,
            max_age=max_age,
            max_bytes=max_bytes,
        )
        for topic_id, topic, group, status, partition, position, offset, max_age, max_bytes in cursor.fetchall()
    ]


def _judge(segments: Sequence[Segment], unread: Sequence[Unread]) -> None:
    """Decides which segments go: from the oldest on, up to the first that somebody holds or that has not expired."""
    expired = [segment for segment in segments if segment.expired]
    may_go = True
    for number, segment in enumerate(segments):
        if segment.expired:
            kept = sum(each.bytes for each in expired[number:])
            segment.holders = [
                each
                for each in unread
                if each.counts and each.position < segment.upper and not _is_over(each, segment, kept)
            ]
        may_go = may_go and segment.expired and not segment.holders
        segment.goes = may_go


def _is_over(place: Unread, segment: Segment, kept_bytes: int) -> bool:
    """Whether a group may no longer hold a segment back: all of it is too old, or the group keeps too many bytes."""
    too_old = place.max_age is not None and segment.asked_at - segment.filled_at >= place.max_age
    return too_old or (place.max_bytes is not None and kept_bytes > place.max_bytes)


def _free_messages(
    cursor: Any, segments: Sequence[Segment], partitions: dict[str, list[tuple[str, int, int, int]]], least: int | None
) -> list[str]:
    """The partitions of messages that no entry needs once the segments that go are gone."""
    if not any(segment.goes for segment in segments):
        return []
    needed = _least([least, *(segment.first_message_id for segment in segments if not segment.goes)])
    cursor.execute(load("message_tip"))
    row = cursor.fetchone()
    end = (row[0] if row and row[0] else 0) + 1  # a partition that is not full may yet be written to
    if needed is not None:
        end = min(end, needed)
    return [name for name, _, upper, _ in partitions["outbox_message_t"] if upper <= end]


def _tell_losers(
    cursor: Any, using: str, lost: Sequence[Unread], lowers: Sequence[int], before: Mapping[str, Missed]
) -> dict[str, Missed]:
    """Notes, journals and logs what groups lose that have not read all of what goes: one loss with `before`."""
    cursor.execute(load("last_offsets"), {"lowers": list(lowers)})
    last = {(topic_id, partition): offset for topic_id, partition, offset in cursor.fetchall()}
    ranges: dict[tuple[int, str, str, str], Missed] = defaultdict(dict)
    for place in lost:
        ranges[place.topic_id, place.topic, place.group, place.status][str(place.partition)] = [
            place.offset,
            last[place.topic_id, place.partition],
        ]
    told = {}
    for (topic_id, topic, group, status), missed in ranges.items():
        reason = (
            "it is dead, and what it had not read has expired"
            if status == "DEAD"
            else "it was further behind than max_age or max_bytes of its topic allows"
        )
        earlier = before.get(f"{group} on {topic}", {})
        whole = earlier | {name: [earlier.get(name, given)[0], given[1]] for name, given in missed.items()}
        cursor.execute(
            load("note_missed"),
            {"topic_id": topic_id, "group_id": group, "missed": json.dumps(whole), "reason": f"lost events: {reason}"},
        )
        record("lost", actor=ACTOR, using=using, topic=topic, group=group, reason=reason, after={"missed": missed})
        logger.error(
            "group %s lost events of topic %s: %s; %s",
            group,
            topic,
            describe_missed(missed),
            reason,
            extra={"group": group, "topic": topic, "missed": missed},
        )
        told[f"{group} on {topic}"] = whole
    return told


def describe_missed(missed: Missed) -> str:
    """Ranges of offsets for people.

    >>> describe_missed({"0": [5, 17], "3": [6, 6]})
    'offsets 5 to 17 in partition 0, offset 6 in partition 3'
    """
    return ", ".join(
        f"{f'offset {first}' if first == last else f'offsets {first} to {last}'} in partition {partition}"
        for partition, (first, last) in sorted(missed.items(), key=lambda item: int(item[0]))
    )


def _noted_up_to(segments: Sequence[Segment]) -> int:
    return segments[-1].upper if segments else 0


def _next_position(cursor: Any) -> int:
    cursor.execute("SELECT next_position FROM log_sequencer WHERE id = 1")
    row = cursor.fetchone()
    return int(row[0]) if row else 1


def _least_id(cursor: Any, position: int) -> int | None:
    """The smallest id of a message whose entry is at a position or behind it."""
    cursor.execute("SELECT min(message_id) FROM log_entry WHERE position >= %s", [position])
    row = cursor.fetchone()
    return row[0] if row else None


def _least(numbers: Sequence[int | None]) -> int | None:
    return min((number for number in numbers if number is not None), default=None)
