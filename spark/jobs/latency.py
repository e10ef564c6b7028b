"""The time from publishing until a group has passed the event, as far as the database knows it.

The time at which an event was passed is not recorded: a cursor is one row that moves. What is recorded, about every
half minute, is how many events a group has passed (`outbox_samples`, kept for two days). The n-th event of a topic was
passed between the last sample with fewer than n and the first with at least n, if the group reads all partitions at
about the same pace. So each event's latency lies between two known numbers, and so do the percentiles.
"""

import datetime as dt
from typing import TYPE_CHECKING

from pubsub.db.sql import load
from pubsub.spark.connection import jdbc_options
from pubsub.spark.ranges import LogRange, extents
from pubsub.spark.readers import read_ranges

from .job import JobRequest, JobResult, SparkJob

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKET = 1000
PRECISION = "at_least and at_most are as far apart as the two samples between which a group passed an event."
TOO_EARLY = "No group has passed events between two samples yet: there is one every half minute."
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def run(request: JobRequest) -> JobResult:
    from pyspark.sql import functions as f

    courses = _courses(request).persist()
    try:
        passed = {
            row.topic: (row.first, row.last)
            for row in courses.groupBy("topic")
            .agg(f.min("first").alias("first"), f.max("last").alias("last"))
            .collect()
        }
        ranges = [
            LogRange(
                topic=extent.topic,
                topic_id=extent.topic_id,
                first=max(extent.oldest, passed[extent.topic][0]),
                last=min(extent.tip, passed[extent.topic][1]),
            )
            for extent in extents(request.topics or None, request.using)
            if extent.topic in passed
        ]
        events = read_ranges(request.session, [each for each in ranges if each.count > 0], using=request.using)
        events = _in_time(events.select("topic", "c_offset", "created_at"), request.since, request.until)
        frame = _measured(events, courses).persist()
        is_empty = frame.count() == 0  # now, while the courses are at hand
    finally:
        courses.unpersist()
    return JobResult(
        frame=frame,
        chart="p95_at_most_s",
        notes=[TOO_EARLY if is_empty else PRECISION],
    )


def _courses(request: JobRequest) -> "DataFrame":
    """Which events each group passed between which two samples. If it was moved back, the first time counts."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    options = jdbc_options(request.using) | {"dbtable": f"({load('spark/group_courses')}) AS rows", "fetchsize": "5000"}
    samples = request.session.read.format("jdbc").options(**options).load()
    if request.topics:
        samples = samples.filter(f.col("topic").isin(*request.topics))
    course = Window.partitionBy("topic", "group_id").orderBy("taken_at")
    before = course.rowsBetween(Window.unboundedPreceding, -1)
    return samples.select(
        "topic",
        "group_id",
        (f.max("passed").over(before) + 1).alias("first"),
        f.col("passed").alias("last"),
        f.lag("taken_at").over(course).alias("after"),
        f.col("taken_at").alias("by"),
    ).filter("first <= last")


def _measured(events: "DataFrame", courses: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    spread = courses.withColumn("bucket", f.explode(f.sequence(_bucket("first"), _bucket("last"))))
    pairs = events.withColumn("bucket", _bucket("c_offset")).join(f.broadcast(spread), ["topic", "bucket"])
    bounded = pairs.filter("c_offset BETWEEN first AND last").select(
        "topic",
        f.col("group_id").alias("group"),
        f.greatest(f.lit(0.0), _since_published("after")).alias("at_least"),
        f.greatest(f.lit(0.0), _since_published("by")).alias("at_most"),
    )
    return (
        bounded.groupBy("topic", "group")
        .agg(
            f.count("*").alias("events"),
            *(
                f.percentile_approx(bound, share).alias(f"{name}_{bound}_s")
                for name, share in PERCENTILES.items()
                for bound in ("at_least", "at_most")
            ),
        )
        .orderBy("topic", "group")
    )


def _bucket(offset: str) -> "Column":
    from pyspark.sql import functions as f

    return f.floor(f.col(offset) / BUCKET)


def _since_published(moment: str) -> "Column":
    from pyspark.sql import functions as f

    return f.col(moment).cast("double") - f.col("created_at").cast("double")


def _in_time(events: "DataFrame", since: dt.datetime | None, until: dt.datetime | None) -> "DataFrame":
    from pyspark.sql import functions as f

    if since:
        events = events.filter(f.col("created_at") >= f.lit(since))
    return events.filter(f.col("created_at") < f.lit(until)) if until else events


JOB = SparkJob(name="latency", help="from publishing until a group has passed the event, in percentiles", run=run)
