"""How much was published: by topic, type and time."""

from argparse import ArgumentParser

from .job import JobRequest, JobResult, SparkJob

SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--per", choices=list(SECONDS), default="hour", help="length of a period (default: hour)")


def run(request: JobRequest) -> JobResult:
    from pyspark.sql import functions as f

    per = request.options.get("per", "hour")
    counted = (
        request.log()
        .groupBy("topic", f.date_trunc(per, "created_at").alias(per), "type")
        .agg(f.count("*").alias("events"), f.approx_count_distinct("key").alias("keys"))
    )
    frame = counted.select(
        "topic", per, "type", "keys", (f.col("events") / SECONDS[per]).alias("per_second"), "events"
    ).orderBy("topic", per, "type")
    return JobResult(frame=frame, chart="events")


JOB = SparkJob(
    name="throughput",
    help="events by topic, type and hour",
    run=run,
    add_arguments=add_arguments,
    by_offset=True,
    from_archive=True,
)
