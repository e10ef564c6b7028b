"""Whether the work is spread evenly: the busiest partitions and keys, and how many partitions would help."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pubsub.spark.ranges import extents

from .job import JobRequest, JobResult, SparkJob
from .pieces import read_pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRIED = (1, 2, 4, 8, 16, 32, 64, 128)

GOOD_ENOUGH = 1.25
"""Partitions are enough if the busiest one has no more than this times the lowest possible share."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=10, help="how many of the hottest keys to list (default: 10)")


def run(request: JobRequest) -> JobResult:
    from pyspark.sql import functions as f

    known = extents(request.topics or None, request.using)
    ranges = [extent.range(request.start, request.end) for extent in known]
    events = read_pieces(request.session, "ordering_keys", ranges, using=request.using)
    if request.since:
        events = events.filter(f.col("created_at") >= f.lit(request.since))
    if request.until:
        events = events.filter(f.col("created_at") < f.lit(request.until))
    per_key = events.groupBy("topic", "partition_id", "key", "hash").agg(f.count("*").alias("events")).persist()
    try:
        sizes = {extent.topic: extent.partitions for extent in known}
        found = _partitions(per_key) + _keys(per_key, request.options.get("keys", 10)) + _tried(per_key, sizes)
    finally:
        per_key.unpersist()
    totals: dict[str, int] = {}
    for topic, what, _, events_there in found:
        totals[topic] = totals.get(topic, 0) + events_there * (what == "partition")
    rows = [
        (topic, what, name, events_there / totals[topic], events_there)
        for topic, what, name, events_there in sorted(found, key=_order)
    ]
    frame = request.session.createDataFrame(rows, "topic string, what string, name string, share double, events bigint")
    return JobResult(frame=frame, chart="share", notes=[_advice(topic, rows, sizes[topic]) for topic in totals])


def _order(row: Any) -> Any:
    topic, what, name, events = row
    if what == "key":
        return topic, 1, -events, name or ""
    return topic, 0 if what == "partition" else 2, int(name.split()[0]), ""


def _partitions(per_key: "DataFrame") -> list[Any]:
    counted = per_key.groupBy("topic", "partition_id").agg({"events": "sum"}).collect()
    return [(topic, "partition", str(number), events) for topic, number, events in counted]


def _keys(per_key: "DataFrame", most: int) -> list[Any]:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    by_key = per_key.filter("key IS NOT NULL").groupBy("topic", "key").agg(f.sum("events").alias("events"))
    rank = f.row_number().over(Window.partitionBy("topic").orderBy(f.desc("events"), "key"))
    hottest = by_key.withColumn("rank", rank).filter(f.col("rank") <= most).collect()
    return [(row.topic, "key", row.key, row.events) for row in hottest]


def _tried(per_key: "DataFrame", sizes: dict[str, int]) -> list[Any]:
    """How many events the busiest partition would have had with this many partitions."""
    from pyspark.sql import functions as f

    numbers = sorted({*TRIED, *sizes.values()})
    counted = (
        per_key.select("topic", "hash", "events", f.explode(f.array(*map(f.lit, numbers))).alias("partitions"))
        .groupBy("topic", "partitions", (f.col("hash") % f.col("partitions")).alias("number"))
        .agg(f.sum("events").alias("events"))
        .groupBy("topic", "partitions")
        .agg(f.max("events").alias("events"))
        .collect()
    )
    return [(row.topic, "busiest of", f"{row.partitions} partitions", row.events) for row in counted]


def _advice(topic: str, rows: Sequence[Any], now: int) -> str:
    """What a topic's figures mean.

    >>> rows = [("a", "key", "k", 0.1, 10), *(("a", "busiest of", f"{n} partitions", 1 / n, 1) for n in (1, 2, 4, 8))]
    >>> _advice("a", rows, 2)
    'a: of 2 partitions the busiest has 50.0 % of the events; 8 would bring that to 12.5 %. ...10.0 %...'
    """
    of_topic = [row for row in rows if row[0] == topic]
    busiest = {int(name.split()[0]): share for _, what, name, share, _ in of_topic if what == "busiest of"}
    hottest = max((row[3] for row in of_topic if row[1] == "key"), default=0)
    enough = next(
        number for number in sorted(busiest) if busiest[number] <= GOOD_ENOUGH * max(min(busiest.values()), hottest)
    )
    text = f"{topic}: of {now} partitions the busiest has {busiest[now]:.1%} of the events".replace("%", " %")
    if enough > now:
        text += f"; {enough} would bring that to {busiest[enough]:.1%}.".replace("%", " %")
    else:
        text += "; more would not help."
    if hottest:
        text += f" The hottest key has {hottest:.1%}, so its partition has at least that.".replace("%", " %")
    return text


JOB = SparkJob(
    name="skew",
    help="the busiest partitions and keys, and how many partitions would help",
    run=run,
    add_arguments=add_arguments,
    by_offset=True,
)
