"""Measure reading against Spark's own JDBC reader: `python -m bench.spark`, with DJANGO_SETTINGS_MODULE set.

It fills a scratch database with messages, and a plain table with the same columns, then lets the contestants take turns
over the same partitions: Spark's JDBC reader on the plain table, `read_log`, the streaming source, and archiving the
whole log to Parquet. What counts are the ratios; all figures are medians. The driver's peak memory is printed, too.
"""

import argparse
import json
import re
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import DEFAULT_DB_ALIAS, connections

from pubsub.spark.columns import COLUMNS
from pubsub.spark.connection import jdbc_options
from pubsub.spark.readers import read_log
from pubsub.spark.register import register_format
from pubsub.spark.session import build_session

from .scratch import scratch_database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "bench"

FILL = """
INSERT INTO outbox_message_t (topic_id, type, key, host_id, user_id, payload, metadata)
SELECT topic.id, 'order.' || mod(n, 3), 'customer-' || mod(n, 1000), 'shop-' || mod(n, 10), mod(n, 100)::text,
       jsonb_build_object('order', n, 'total', mod(n, 90), 'note', repeat('x', %(bytes)s)),
       jsonb_build_object('trace', md5(n::text))
FROM outbox_topics AS topic, generate_series(%(first)s::integer, %(last)s) AS n WHERE topic.name = 'bench'
"""


def compare(
    session: "SparkSession", *, messages: int, partitions: int, rounds: int, say: Callable[[str], None], using: str
) -> dict[str, dict[str, float]]:
    """The seconds that each contestant takes for all messages, and how fast each is by the plain reader's measure."""
    size = -(-messages // partitions)
    register_format(session, using=using)
    options = {**jdbc_options(using), "fetchsize": "10000"}
    url = options.pop("url")
    cuts = [f"c_offset BETWEEN {first} AND {first + size - 1}" for first in range(1, messages + 1, size)]

    def plain() -> "DataFrame":
        return session.read.jdbc(url, "bench_copy", predicates=cuts, properties=options)

    def reader() -> "DataFrame":
        return read_log(session, TOPIC, range_size=size, using=using)

    contestants: Mapping[str, Callable[[], float]] = {
        "plain jdbc": lambda: _drain(plain()),
        "read_log": lambda: _drain(reader()),
        "stream": lambda: _stream(session, size),
        "archive": lambda: _archive(session, using),
    }
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            seconds = run()
            say(f"{'warming up' if number == 0 else f'round {number}'}: {name} {seconds:.2f} s")
            if number:
                taken[name].append(seconds)
    return {
        name: {
            "seconds": statistics.median(seconds),
            "messages_per_s": messages / statistics.median(seconds),
            "of_plain": statistics.median(plain / own for plain, own in zip(taken["plain jdbc"], seconds, strict=True)),
            "of_read_log": statistics.median(read / own for read, own in zip(taken["read_log"], seconds, strict=True)),
        }
        for name, seconds in taken.items()
    }


def _drain(frame: "DataFrame") -> float:
    begun = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - begun


def _stream(session: "SparkSession", size: int) -> float:
    """Of one batch's own time: starting a query and its checkpoint is not reading."""
    folder = tempfile.mkdtemp()
    try:
        frame = session.readStream.format("pubsub").option("topic", TOPIC).option("startingOffsets", "earliest")
        query = (
            frame.option("rangeSize", size)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(progress.durationMs["addBatch"] for progress in query.recentProgress if progress.numInputRows) / 1000
    finally:
        shutil.rmtree(folder)


def _archive(session: "SparkSession", using: str) -> float:
    from pubsub.spark.archive.write import archive_topic

    folder = tempfile.mkdtemp()
    try:
        begun = time.monotonic()
        archive_topic(session, folder, TOPIC, group=f"bench-{uuid.uuid4()}", using=using)
        return time.monotonic() - begun
    finally:
        shutil.rmtree(folder)


def _driver_mb(session: "SparkSession") -> tuple[float, float]:
    """The most heap that the driver may have, and the most memory that its process has had."""
    java = session._jvm.java.lang  # type: ignore[union-attr]
    status = Path(f"/proc/{java.ProcessHandle.current().pid()}/status").read_text()
    (peak_kb,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return java.Runtime.getRuntime().maxMemory() / 1e6, int(peak_kb) / 1e3


@contextmanager
def scratch_log(using: str, *, messages: int, payload_bytes: int, say: Callable[[str], None]) -> Iterator[None]:
    """A database beside the real one, with a log of so many messages and a plain copy of it."""
    from pubsub.models import Topic
    from pubsub.retention.partitions import make_partitions_ahead
    from pubsub.sequencing.sequencer import sequence

    with scratch_database(using):
        Topic.objects.using(using).create(name=TOPIC)
        step = 50_000
        for first in range(1, messages + 1, step):
            with connections[using].cursor() as cursor:
                last = min(first + step - 1, messages)
                cursor.execute(FILL, {"first": first, "last": last, "bytes": payload_bytes})
            sequence(using)
            make_partitions_ahead(using)
            say(f"published {last:,} of {messages:,} messages")
        with connections[using].cursor() as cursor:
            cursor.execute(f"CREATE TABLE bench_copy AS SELECT {', '.join(COLUMNS)} FROM outbox_log_v")
            cursor.execute("CREATE UNIQUE INDEX ON bench_copy (c_offset)")
            cursor.execute("VACUUM ANALYZE")
        yield


def main() -> None:
    import django

    django.setup()
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--messages", type=int, default=1_000_000, help="in the log (default: 1,000,000)")
    parser.add_argument("--payload-bytes", type=int, default=300, help="of text in a payload (default: 300)")
    parser.add_argument("--partitions", type=int, default=8, help="of the read (default: 8)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each, after one to warm up (default: 5)")
    parser.add_argument("--master", help="where Spark runs (default: as configured)")
    parser.add_argument("--memory", help="of the driver, such as 512m (default: as configured)")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--database", default=DEFAULT_DB_ALIAS)
    options = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    session = build_session(app_name="pubsub-bench", master=options.master, memory=options.memory)
    with scratch_log(options.database, messages=options.messages, payload_bytes=options.payload_bytes, say=say):
        table = compare(
            session,
            messages=options.messages,
            partitions=options.partitions,
            rounds=options.rounds,
            say=say,
            using=options.database,
        )
        heap_mb, peak_mb = _driver_mb(session)
    session.stop()
    if options.format == "json":
        print(json.dumps({"results": table, "driver_peak_mb": peak_mb}))
        return
    for name, figures in table.items():
        print(
            f"{name:<12}{figures['seconds']:>8.2f} s{figures['messages_per_s']:>12,.0f} messages/s"
            f"{figures['of_plain']:>8.2f} × plain{figures['of_read_log']:>8.2f} × read_log"
        )
    print(f"The driver may have {heap_mb:,.0f} MB of heap; it has had {peak_mb:,.0f} MB of memory at most.")


if __name__ == "__main__":
    main()
