"""How keys get from one event type to the next, and how long they take."""

from argparse import ArgumentParser
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from .job import JobRequest, JobResult, SparkJob

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PERCENTILES = {"p50_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--steps",
        nargs="+",
        metavar="TYPE",
        help="types in the expected order; without it, each event of a key and the next one are a step",
    )


def run(request: JobRequest) -> JobResult:
    from pyspark.sql import functions as f

    events = request.log().select("topic", "c_offset", "type", "created_at", f.coalesce("key", "host_id").alias("key"))
    events = events.filter("key IS NOT NULL")
    steps = request.options.get("steps")
    return (
        JobResult(frame=_through(events, steps), chart="keys")
        if steps
        else JobResult(frame=_from_one_to_next(events), chart="times")
    )


def _from_one_to_next(events: "DataFrame") -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    course = Window.partitionBy("topic", "key").orderBy("c_offset")
    pairs = events.select(
        "topic",
        "key",
        f.col("type").alias("from_type"),
        f.lead("type").over(course).alias("to_type"),
        _seconds(f.col("created_at"), f.lead("created_at").over(course)).alias("taken_s"),
    )
    return (
        pairs.filter("to_type IS NOT NULL")
        .groupBy("topic", "from_type", "to_type")
        .agg(*_percentiles(), f.countDistinct("key").alias("keys"), f.count("*").alias("times"))
        .orderBy("topic", f.desc("times"), "from_type", "to_type")
    )


def _through(events: "DataFrame", steps: Sequence[str]) -> "DataFrame":
    """A key makes a step with the first event of that type after the event of the step before."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    events = events.filter(f.col("type").isin(*steps))
    reached: DataFrame | None = None
    each = []
    for number, step in enumerate(steps, start=1):
        of_type = events.filter(f.col("type") == step)
        if reached is not None:
            before = reached.select(
                "topic", "key", f.col("c_offset").alias("offset_before"), f.col("created_at").alias("before")
            )
            of_type = of_type.join(before, ["topic", "key"]).filter("c_offset > offset_before")
        else:
            of_type = of_type.withColumn("before", f.lit(None).cast("timestamp"))
        reached = of_type.groupBy("topic", "key").agg(
            f.min("c_offset").alias("c_offset"),
            f.min_by("created_at", "c_offset").alias("created_at"),
            f.min_by("before", "c_offset").alias("before"),
        )
        each.append(
            reached.select("topic", _seconds(f.col("before"), f.col("created_at")).alias("taken_s"))
            .groupBy("topic")
            .agg(*_percentiles(), f.count("*").alias("keys"))
            .select("topic", f.lit(number).alias("step"), f.lit(step).alias("type"), *PERCENTILES, "keys")
        )
    together = reduce(lambda one, other: one.unionByName(other), each)
    first = f.first("keys").over(Window.partitionBy("topic").orderBy("step"))
    return together.select(
        "topic", "step", "type", *PERCENTILES, (f.col("keys") / first).alias("of_first"), "keys"
    ).orderBy("topic", "step")


def _seconds(begun: "Column", over: "Column") -> "Column":
    return over.cast("double") - begun.cast("double")


def _percentiles() -> list["Column"]:
    from pyspark.sql import functions as f

    return [f.percentile_approx("taken_s", share).alias(name) for name, share in PERCENTILES.items()]


JOB = SparkJob(
    name="funnel",
    help="how keys get from one event type to the next, and how fast",
    run=run,
    add_arguments=add_arguments,
    by_offset=True,
    from_archive=True,
)
