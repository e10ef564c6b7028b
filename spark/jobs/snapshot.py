"""The latest event of each key: the log as a table."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .job import JobRequest, JobResult, SparkJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--gone", action="append", metavar="TYPE", help="leave out keys whose latest event is of this type"
    )


def latest(events: "DataFrame", gone: Sequence[str] = ()) -> "DataFrame":
    """The latest event of each topic and key; an event without a key counts by its host, and is left out without one.

    >>> from pubsub.spark.readers import read_log
    >>> from pubsub.spark.session import build_session
    >>> latest(read_log(build_session(), "default")).createOrReplaceTempView("default_now")
    >>> build_session().sql("SELECT count(*) AS keys FROM default_now").first().keys
    0
    """
    from pyspark.sql import functions as f

    keyed = events.withColumn("key", f.coalesce("key", "host_id")).filter("key IS NOT NULL")
    content = [name for name in keyed.columns if name not in ("topic", "key")]
    newest = keyed.groupBy("topic", "key").agg(f.max_by(f.struct(*content), "c_offset").alias("event"))
    found = newest.select("topic", "key", *(f.col("event")[name].alias(name) for name in content))
    return found.filter(~f.col("type").isin(*gone)) if gone else found


def run(request: JobRequest) -> JobResult:
    return JobResult(frame=latest(request.log(), request.options.get("gone") or ()).orderBy("topic", "key"))


JOB = SparkJob(
    name="snapshot",
    help="the latest event of each key, as a table",
    run=run,
    add_arguments=add_arguments,
    by_offset=True,
    from_archive=True,
    is_large=True,
)
