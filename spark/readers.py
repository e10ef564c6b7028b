"""The log, and the tables around it, as typed DataFrames read over JDBC.

>>> from pubsub.spark.session import build_session
>>> read_log(build_session(), "default").count()
0
"""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS, connections
from psycopg.sql import Literal

from pubsub.db.sql import load

from .columns import COLUMNS
from .connection import jdbc_options
from .errors import InvalidRead
from .plan import BY_INDEX, IN_ORDER, is_dense, message_bounds
from .ranges import Extent, LogRange, extents

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

RANGE_SIZE = 100_000
"""Events that one statement reads, and so in one snapshot."""

SMALLEST_RANGE = 5_000
"""Below this, a connection of its own costs more than it saves."""

BYTES_AT_ONCE = 16 * 1024 * 1024
"""About how many bytes a task holds that have arrived and are not yet passed on."""


def read_log(
    session: "SparkSession",
    topic: str | Sequence[str] | None = None,
    *,
    start: int | None = None,
    end: int | None = None,
    partition: int | Sequence[int] | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    payload: "str | StructType" = "text",
    range_size: int | None = None,
    fetch_size: int | None = None,
    archive: str | None = None,
    using: str = DEFAULT_DB_ALIAS,
) -> "DataFrame":
    """The log of one, several or all topics: each event once, however long it takes, even while others publish.

    The tip is read once, now; later events are not part of the DataFrame, which is the same each time you use it.
    Without filters it has end - start + 1 rows. Its columns are ``topic``, ``c_offset``, ``partition_id``,
    ``position``, ``event_id``, ``type``, ``key``, ``host_id``, ``user_id``, ``to_group``, ``transaction_id``,
    ``payload``, ``metadata`` and ``created_at``. Rows are in no order: sort by ``c_offset`` if it matters.

    - ``start``, ``end``: offsets of one topic, both included; by default from the oldest to the tip, and never beyond.
    - ``partition``: one or some of the topic's.
    - ``since``, ``until``: published at or after, and before, a time.
    - ``payload``: ``"text"``, ``"variant"``, or a schema to read it by: a StructType, or as ``"id int, total double"``.
      Values that do not fit a schema are null.
    - ``range_size``: events in one statement, for which a snapshot is held. ``fetch_size``: rows fetched at once; by
      default as many as fit ``BYTES_AT_ONCE``.
    - ``archive``: the folder of an archive to read before the log: both are one range without a gap.

    PostgreSQL evaluates filters on all columns but a parsed payload. If retention drops events before they are read,
    the read fails.

    >>> from pubsub.spark.session import build_session
    >>> read_log(build_session(), "default", payload="id int").select("c_offset", "payload.id").columns
    ['c_offset', 'id']
    """
    if (start is not None or end is not None) and not isinstance(topic, str):
        raise InvalidRead("start and end are offsets of one topic: name it. For several, use read_ranges().")
    if archive is not None:
        from .archive import read_both

        return read_both(
            session,
            archive,
            topic,
            start=start,
            end=end,
            partition=partition,
            since=since,
            until=until,
            payload=payload,
            range_size=range_size,
            fetch_size=fetch_size,
            using=using,
        )
    known = extents(topic, using)
    return read_ranges(
        session,
        [extent.range(start, end) for extent in known],
        where=[*in_partitions(partition, known), *in_time(since, until)],
        share=share_of(partition, known),
        payload=payload,
        range_size=range_size,
        fetch_size=fetch_size,
        using=using,
    )


def read_ranges(
    session: "SparkSession",
    ranges: Sequence[LogRange],
    *,
    where: Sequence[str] = (),
    share: float = 1.0,
    payload: "str | StructType" = "text",
    range_size: int | None = None,
    fetch_size: int | None = None,
    using: str = DEFAULT_DB_ALIAS,
) -> "DataFrame":
    """The same for ranges that you already know.

    ``where`` has further conditions, in SQL; ``share`` is roughly the part that they leave.

    >>> from pubsub.spark.ranges import log_range
    >>> from pubsub.spark.session import build_session
    >>> read_ranges(build_session(), [log_range("default")]).count()
    0
    """
    for name, value in (("range_size", range_size), ("fetch_size", fetch_size)):
        if value is not None and value < 1:
            raise InvalidRead(f"{name} must be at least 1, not {value}.")
    size = range_size or _range_size(session, ranges)
    fetch_size = fetch_size or _fetch_size(ranges, using)
    dense: list[str] = []
    sparse: list[str] = []
    for each in ranges:
        walked = is_dense(each, using, share)
        for piece in each.split(size):
            bounds = [message_bounds(piece)] if walked else []
            (dense if walked else sparse).append(_condition(piece, [*bounds, *where]))
    if not dense:
        sparse = sparse or ["false"]
    frames = [
        _read_where(session, conditions, planning, fetch_size, using)
        for conditions, planning in ((dense, IN_ORDER), (sparse, BY_INDEX))
        if conditions
    ]
    return with_payload(reduce(lambda one, other: one.union(other), frames), payload)


def _read_where(
    session: "SparkSession", conditions: Sequence[str], planning: Mapping[str, str], fetch_size: int, using: str
) -> "DataFrame":
    """The events for each of these conditions, each of which is a task, a statement and a snapshot."""
    options = jdbc_options(using, session=planning) | {"fetchsize": str(fetch_size)}
    frame = session.read.jdbc(
        options.pop("url"), f"({load('spark/log')}) AS log", predicates=list(conditions), properties=options
    )
    return frame.select(*COLUMNS)


def read_dead_letters(session: "SparkSession", *, using: str = DEFAULT_DB_ALIAS) -> "DataFrame":
    """Dead letters of every state, payload and traceback included.

    >>> from pubsub.spark.session import build_session
    >>> read_dead_letters(build_session()).filter("state = 'dead'").count()
    0
    """
    return _read(session, "dead_letters", using)


def read_cursors(session: "SparkSession", *, using: str = DEFAULT_DB_ALIAS) -> "DataFrame":
    """The cursor of each group in each partition, and how far behind it is.

    >>> from pubsub.spark.session import build_session
    >>> read_cursors(build_session()).agg({"lag": "sum"}).first()[0]
    """
    return _read(session, "cursors", using)


def read_topics(session: "SparkSession", *, using: str = DEFAULT_DB_ALIAS) -> "DataFrame":
    """Topics, with the last offset of each.

    >>> from pubsub.spark.session import build_session
    >>> read_topics(build_session()).filter("topic = 'default'").first().tip
    0
    """
    return _read(session, "topics", using)


def read_subscriptions(session: "SparkSession", *, using: str = DEFAULT_DB_ALIAS) -> "DataFrame":
    """Which group reads which topic, and how.

    >>> from pubsub.spark.session import build_session
    >>> read_subscriptions(build_session()).filter("status = 'PAUSED'").count()
    0
    """
    return _read(session, "subscriptions", using)


def read_operator_events(session: "SparkSession", *, using: str = DEFAULT_DB_ALIAS) -> "DataFrame":
    """What operators did, and what was decided automatically.

    >>> from pubsub.spark.session import build_session
    >>> read_operator_events(build_session()).filter("action = 'pause'").count()
    0
    """
    return _read(session, "operator_events", using)


def _read(session: "SparkSession", name: str, using: str) -> "DataFrame":
    """A small table: one statement, and so one snapshot."""
    options = jdbc_options(using) | {"dbtable": f"({load(f'spark/{name}')}) AS rows", "fetchsize": "1000"}
    return session.read.format("jdbc").options(**options).load()


def _condition(piece: LogRange, where: Sequence[str]) -> str:
    lost = (
        f'Offset {piece.first} of topic "{piece.topic}" existed when this read was planned, but no longer does: '
        f"retention has dropped it. Read again, or raise the topic's retention. "
    )
    still_there = load("spark/still_there").format(
        topic_id=piece.topic_id, first=piece.first, lost=Literal(lost).as_string()
    )
    within = f"topic_id = {piece.topic_id} AND c_offset BETWEEN {piece.first} AND {piece.last}"
    return " AND ".join([within, *where, still_there])


def _range_size(session: "SparkSession", ranges: Sequence[LogRange]) -> int:
    share = math.ceil(sum(each.count for each in ranges) / session.sparkContext.defaultParallelism)
    return min(RANGE_SIZE, max(SMALLEST_RANGE, share))


def _fetch_size(ranges: Sequence[LogRange], using: str) -> int:
    largest = 0
    with connections[using].cursor() as cursor:
        for each in ranges:
            cursor.execute(load("spark/largest_events"), vars_of(each))
            (bytes_of_one,) = cursor.fetchone()
            largest = max(largest, bytes_of_one or 0)
    return max(10, min(10_000, BYTES_AT_ONCE // (largest + 500)))


def vars_of(piece: LogRange) -> Mapping[str, Any]:
    """A range as the parameters of a statement."""
    return {"topic_id": piece.topic_id, "first": piece.first, "last": piece.last}


def in_partitions(partition: int | Sequence[int] | None, known: Sequence[Extent]) -> list[str]:
    """The condition for one or some partitions; no condition for all."""
    if partition is None:
        return []
    wanted = [partition] if isinstance(partition, int) else list(partition)
    there = max((extent.partitions for extent in known), default=0)
    if not wanted or not all(isinstance(number, int) and 0 <= number < there for number in wanted):
        raise InvalidRead(f"partition must be some of 0 to {there - 1}, not {partition!r}.")
    return [f"partition_id IN ({', '.join(map(str, wanted))})"]


def share_of(partition: int | Sequence[int] | None, known: Sequence[Extent]) -> float:
    """Roughly which part of the log some partitions have."""
    if partition is None:
        return 1.0
    wanted = 1 if isinstance(partition, int) else len(partition)
    return wanted / max((extent.partitions for extent in known), default=1)


def in_time(since: dt.datetime | None, until: dt.datetime | None) -> list[str]:
    """The conditions for events published at or after one time and before another."""
    conditions = []
    for name, time, comparison in (("since", since, ">="), ("until", until, "<")):
        if time is None:
            continue
        if not isinstance(time, dt.datetime) or time.tzinfo is None:
            raise InvalidRead(f"{name} must be a datetime with a time zone, not {time!r}.")
        conditions.append(f"created_at {comparison} '{time.isoformat()}'")
    return conditions


def with_payload(frame: "DataFrame", payload: "str | StructType") -> "DataFrame":
    """The frame with its payloads as text, as variants, or parsed by a schema."""
    from pyspark.sql import functions

    if payload == "text":
        return frame
    if payload == "variant":
        return frame.withColumn("payload", functions.parse_json("payload"))
    return frame.withColumn("payload", functions.from_json("payload", payload))
