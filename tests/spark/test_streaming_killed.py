"""A driver that is killed in the middle goes on from its checkpoint: nothing lost, nothing twice."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection
from pyspark.sql import SparkSession

from pubsub.models import LogView, StagedEvent
from tests.sessions import database_url

from .log import make_topic, number_all, orders, publish_all

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, pytest.mark.timeout(900)]

CHECKOUT = Path(__file__).resolve().parents[2]

# Reads "orders" in small batches into files and, as a second query, publishes it to "copy". Says what each has done.
PROGRAM = """
import sys, django
django.setup()
from pubsub.spark.session import build_session
folder = sys.argv[1]
session = build_session(master="local[2]", memory="768m", config={"spark.log.level": "ERROR"})

def start(sink, checkpoint, **options):
    frame = session.readStream.format("pubsub").option("topic", "orders").option("startingOffsets", "earliest")
    frame = frame.option("maxOffsetsPerTrigger", 10).option("group", checkpoint).load()
    if sink == "pubsub":
        frame = frame.select("key", "payload")
    writer = frame.writeStream.format(sink).option("checkpointLocation", f"{folder}/{checkpoint}").options(**options)
    return writer.trigger(availableNow=True).start()

print("ready", flush=True)
queries = [start("parquet", "files", path=f"{folder}/out"), start("pubsub", "copies", topic="copy")]
told = set()
while any(query.isActive for query in queries):
    for query in queries:
        for progress in query.recentProgress:
            if (query.name, query.id, progress.batchId) not in told:
                told.add((query.name, query.id, progress.batchId))
                print("batch", progress.batchId, flush=True)
    queries[0].awaitTermination(0.05)
for query in queries:
    query.awaitTermination()
print("over", flush=True)
"""


@contextmanager
def driver(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    environment = os.environ | {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        cwd=CHECKOUT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout
        process.stdout.close()


def test_it_continues_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    make_topic()
    make_topic("copy")
    publish_all("orders", orders(200))
    for batches in (3, 5):
        with driver(tmp_path) as process:
            assert process.stdout
            seen = 0
            for line in process.stdout:
                seen += line.startswith("batch")
                if seen == batches:
                    # Java and its workers too: as when the machine loses its power.
                    os.killpg(process.pid, signal.SIGKILL)
                    break
            assert process.wait() == -signal.SIGKILL
    publish_all("orders", orders(20, first=201))
    with driver(tmp_path) as process:
        assert process.stdout
        assert process.stdout.read().endswith("over\n")
        assert process.wait() == 0
    read = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.c_offset for row in read) == list(range(1, 221))
    number_all()
    copied = LogView.objects.filter(topic="copy").order_by("c_offset")
    assert sorted(entry.payload["id"] for entry in copied) == list(range(1, 221))
    assert [json.loads(row.payload) for row in sorted(read, key=lambda row: row.c_offset)] == [
        entry.payload for entry in LogView.objects.filter(topic="orders").order_by("c_offset")
    ]
    with connection.cursor() as cursor:
        cursor.execute("SELECT group_id, sum(lag) FROM consumer_lag_v GROUP BY group_id ORDER BY 1")
        assert cursor.fetchall() == [("copies", 0), ("files", 0)]
    assert StagedEvent.objects.count() <= 10, "a task that was killed while staging may leave its rows for a week"
