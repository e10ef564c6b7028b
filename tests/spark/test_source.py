"""The format `pubsub`: streams that go on exactly where they were, and batches that are published once."""

import json
from pathlib import Path

import pytest
from django.db import connection
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pubsub.models import ConsumerLag, ConsumerOffset, LogView, OutboxMessage, SinkBatch, StagedEvent, Subscription
from pubsub.spark.errors import InvalidRead
from pubsub.spark.readers import read_log
from pubsub.spark.register import register_format
from pubsub.spark.stream_options import read_options

from .log import make_topic, number_all, orders, publish_all
from .test_readers import ODD, retire

# Spark waits for processor time in many places: on a busy machine a test may take minutes.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]


@pytest.fixture(autouse=True)
def _on_the_test_database(spark: SparkSession, transactional_db: None) -> None:
    register_format(spark)


class Stream:
    """A query that reads what is available into Parquet, and can be started again."""

    def __init__(self, spark: SparkSession, folder: Path, **options: object) -> None:
        self.spark, self.folder, self.options = spark, folder, {"topic": "orders", "startingOffsets": "earliest"}
        self.options |= options

    def run(self) -> list[int]:
        """Reads to the tip. Returns how many events each of its batches had."""
        query = (
            self.spark.readStream.format("pubsub")
            .options(**self.options)
            .load()
            .writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        if query.exception():
            raise query.exception()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    @property
    def offsets(self) -> list[int]:
        rows = self.spark.read.parquet(str(self.folder / "out")).orderBy("topic", "c_offset").collect()
        return [row.c_offset for row in rows]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def test_it_continues_where_it_was(stream: Stream) -> None:
    make_topic()
    publish_all("orders", orders(10))
    assert stream.run() == [10]
    assert stream.run() == []
    publish_all("orders", orders(5))
    assert stream.run() == [5]
    assert stream.offsets == list(range(1, 16))


def test_a_trigger_takes_no_more_than_it_may(stream: Stream) -> None:
    make_topic()
    make_topic("others")
    publish_all("orders", orders(10))
    publish_all("others", orders(5))
    stream.options |= {"topics": "orders,others", "maxOffsetsPerTrigger": "6"}
    batches = stream.run()
    assert sum(batches) == 15
    assert max(batches) <= 6
    assert stream.offsets == [*range(1, 11), *range(1, 6)]


@pytest.mark.parametrize(
    ("starting", "expected"),
    [("latest", []), ('{"orders": 4}', [4, 5])],
)
def test_where_it_begins(stream: Stream, starting: str, expected: list[int]) -> None:
    make_topic()
    publish_all("orders", orders(5))
    stream.options["startingOffsets"] = starting
    stream.run()
    if expected:
        assert stream.offsets == expected
    publish_all("orders", orders(1))
    stream.run()
    assert stream.offsets == [*expected, 6]


def test_a_stream_has_what_the_readers_read(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", ({"payload": payload, "key": f'k\n"{n}",', "type": ""} for n, payload in enumerate(ODD)))
    publish_all("orders", orders(5))
    frame = spark.read.format("pubsub").option("topic", "orders").option("rangeSize", 4).load()
    there = read_log(spark, "orders")
    assert frame.dtypes == there.dtypes
    assert frame.orderBy("c_offset").collect() == there.orderBy("c_offset").collect()
    assert [json.loads(row.payload) for row in frame.orderBy("c_offset").limit(len(ODD)).collect()] == ODD


def test_a_batch_read_takes_a_closed_range(spark: SparkSession) -> None:
    make_topic()
    reader = spark.read.format("pubsub").option("topic", "orders")
    assert reader.load().count() == 0
    publish_all("orders", orders(10))
    part = reader.option("startingOffsets", '{"orders": 3}').option("endingOffsets", '{"orders": 7}').load()
    assert sorted(row.c_offset for row in part.collect()) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": ""}, "needs the option topic"),
        ({"startingOffset": "1"}, "has no option startingoffset"),
        ({"startingOffsets": "first"}, "startingOffsets must be earliest, latest, or JSON"),
        ({"startingOffsets": '{"others": 1}'}, "for topics of this query"),
        ({"startingOffsets": '{"orders": 0}'}, "for topics of this query"),
        ({"endingOffsets": "latest"}, "endingOffsets is for batch reads"),
        ({"maxOffsetsPerTrigger": "none"}, "whole number of at least 1, not 'none'"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"pollSeconds": "soon"}, "number of seconds from 0 to 3600, not 'soon'"),
    ],
)
def test_wrong_options_are_explained(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRead, match=said):
        read_options({"topic": "orders"} | options, streaming=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group": "a"}, "group is for streams"),
        ({"topic": "ordres"}, 'There is no topic "ordres"'),
        ({"startingOffsets": '{"orders": 99}'}, "is at offset 99"),
    ],
)
def test_a_query_says_why_it_does_not_begin(spark: SparkSession, options: dict[str, str], said: str) -> None:
    make_topic()
    with pytest.raises(PySparkException, match=said):
        spark.read.format("pubsub").options(**{"topic": "orders"} | options).load().count()


@pytest.mark.long
def test_events_that_retention_dropped_are_not_skipped_silently(stream: Stream) -> None:
    topic = make_topic()
    publish_all("orders", orders(10))
    stream.options["startingOffsets"] = '{"orders": 3}'
    stream.options["maxOffsetsPerTrigger"] = "2"
    stream.run()
    publish_all("orders", orders(10))
    retire(topic, up_to=13)
    with pytest.raises(PySparkException, match="retention has dropped 3 unread events"):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    stream.run()
    assert stream.offsets == [*range(3, 11), *range(14, 21)]


@pytest.mark.long
def test_another_log_under_the_same_offsets_is_noticed(stream: Stream) -> None:
    """As after a restore of an older copy, which then goes on differently."""
    topic = make_topic()
    publish_all("orders", orders(10))
    stream.run()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM log_entry WHERE topic_id = %s AND c_offset > 5", [topic])
        cursor.execute("UPDATE log_counter SET next_offset = 6 WHERE topic_id = %s", [topic])
    with pytest.raises(PySparkException, match="the log ends at 5: the database is not the one"):
        stream.run()
    publish_all("orders", orders(10))
    with pytest.raises(PySparkException, match=r"offset 10 is event .*: the database is not the one"):
        stream.run()


def test_a_group_holds_retention_back_and_shows_its_lag(stream: Stream) -> None:
    make_topic()
    publish_all("orders", orders(20))
    stream.options |= {"group": "analytics", "maxOffsetsPerTrigger": "8"}
    stream.run()
    assert Subscription.objects.get(group_id="analytics").status == "ACTIVE"
    lags = ConsumerLag.objects.filter(group_id="analytics")
    assert [(place.partition_id, place.lag, place.next_offset) for place in lags.order_by("partition_id")] == [
        (partition, 0, 21) for partition in range(4)
    ]
    publish_all("orders", orders(7))
    assert sum(place.lag for place in lags.all()) == 7
    stream.run()
    assert sum(place.lag for place in lags.all()) == 0
    counted = {place.partition_id: place.passed for place in ConsumerOffset.objects.filter(group_id="analytics")}
    for partition, passed in counted.items():
        assert passed == LogView.objects.filter(topic="orders", partition_id=partition).count()


@pytest.mark.long
def test_a_group_keeps_its_cursors_without_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    make_topic()
    publish_all("orders", orders(6))
    Stream(spark, tmp_path / "one", group="analytics").run()
    publish_all("orders", orders(3))
    again = Stream(spark, tmp_path / "two", group="analytics")
    del again.options["startingOffsets"]
    again.run()
    assert again.offsets == [7, 8, 9]


@pytest.mark.long
def test_a_group_can_be_paused_and_fails_if_it_does_not_count(stream: Stream) -> None:
    make_topic()
    publish_all("orders", orders(6))
    stream.options["group"] = "analytics"
    stream.run()
    publish_all("orders", orders(3))
    Subscription.objects.update(status="PAUSED")
    assert stream.run() == []
    Subscription.objects.update(status="DEAD")
    with pytest.raises(PySparkException, match='group "analytics" to topic "orders" is DEAD'):
        stream.run()
    Subscription.objects.update(status="ACTIVE")
    assert stream.run() == [3]


# The sink


def publish_frame(frame: DataFrame, **options: object) -> None:
    frame.write.format("pubsub").mode("append").options(**options).save()


def test_a_frame_is_published_in_one_transaction(spark: SparkSession) -> None:
    make_topic()
    frame = spark.range(10).selectExpr("named_struct('id', id, 'when', current_timestamp()) payload", "id key")
    publish_frame(frame.repartition(3), topic="orders")
    number_all()
    log = LogView.objects.filter(topic="orders")
    assert sorted(entry.payload["id"] for entry in log) == list(range(10))
    assert {entry.key for entry in log} == {str(n) for n in range(10)}
    assert len({entry.transaction_id for entry in log}) == 1
    assert not StagedEvent.objects.exists()


def test_a_read_frame_can_be_published_unchanged(spark: SparkSession) -> None:
    make_topic()
    make_topic("copy")
    publish_all("orders", ({"payload": payload, "key": f"k{n}"} for n, payload in enumerate(ODD)))
    frame = spark.read.format("pubsub").option("topic", "orders").load()
    publish_frame(frame.selectExpr("'copy' topic", "type", "key", "payload", "metadata").orderBy("c_offset"))
    number_all()
    copied = LogView.objects.filter(topic="copy").order_by("c_offset")
    assert [entry.payload for entry in copied] == ODD
    assert [entry.key for entry in copied] == [f"k{n}" for n in range(len(ODD))]
    as_variant = read_log(spark, "orders", payload="variant").select("payload")
    publish_frame(as_variant, topic="copy")
    assert OutboxMessage.objects.count() == 3 * len(ODD)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["'{}' payload"], {}, 'give the option "topic"'),
        (["'{}' body"], {"topic": "orders"}, "Events have no body"),
        (["'key' key"], {"topic": "orders"}, 'A column "payload" is needed'),
        (["'{}' payload"], {"topic": "ordres"}, 'no topic "ordres"; nothing was published'),
        (["'not json' payload"], {"topic": "orders"}, "payload is not valid JSON"),
        (["double('NaN') payload"], {"topic": "orders"}, "cannot be written as JSON"),
        (["char(0) payload"], {"topic": "orders"}, "not valid JSON"),
        (["'\"\\\\u0000\"' payload"], {"topic": "orders"}, "PostgreSQL cannot store"),
        (["concat('\"', repeat('1', 1100000), '\"') payload"], {"topic": "orders"}, "at most 1,048,576"),
        (["'{}' payload"], {"topic": "orders", "sink": "a"}, "sink and batchId belong together"),
    ],
)
def test_an_invalid_event_is_refused_and_nothing_is_left(
    spark: SparkSession, columns: list[str], options: dict[str, str], said: str
) -> None:
    make_topic()
    with pytest.raises(PySparkException, match=said):
        publish_frame(spark.range(1).selectExpr(*columns), **options)
    assert not OutboxMessage.objects.exists()
    assert not StagedEvent.objects.exists()


def test_a_named_batch_is_published_once(spark: SparkSession) -> None:
    make_topic()
    frame = spark.range(3).selectExpr("string(id) payload")
    for _ in range(3):
        publish_frame(frame, topic="orders", sink="nightly", batchId=7)
    assert OutboxMessage.objects.count() == 3
    publish_frame(frame, topic="orders", sink="nightly", batchId=8)
    assert OutboxMessage.objects.count() == 6
    assert SinkBatch.objects.count() == 2


@pytest.mark.long
def test_a_stream_that_repeats_its_last_batch_publishes_it_once(spark: SparkSession, tmp_path: Path) -> None:
    make_topic()
    make_topic("totals")

    def run() -> None:
        frame = spark.readStream.format("pubsub").option("topic", "orders").option("startingOffsets", "earliest").load()
        query = (
            frame.selectExpr("key", "payload")
            .writeStream.format("pubsub")
            .option("topic", "totals")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    def count() -> int:
        return OutboxMessage.objects.filter(topic__name="totals").count()

    publish_all("orders", orders(5))
    run()
    publish_all("orders", orders(4))
    run()
    assert count() == 9
    # Spark notes last of all that a batch is done: killed right before, it does the batch again.
    notes = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    notes[-1].unlink()
    (notes[-1].parent / f".{notes[-1].name}.crc").unlink()
    run()
    assert count() == 9
    assert SinkBatch.objects.count() == 2
    assert not StagedEvent.objects.exists()
