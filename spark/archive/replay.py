"""Replaying archived events to one group: events beyond retention, for a group that is new.

They are published again at the end of the log, for that group only, in their original order. So they are like any other
events: order by key, dead letters, retries.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS, IntegrityError, connections, transaction

from pubsub.db.sql import load
from pubsub.errors import UnknownGroup
from pubsub.models import SinkBatch, Status, Subscription
from pubsub.publishing.notify import after_commit
from pubsub.spark.errors import ArchiveBusy, InvalidRead
from pubsub.spark.ranges import extents

from .read import read_archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = 1000
"""Events in one transaction."""


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """Which archived events, for which group."""

    topic: str
    group: str
    start: int | None = None
    end: int | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    keys: Sequence[str] = ()
    types: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Identifies an interrupted replay."""
        text = json.dumps(asdict(self), default=str, sort_keys=True)
        return f"replay to {self.group} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """How many events this run published, and how many an interrupted run before it."""

    events: int
    before: int


def archived_events(session: "SparkSession", root: str, request: ReplayRequest) -> "DataFrame":
    """The archived events, without those addressed to another group."""
    from pyspark.sql import functions as f

    frame = read_archive(
        session, root, request.topic, start=request.start, end=request.end, since=request.since, until=request.until
    )
    frame = frame.filter(f.col("to_group").isNull() | (f.col("to_group") == request.group))
    if request.keys:
        frame = frame.filter(f.coalesce("key", "host_id").isin(*request.keys))
    return frame.filter(f.col("type").isin(*request.types)) if request.types else frame


def replay(
    session: "SparkSession",
    root: str,
    request: ReplayRequest,
    *,
    again: bool = False,
    reached: Callable[[int], None] = lambda events: None,
    using: str = DEFAULT_DB_ALIAS,
) -> Replayed:
    """Publish the events to the group, each once: an interrupted replay continues where it was.

    Without ``end``, a replay ends where the archive ended at its first run; if the archive has grown since, a further
    run publishes the new events. ``again`` starts from the beginning.

    >>> import tempfile
    >>> from pubsub.spark.session import build_session
    >>> replay(build_session(), tempfile.mkdtemp(), ReplayRequest(topic="default", group="missing"))
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    topic_id = check_group(request, using)
    done = SinkBatch.objects.using(using).filter(sink=request.name)
    if again:
        done.delete()
    # By offset, not by number: nothing shifts if the archive has been extended or merged in the meantime.
    last = max((number for (number,) in done.values_list("batch_id")), default=0)
    before = sum(events for (events,) in done.values_list("events"))
    frame = archived_events(session, root, request).filter(f"c_offset > {last}").orderBy("c_offset")
    published = 0
    for rows in _batches(frame.toLocalIterator(prefetchPartitions=False), BATCH):
        try:
            _publish(rows, request, topic_id, using)
        except IntegrityError as error:
            raise ArchiveBusy("Another run is replaying the same events. Wait until it has finished.") from error
        published += len(rows)
        reached(published)
    return Replayed(events=published, before=before)


def _publish(rows: Sequence[Any], request: ReplayRequest, topic_id: int, using: str) -> None:
    with transaction.atomic(using=using):
        # First of all: if two runs replay the same events at once, the second one fails here.
        SinkBatch.objects.using(using).create(sink=request.name, batch_id=rows[-1].c_offset, events=len(rows))
        with connections[using].cursor() as cursor:
            cursor.execute(load("spark/republish"), _parameters(rows, topic_id, request.group))
        after_commit(connections[using])


def check_group(request: ReplayRequest, using: str) -> int:
    """The topic's id; raises if the group would not receive what is replayed."""
    (extent,) = extents(request.topic, using)
    groups = Subscription.objects.using(using).filter(topic_id=extent.topic_id)
    names = sorted(groups.filter(status__in=[Status.ACTIVE, Status.PAUSED]).values_list("group_id", flat=True))
    if not request.group:
        raise InvalidRead("Name the group to which the events are replayed: --to-group GROUP.")
    if request.group not in names:
        raise UnknownGroup(
            f'The group "{request.group}" does not read topic "{request.topic}", so no one would receive the events. '
            f"There are: {', '.join(names) or 'none'}."
        )
    return extent.topic_id


def _batches(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


def _parameters(rows: Sequence[Any], topic_id: int, group: str) -> dict[str, Any]:
    return {
        "topic_id": topic_id,
        "group": group,
        "event_ids": [row.event_id for row in rows],
        "types": [row.type for row in rows],
        "keys": [row.key for row in rows],
        "host_ids": [row.host_id for row in rows],
        "user_ids": [row.user_id for row in rows],
        "payloads": [row.payload for row in rows],
        "metadatas": [row.metadata for row in rows],
        "offsets": [row.c_offset for row in rows],
        "times": [row.created_at.astimezone(dt.UTC) for row in rows],
    }
