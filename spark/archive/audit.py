"""Checks that an archive is what its manifests say, and equals the log where both have the same offsets."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from django.db import DEFAULT_DB_ALIAS

from pubsub.spark.audit_problem import AuditProblem
from pubsub.spark.ranges import LogRange
from pubsub.spark.readers import read_ranges

from .manifest import Archive, Piece, TopicArchive
from .read import read_pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_NAMED = 10_000


def compare(
    session: "SparkSession",
    root: str,
    ranges: Sequence[LogRange],
    *,
    using: str = DEFAULT_DB_ALIAS,
    say: Callable[[str], None] = lambda text: None,
) -> list[AuditProblem]:
    """Checks all files of these topics, and compares them with the log where both have these ranges.

    >>> import tempfile
    >>> from pubsub.spark.ranges import log_range
    >>> from pubsub.spark.session import build_session
    >>> compare(build_session(), tempfile.mkdtemp(), [log_range("default")])
    []
    """
    archive = Archive(session, root)
    found: list[AuditProblem] = []
    for each in ranges:
        of_topic = archive.topic(each.topic)
        pieces = of_topic.pieces()
        say(f"Checking the archive of {each.topic}")
        broken = list(_of_files(of_topic, pieces))
        found += [*_gaps(each.topic, pieces), *broken]
        bad = {(problem.first, problem.last) for problem in broken}
        whole = [
            piece for piece in pieces if not any(piece.first <= last and piece.last >= first for first, last in bad)
        ]
        found += _differences(session, of_topic, whole, each, using)
    return found


def _gaps(topic: str, pieces: Sequence[Piece]) -> Iterable[AuditProblem]:
    for before, after in itertools.pairwise(pieces):
        if after.first != before.last + 1:
            yield AuditProblem(topic=topic, problem="gap in the archive", first=before.last + 1, last=after.first - 1)


def _of_files(archive: TopicArchive, pieces: Sequence[Piece]) -> Iterable[AuditProblem]:
    for piece in pieces:
        if sum(file.rows for file in piece.files) != piece.count:
            yield AuditProblem(
                topic=piece.topic,
                problem="archive incomplete",
                first=piece.first,
                last=piece.last,
                detail="its manifest",
            )
        for file in piece.files:
            path = f"{archive.path}/{file.path}"
            size = archive.folder.size(path)
            if size is None:
                what = "missing file"
            elif size != file.bytes or archive.folder.sha256(path) != file.sha256:
                what = "damaged file"
            else:
                continue
            yield AuditProblem(topic=piece.topic, problem=what, first=file.first, last=file.last, detail=file.path)


def _differences(
    session: "SparkSession", archive: TopicArchive, pieces: Sequence[Piece], live: LogRange, using: str
) -> Iterable[AuditProblem]:
    from pyspark.sql import functions as f

    both = [
        LogRange(
            topic=live.topic,
            topic_id=live.topic_id,
            first=max(piece.first, live.first),
            last=min(piece.last, live.last),
        )
        for piece in pieces
    ]
    both = [each for each in both if each.count > 0]
    if not both:
        return
    archived = read_pieces(session, archive, pieces).filter(f"c_offset BETWEEN {live.first} AND {live.last}")
    logged = read_ranges(session, both, using=using)
    pairs = _digests(archived, "archived").join(_digests(logged, "logged"), "c_offset", "full_outer")
    differing = pairs.filter(~f.col("archived").eqNullSafe(f.col("logged"))).orderBy("c_offset").limit(MOST_NAMED)
    for row in differing.collect():
        if row.archived is None:
            what = "not in the archive"
        elif row.logged is None:
            what = "only in the archive"
        else:
            what = "archive and log differ"
        yield AuditProblem(topic=live.topic, problem=what, first=row.c_offset, last=row.c_offset)


def _digests(frame: "DataFrame", name: str) -> "DataFrame":
    from pyspark.sql import functions as f

    columns = sorted(set(frame.columns) - {"date"})
    # As JSON, which distinguishes an absent key from an empty one, and shows where a column ends.
    return frame.select("c_offset", f.sha2(f.to_json(f.struct(*columns)), 256).alias(name))
