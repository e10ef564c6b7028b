"""Reading an archive, alone or followed by the live log: one range, without gaps or duplicates."""

import datetime as dt
import itertools
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS

from pubsub.spark.columns import SCHEMA
from pubsub.spark.errors import InvalidRead, RangeNotThere
from pubsub.spark.ranges import Extent, LogRange, extents
from pubsub.spark.readers import in_partitions, in_time, read_ranges, share_of, with_payload

from .manifest import Archive, Piece, TopicArchive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read_pieces(session: "SparkSession", archive: TopicArchive, pieces: Sequence[Piece]) -> "DataFrame":
    """The events of some ranges of a topic, as the readers of the live log give them."""
    files = archive.files(pieces)
    return session.read.schema(SCHEMA).parquet(*files) if files else session.createDataFrame([], SCHEMA)


def read_archive(
    session: "SparkSession",
    root: str,
    topic: str,
    *,
    start: int | None = None,
    end: int | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    payload: "str | StructType" = "text",
) -> "DataFrame":
    """A topic's events from an archive, without the database; the same columns as of ``read_log``.

    As with ``read_log``, the whole range must be there; raises :class:`RangeNotThere` if it is not.

    >>> import tempfile
    >>> from pubsub.spark.session import build_session
    >>> read_archive(build_session(), tempfile.mkdtemp(), "default").count()
    0
    """
    archive = Archive(session, root).topic(topic)
    pieces = archive.pieces()
    first = pieces[0].first if pieces else 1
    last = pieces[-1].last if pieces else 0
    lower, upper = first if start is None else start, last if end is None else end
    for offset in (lower, upper) if start is not None or end is not None else ():
        if not any(piece.first <= offset <= piece.last for piece in pieces):
            raise RangeNotThere(f'Of topic "{topic}" the archive holds offsets {first} to {last}, but not {offset}.')
    wanted = [piece for piece in pieces if piece.last >= lower and piece.first <= upper]
    for before, after in itertools.pairwise(wanted):
        if after.first != before.last + 1 and (start is not None or end is not None):
            raise RangeNotThere(f'Of topic "{topic}" the archive lacks offsets {before.last + 1} to {after.first - 1}.')
    frame = read_pieces(session, archive, wanted).filter(f"c_offset BETWEEN {lower} AND {upper}")
    return with_payload(_filtered(frame, in_time(since, until)), payload)


def read_both(
    session: "SparkSession",
    root: str,
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
    using: str = DEFAULT_DB_ALIAS,
) -> "DataFrame":
    """What ``read_log(archive=…)`` does: reads the archive as far as it goes, then the live log.

    >>> import tempfile
    >>> from pubsub.spark.session import build_session
    >>> read_both(build_session(), tempfile.mkdtemp(), "default").count()
    0
    """
    if (start is not None or end is not None) and not isinstance(topic, str):
        raise InvalidRead("start and end are offsets of one topic: name it.")
    known = extents(topic, using)
    where = [*in_partitions(partition, known), *in_time(since, until)]
    archive = Archive(session, root)
    live: list[LogRange] = []
    frames: list[DataFrame] = []
    for extent in known:
        of_topic = archive.topic(extent.topic)
        pieces = of_topic.pieces()
        first, last = _bounds(pieces, extent, start, end)
        wanted = [piece for piece in pieces if piece.last >= first and piece.first <= last]
        if wanted:
            frame = read_pieces(session, of_topic, wanted).filter(f"c_offset BETWEEN {first} AND {last}")
            frames.append(_filtered(frame, where))
        live += _between(wanted, extent, first, last)
    share = share_of(partition, known)
    frames.append(
        read_ranges(session, live, where=where, share=share, range_size=range_size, fetch_size=fetch_size, using=using)
    )
    return with_payload(reduce(lambda one, other: one.unionByName(other), frames), payload)


def _bounds(pieces: Sequence[Piece], extent: Extent, start: int | None, end: int | None) -> tuple[int, int]:
    oldest = min(pieces[0].first, extent.oldest) if pieces else extent.oldest
    tip = max(pieces[-1].last, extent.tip) if pieces else extent.tip
    first = oldest if start is None else start
    last = tip if end is None else min(end, tip)
    if first < oldest or first > tip + 1:
        raise RangeNotThere(
            f'Of topic "{extent.topic}" archive and log hold offsets {oldest} to {tip}: a read cannot begin at {first}.'
        )
    return first, last


def _between(wanted: Sequence[Piece], extent: Extent, first: int, last: int) -> list[LogRange]:
    """The ranges that the archive lacks, and the log must have."""
    missing, next_offset = [], first
    for piece in wanted:
        missing.append((next_offset, piece.first - 1))
        next_offset = piece.last + 1
    missing.append((next_offset, last))
    ranges = []
    for lower, upper in missing:
        if upper < lower:
            continue
        if lower < extent.oldest:
            raise RangeNotThere(
                f'Of topic "{extent.topic}" offsets {lower} to {min(upper, extent.oldest - 1)} are neither in '
                f"the archive nor in the log."
            )
        ranges.append(LogRange(topic=extent.topic, topic_id=extent.topic_id, first=lower, last=upper))
    return ranges


def _filtered(frame: "DataFrame", where: Sequence[Any]) -> "DataFrame":
    for condition in where:
        frame = frame.filter(condition)
    return frame
