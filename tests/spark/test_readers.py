"""Reads are exact ranges of the log, typed, and filtered where the data is."""

import datetime as dt
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pubsub import publish
from pubsub.db.sql import load
from pubsub.errors import UnknownTopic
from pubsub.models import LogView, OperatorEvent
from pubsub.sequencing.sequencer import sequence
from pubsub.spark.connection import jdbc_options
from pubsub.spark.errors import InvalidRead, RangeNotThere
from pubsub.spark.plan import BY_INDEX, IN_ORDER, is_dense, message_bounds
from pubsub.spark.ranges import log_range
from pubsub.spark.readers import (
    BYTES_AT_ONCE,
    _fetch_size,
    read_cursors,
    read_dead_letters,
    read_log,
    read_operator_events,
    read_ranges,
    read_subscriptions,
    read_topics,
)
from tests import factories

from .log import make_topic, orders, publish_all

# Spark waits for processor time in many places: on a busy machine a test may take minutes.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]

ODD = [
    None,
    True,
    0,
    "",
    [],
    {},
    {"": ""},
    "Grüße 🎉 \u2028 \\ \" ' \r\n\t \u0001",
    {"ключ": ["значение", {"深い": [[[[None]]]]}]},
    {"number": 12345678901234567890123456789, "small": 1e-300, "negative": -0.5},
    {"quoted": "'; DROP TABLE outbox_topics; --", "json in json": '{"a": 1}'},
    {"huge": "x" * 500_000},
]


def plan_of(frame) -> str:
    frame.sparkSession.conf.set("spark.sql.maxMetadataStringLength", "10000")  # else a list of filters is cut off
    return frame._jdf.queryExecution().executedPlan().toString()


def test_a_read_is_the_range_and_has_types(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", orders(20))
    frame = read_log(spark, "orders", start=5, end=14)
    assert [f"{name} {kind}" for name, kind in frame.dtypes] == [
        "topic string",
        "c_offset bigint",
        "partition_id int",
        "position bigint",
        "event_id string",
        "type string",
        "key string",
        "host_id string",
        "user_id string",
        "to_group string",
        "transaction_id string",
        "payload string",
        "metadata string",
        "created_at timestamp",
    ]
    rows = frame.orderBy("c_offset").collect()
    there = LogView.objects.filter(topic="orders", c_offset__range=(5, 14)).order_by("c_offset")
    for row, entry in zip(rows, there, strict=True):
        for name in ("topic", "c_offset", "partition_id", "position", "type", "key", "host_id", "to_group"):
            assert row[name] == getattr(entry, name)
        assert row.event_id == str(entry.event_id)
        assert row.transaction_id == str(entry.transaction_id)
        assert json.loads(row.payload) == entry.payload
        assert json.loads(row.metadata) == entry.metadata
    times = frame.selectExpr("unix_micros(created_at)").orderBy(1).collect()
    assert [micros for (micros,) in times] == sorted(
        (entry.created_at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1) for entry in there
    )


@pytest.mark.parametrize("range_size", [1, 7, 20, 1000])
def test_however_it_is_divided_each_event_is_read_once(spark: SparkSession, range_size: int) -> None:
    make_topic()
    publish_all("orders", orders(20))
    frame = read_log(spark, "orders", range_size=range_size, fetch_size=3)
    assert frame.rdd.getNumPartitions() == -(-20 // range_size)
    assert sorted(row.c_offset for row in frame.select("c_offset").collect()) == list(range(1, 21))


def test_odd_payloads_arrive_as_they_are(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", ({"payload": payload, "metadata": {"n": n, "odd": payload}} for n, payload in enumerate(ODD)))
    rows = read_log(spark, "orders").orderBy("c_offset").collect()
    assert [json.loads(row.payload) for row in rows] == ODD
    assert [json.loads(row.metadata)["odd"] for row in rows] == ODD
    as_variants = read_log(spark, "orders", payload="variant").orderBy("c_offset")
    assert [json.loads(text) for (text,) in as_variants.selectExpr("to_json(payload)").collect()] == ODD


def test_a_payload_is_read_by_a_schema_that_has_changed(spark: SparkSession) -> None:
    make_topic()
    publish_all(
        "orders", [{"payload": payload} for payload in ({"id": 1}, {"id": 2, "note": "new"}, {"id": "three"}, 4)]
    )
    frame = read_log(spark, "orders", payload="id int, note string").orderBy("c_offset")
    assert [tuple(row) for row in frame.select("payload.id", "payload.note").collect()] == [
        (1, None),
        (2, "new"),
        (None, None),
        (None, None),
    ]


def test_empty_topics_and_ranges(spark: SparkSession) -> None:
    make_topic()
    assert read_log(spark, "orders").count() == 0
    assert read_log(spark, "orders", payload="variant").collect() == []
    publish_all("orders", orders(3))
    assert read_log(spark, "orders", start=4).count() == 0
    assert read_log(spark, "orders", start=2, end=1).count() == 0
    assert read_ranges(spark, []).count() == 0


def test_several_topics_and_all(spark: SparkSession) -> None:
    for name, count in (("a", 3), ("b", 0), ("c", 5)):
        make_topic(name)
        publish_all(name, orders(count))
    counted = read_log(spark).groupBy("topic").count().orderBy("topic").collect()
    assert [tuple(row) for row in counted] == [("a", 3), ("c", 5)]
    assert read_log(spark, ["b", "c"]).count() == 5


def test_a_missing_range_is_refused_with_the_existing_one(spark: SparkSession) -> None:
    topic = make_topic()
    publish_all("orders", orders(10))
    with pytest.raises(UnknownTopic, match=r'no topic "ordres"\. Did you mean "orders"'):
        read_log(spark, "ordres")
    with pytest.raises(RangeNotThere, match="holds offsets 1 to 10: a read cannot begin at 12"):
        read_log(spark, "orders", start=12)
    with pytest.raises(InvalidRead, match="ends before it begins"):
        read_log(spark, "orders", start=5, end=3)
    with pytest.raises(InvalidRead, match="name it"):
        read_log(spark, start=5)
    with pytest.raises(InvalidRead, match="0 to 3, not 4"):
        read_log(spark, "orders", partition=4)
    with pytest.raises(InvalidRead, match="time zone"):
        read_log(spark, "orders", since=dt.datetime(2026, 1, 1))
    retire(topic, up_to=6)
    with pytest.raises(RangeNotThere, match=r"holds offsets 7 to 10: a read cannot begin at 6\. Older events"):
        read_log(spark, "orders", start=6)
    assert read_log(spark, "orders").count() == 4
    retire(topic, up_to=10)
    with pytest.raises(RangeNotThere, match="holds nothing; the next offset is 11"):
        read_log(spark, "orders", start=1)
    assert read_log(spark, "orders").count() == 0


def retire(topic: int, up_to: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM log_entry WHERE topic_id = %s AND c_offset <= %s", [topic, up_to])


def test_a_read_fails_if_retention_drops_its_events(spark: SparkSession) -> None:
    topic = make_topic()
    publish_all("orders", orders(10))
    frame = read_log(spark, "orders", range_size=5)
    retire(topic, up_to=2)
    with pytest.raises(Py4JJavaError, match='Offset 1 of topic "orders" existed when this read was planned'):
        frame.count()
    retire(topic, up_to=10)
    with pytest.raises(Py4JJavaError, match='of topic "orders" existed'):
        frame.collect()


def test_a_read_returns_the_same_twice_while_others_publish(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", orders(500))
    over, published = threading.Event(), threading.Semaphore(0)

    def publish_on() -> None:
        while not over.is_set():
            publish_all("orders", orders(20))
            published.release()
        connections.close_all()

    publisher = threading.Thread(target=publish_on)
    publisher.start()
    try:
        published.acquire(timeout=30)
        frame = read_log(spark, "orders", range_size=50).select("c_offset", "event_id")
        first = sorted(frame.collect())
        for _ in range(3):
            assert published.acquire(timeout=30)
        second = sorted(frame.collect())
    finally:
        over.set()
        publisher.join()
    assert first == second
    assert [row.c_offset for row in first] == list(range(1, len(first) + 1))
    assert log_range("orders").count >= len(first) + 40


def test_an_open_transaction_is_not_part_of_it(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", orders(3))
    with transaction.atomic():
        publish("orders", {"id": "not committed"})
        beside = threading.Thread(target=lambda: (sequence("default"), connections.close_all()))
        beside.start()
        beside.join()
        assert read_log(spark, "orders").count() == 3


def test_filters_are_evaluated_in_the_database(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", orders(30))
    frame = read_log(spark, "orders").filter("type = 'order.1' AND c_offset > 10 AND key LIKE 'customer-3%'")
    plan = plan_of(frame)
    for pushed in ("EqualTo(type,order.1)", "GreaterThan(c_offset,10)", "StringStartsWith(key,customer-3)"):
        assert pushed in plan.replace("*", ""), plan
    assert "Filter" not in plan.replace("PushedFilters", ""), plan
    expected = LogView.objects.filter(type="order.1", c_offset__gt=10, key__startswith="customer-3")
    assert sorted(row.c_offset for row in frame.collect()) == sorted(entry.c_offset for entry in expected)


@pytest.mark.parametrize(
    "condition",
    ["event_id LIKE '%a%'", "payload LIKE '%\"id\": 7,%'", "type > 'order.0'", "key < 'CUSTOMER'", "metadata = '{}'"],
)
def test_a_filter_means_the_same_in_spark_and_in_postgres(spark: SparkSession, condition: str) -> None:
    make_topic()
    publish_all("orders", orders(10))
    frame = read_log(spark, "orders")
    in_spark = spark.createDataFrame(frame.collect(), frame.schema).filter(condition)
    assert sorted(frame.filter(condition).collect()) == sorted(in_spark.collect())


def test_partitions_and_times(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", orders(10))
    between = timezone.now()
    publish_all("orders", orders(10))
    in_partitions = {entry.c_offset for entry in LogView.objects.filter(partition_id__in=(1, 2))}
    assert {row.c_offset for row in read_log(spark, "orders", partition=[1, 2]).collect()} == in_partitions
    assert sorted(row.c_offset for row in read_log(spark, "orders", until=between).collect()) == list(range(1, 11))
    assert sorted(row.c_offset for row in read_log(spark, "orders", since=between).collect()) == list(range(11, 21))


def test_few_rows_are_fetched_at_once_if_they_are_large(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", ({"payload": "x" * 400_000} for _ in range(3)))
    assert _fetch_size([log_range("orders")], "default") == BYTES_AT_ONCE // 400_504
    assert _fetch_size([log_range("default")], "default") == 10_000


def test_the_tables_around_the_log(spark: SparkSession) -> None:
    letter = factories.DeadLetterFactory(topic__name="orders")
    factories.SubscriptionFactory(topic=letter.topic, group_id="email", where={"type": "a"})
    factories.ConsumerOffsetFactory(topic=letter.topic, group_id="email", passed=0)
    factories.LogPartitionCounterFactory(topic=letter.topic, entries=25)
    OperatorEvent.objects.create(actor="olivia", action="pause", after={"status": "PAUSED"})

    (dead,) = read_dead_letters(spark).collect()
    assert (dead.topic, dead.group_id, dead.state) == ("orders", "email-service", "dead")
    assert json.loads(dead.payload) == letter.payload
    assert (dead.exception_class, dead.traceback) == (letter.exception_class, letter.traceback)
    (cursor,) = read_cursors(spark).collect()
    assert (cursor.topic, cursor.group_id, cursor.status, cursor.lag) == ("orders", "email", "ACTIVE", 25)
    (topic,) = read_topics(spark).filter("topic = 'orders'").collect()
    assert (topic.tip, topic.retention_s, topic.max_age_s) == (0, 7 * 24 * 3600, None)
    (subscription,) = read_subscriptions(spark).collect()
    assert (subscription.topic, json.loads(subscription.where)) == ("orders", {"type": "a"})
    (done,) = read_operator_events(spark).filter("actor = 'olivia'").collect()
    assert (done.actor, done.before, json.loads(done.after)) == ("olivia", None, {"status": "PAUSED"})


def test_a_reader_cannot_write_and_does_not_wait_for_ever(spark: SparkSession) -> None:
    def ask(query: str) -> str:
        return spark.read.format("jdbc").options(**jdbc_options(), query=query).load().collect()[0][0]

    assert ask("SELECT current_setting('transaction_read_only')") == "on"
    assert ask("SELECT current_setting('statement_timeout')") == "10min"
    assert ask("SELECT current_setting('TimeZone')") == "UTC"


def test_a_small_topic_beside_a_large_one_is_looked_up(spark: SparkSession) -> None:
    """Walking past all that is stored between its ends would take as long as reading the large one."""
    make_topic()
    make_topic("rare")
    for _ in range(3):
        publish_all("rare", orders(1))
        publish_all("orders", orders(20))
    rare, common = log_range("rare"), log_range("orders")
    assert is_dense(common, "default")
    assert not is_dense(common, "default", share=0.2)
    assert not is_dense(rare, "default")
    for frame, walks in ((read_ranges(spark, [rare]), 0), (read_ranges(spark, [rare, common]), 1)):
        assert plan_of(frame).count("Scan JDBCRelation") == 1 + walks
    assert read_ranges(spark, [rare, common]).select("topic", "c_offset").distinct().count() == 63


@pytest.mark.parametrize("with_statistics", [False, True])
@pytest.mark.parametrize("planning", [IN_ORDER, BY_INDEX])
def test_reads_do_not_depend_on_statistics(planning: dict[str, str], with_statistics: bool) -> None:
    """Nor on the planner's taste, which is to read every message for any range of them."""
    topic = make_topic()
    publish_all("orders", orders(2000))
    piece = log_range("orders", 500, 1500)
    bounds = f" AND {message_bounds(piece)}" if planning is IN_ORDER else ""
    within = f"topic_id = {topic} AND c_offset BETWEEN 500 AND 1500{bounds}"
    query = f"SELECT * FROM ({load('spark/log')}) AS log WHERE {within}"
    with transaction.atomic(), connection.cursor() as cursor:
        if with_statistics:
            cursor.execute("ANALYZE log_entry, outbox_message_t")
        for name, value in planning.items():
            cursor.execute(f"SET LOCAL {name} = '{value}'")
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query}")
        ((found,),) = cursor.fetchall()
    assert found[0]["Plan"]["Actual Rows"] == 1001
    assert max(rows_read(found[0]["Plan"])) <= 1001, found


def rows_read(node: dict[str, Any]) -> Iterator[int]:
    """Of the messages, by each node that reads some."""
    if node.get("Relation Name", "").startswith("outbox_message_t"):
        yield node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
    for below in node.get("Plans", ()):
        yield from rows_read(below)


def test_a_read_holds_a_snapshot_for_one_range_at_a_time(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", ({"payload": {"n": n, "text": "x" * 20_000}} for n in range(1600)))
    frame = read_log(spark, "orders", range_size=100)
    over = threading.Event()
    seen: dict[Any, list[float]] = defaultdict(list)
    at_once: list[int] = []

    def watch() -> None:
        with connection.cursor() as cursor:
            while not over.wait(0.002):
                cursor.execute(
                    "SELECT pid, xact_start FROM pg_stat_activity WHERE application_name = 'pubsub-spark'"
                    " AND datname = current_database() AND (backend_xmin IS NOT NULL OR xact_start IS NOT NULL)"
                )
                open_now = cursor.fetchall()
                at_once.append(len(open_now))
                for session in open_now:
                    seen[session].append(time.monotonic())
        connection.close()

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    took = time.monotonic() - begun
    over.set()
    watcher.join()
    assert frame.rdd.getNumPartitions() == 16
    assert max(at_once) <= 2, "as many as there are cores"
    assert len(seen) > 4, "one after the other"
    assert max(times[-1] - times[0] for times in seen.values()) < took / 2
