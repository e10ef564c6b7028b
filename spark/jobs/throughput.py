"""How much was published: by topic, type and time."""

from argparse import ArgumentParser

from .job import Asked, Found, Job

SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--per", choices=list(SECONDS), default="hour", help="length of a period (default: hour)")


def run(asked: Asked) -> Found:
    from pyspark.sql import functions as f

    per = asked.options.get("per", "hour")
    counted = (
        asked.log()
        .groupBy("topic", f.date_trunc(per, "created_at").alias(per), "type")
        .agg(f.count("*").alias("events"), f.approx_count_distinct("key").alias("keys"))
    )
    frame = counted.select(
        "topic", per, "type", "keys", (f.col("events") / SECONDS[per]).alias("per_second"), "events"
    ).orderBy("topic", per, "type")
    return Found(frame=frame, chart="events")


JOB = Job(
    name="throughput",
    help="events by topic, type and hour",
    run=run,
    add_arguments=add_arguments,
    by_offset=True,
    from_archive=True,
)
