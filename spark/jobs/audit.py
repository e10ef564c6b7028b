"""Checks that the log is as promised: no gaps, no duplicates, in order, and the same as its archive."""

from argparse import ArgumentParser
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pubsub.spark.audit_problem import AuditProblem
from pubsub.spark.ranges import Extent, LogRange, extents
from pubsub.spark.readers import read_cursors

from .job import JobRequest, JobResult, SparkJob
from .pieces import read_pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHUNK = 10_000
"""Offsets that one task checks at a time."""

MOST_NAMED = 10_000
"""At most this many problems of one kind are listed, each with its offsets."""

SCHEMA = "topic string, problem string, detail string, first bigint, last bigint, offsets bigint"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--archive", metavar="DIR", help="an archive of the log to compare with it")


def run(request: JobRequest) -> JobResult:
    known = extents(request.topics or None, request.using)
    ranges = [extent.range(request.start, request.end) for extent in known]
    request.say("Checking the log")
    problems = [*_of_entries(request, ranges), *_of_cursors(request, known)]
    if archive := request.options.get("archive"):
        from pubsub.spark.archive.audit import compare

        problems += compare(request.session, archive, ranges, using=request.using, say=request.say)
    # What retention has dropped in the meantime is not a gap.
    oldest = {extent.topic: extent.oldest for extent in extents([each.topic for each in ranges], request.using)}
    problems = sorted({found for found in problems if found.problem != "gap" or found.last >= oldest[found.topic]})
    rows = [
        (found.topic, found.problem, found.detail, found.first, found.last, found.last - found.first + 1)
        for found in problems
    ]
    wrong = {found.topic for found in problems}
    rows += [(r.topic, "none", "", r.first, r.last, r.count) for r in ranges if r.topic not in wrong]
    return JobResult(
        frame=request.session.createDataFrame(rows, SCHEMA),
        chart="offsets",
        notes=[
            f"{r.topic}: offsets {r.first} to {r.last} are whole." for r in ranges if r.topic not in wrong and r.count
        ],
        problems=[str(found) for found in problems],
    )


def _of_entries(request: JobRequest, ranges: list[LogRange]) -> Iterable[AuditProblem]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    names = {each.topic_id: each.topic for each in ranges}
    entries = read_pieces(request.session, "audited_entries", ranges, using=request.using)
    entries = entries.withColumn("chunk", f.floor(f.col("c_offset") / CHUNK)).persist()
    try:
        course = Window.partitionBy("topic_id", "chunk").orderBy("c_offset", "position")
        pairs = entries.select(
            "topic_id",
            "c_offset",
            "position",
            "is_lost",
            f.lag("c_offset").over(course).alias("offset_before"),
            f.lag("position").over(course).alias("position_before"),
        ).persist()
        for name, condition in (
            ("gap", "c_offset > offset_before + 1"),
            ("duplicate", "c_offset = offset_before"),
            ("order", "c_offset > offset_before AND position <= position_before"),
            ("lost message", "is_lost"),
        ):
            for row in _first_ones(pairs.filter(condition)):
                if name == "gap":
                    yield AuditProblem(
                        topic=names[row.topic_id], problem=name, first=row.offset_before + 1, last=row.c_offset - 1
                    )
                else:
                    detail = f"position {row.position} after {row.position_before}" if name == "order" else ""
                    yield AuditProblem(
                        topic=names[row.topic_id], problem=name, first=row.c_offset, last=row.c_offset, detail=detail
                    )
        pairs.unpersist()
        chunks = (
            entries.groupBy("topic_id", "chunk")
            .agg(
                f.min("c_offset").alias("first"),
                f.max("c_offset").alias("last"),
                f.min_by("position", "c_offset").alias("first_position"),
                f.max_by("position", "c_offset").alias("last_position"),
            )
            .orderBy("topic_id", "chunk")
            .collect()
        )
    finally:
        entries.unpersist()
    for each in ranges:
        expected, position = each.first, 0
        for row in (row for row in chunks if row.topic_id == each.topic_id):
            if row.first > expected:
                yield AuditProblem(topic=each.topic, problem="gap", first=expected, last=row.first - 1)
            if row.first_position <= position:
                yield AuditProblem(
                    topic=each.topic,
                    problem="order",
                    first=row.first,
                    last=row.first,
                    detail=f"position {row.first_position} after {position}",
                )
            expected, position = row.last + 1, row.last_position
        if expected <= each.last:
            yield AuditProblem(topic=each.topic, problem="gap", first=expected, last=each.last)


def _first_ones(frame: "DataFrame") -> Iterable[Any]:
    return frame.orderBy("topic_id", "c_offset").limit(MOST_NAMED).collect()


def _of_cursors(request: JobRequest, known: list[Extent]) -> Iterable[AuditProblem]:
    """No group can have passed an event that does not exist."""
    for row in read_cursors(request.session, using=request.using).filter("next_offset > tip + 1").collect():
        if row.topic in {extent.topic for extent in known}:
            yield AuditProblem(
                topic=row.topic,
                problem="cursor beyond the tip",
                first=row.next_offset,
                last=row.next_offset,
                detail=f"group {row.group_id}, partition {row.partition_id}; the tip is {row.tip}",
            )


JOB = SparkJob(
    name="audit",
    help="gaps, duplicates, wrong order, lost events, cursors beyond the tip; archive compared with log",
    run=run,
    add_arguments=add_arguments,
    by_offset=True,
    by_time=False,
)
