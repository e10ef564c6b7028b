"""Failed events by group, handler, exception, key or time, and when each failure was first and last seen."""

from argparse import ArgumentParser
from typing import TYPE_CHECKING

from pubsub.spark.readers import read_dead_letters

from .job import JobRequest, JobResult, SparkJob

if TYPE_CHECKING:
    from pyspark.sql import Column

BY = ("group", "topic", "exception", "handler", "key", "type", "state", "hour", "day")
USUAL = ("group", "topic", "exception", "handler")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        nargs="+",
        choices=BY,
        default=list(USUAL),
        metavar="WHAT",
        help=f"what to group by, of {', '.join(BY)} (default: {' '.join(USUAL)})",
    )


def run(request: JobRequest) -> JobResult:
    from pyspark.sql import functions as f

    by = request.options.get("by") or USUAL
    letters = read_dead_letters(request.session, using=request.using)
    if request.topics:
        letters = letters.filter(f.col("topic").isin(*request.topics))
    if request.since:
        letters = letters.filter(f.col("created_at") >= f.lit(request.since))
    if request.until:
        letters = letters.filter(f.col("created_at") < f.lit(request.until))
    is_open = f.col("state").isin("dead", "retrying", "parked")
    frame = (
        letters.groupBy(*(_dimension(name) for name in dict.fromkeys(by)))
        .agg(
            f.min("created_at").alias("first_seen"),
            f.max("created_at").alias("last_seen"),
            f.first("exception_message").alias("for_example"),
            f.max("attempts").alias("most_attempts"),
            f.countDistinct(f.coalesce("key", "host_id")).alias("keys"),
            f.count_if(is_open).alias("open"),
            f.count("*").alias("letters"),
        )
        .orderBy(*(["hour"] if "hour" in by else ["day"] if "day" in by else []), f.desc("letters"), *by)
    )
    return JobResult(frame=frame, chart="letters")


def _dimension(name: str) -> "Column":
    from pyspark.sql import functions as f

    if name in ("hour", "day"):
        return f.date_trunc(name, "created_at").alias(name)
    return {
        "group": f.col("group_id").alias("group"),
        "exception": f.col("exception_class").alias("exception"),
        "key": f.coalesce("key", "host_id").alias("key"),
    }.get(name, f.col(name))


JOB = SparkJob(
    name="dead_letters",
    help="failed events by group, exception and handler, first and last seen",
    run=run,
    add_arguments=add_arguments,
)
