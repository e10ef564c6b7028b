"""Jobs, run by the command as people run it, on a real session and a log of known content."""

import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pyspark.sql import SparkSession

from pubsub.models import Finding, LogView, Sample
from tests.factories import DeadLetterFactory

from .log import make_topic, orders, publish_all

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(400), pytest.mark.usefixtures("spark")]

SHOP = [
    ("anna", "created"),
    ("bert", "created"),
    ("anna", "paid"),
    ("anna", "sent"),
    ("bert", "paid"),
    ("carl", "paid"),
]


def run(job: str, *arguments: object) -> dict[str, Any]:
    printed = io.StringIO()
    call_command("run_spark_job", job, "--format", "json", *map(str, arguments), stdout=printed)
    return json.loads(printed.getvalue())


def sql(text: str, *parameters: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text, parameters)


def backdate(seconds_by_offset: dict[int, float], begun: dt.datetime) -> None:
    for offset, seconds in seconds_by_offset.items():
        message = LogView.objects.get(topic="orders", c_offset=offset).message_id
        sql("UPDATE outbox_message_t SET created_at = %s WHERE id = %s", begun + dt.timedelta(seconds=seconds), message)


def test_throughput_counts_each_event_once(spark: SparkSession) -> None:
    make_topic()
    make_topic("others")
    publish_all("orders", orders(30))
    publish_all("others", orders(5))
    rows = run("throughput", "--per", "day")["rows"]
    assert {(row["topic"], row["type"]): row["events"] for row in rows} == {
        **{("orders", f"order.{n}"): 10 for n in range(3)},
        ("others", "order.0"): 1,
        ("others", "order.1"): 2,
        ("others", "order.2"): 2,
    }
    assert sum(row["events"] for row in run("throughput", "--topic", "orders", "--start", 5, "--end", 9)["rows"]) == 5
    assert run("throughput", "--until", "2000-01-01")["rows"] == []


def test_results_go_to_files_and_to_the_admin(spark: SparkSession, tmp_path: Path) -> None:
    make_topic()
    publish_all("orders", orders(30))
    found = run("throughput", "--save", "--output", tmp_path / "parquet")
    assert spark.read.parquet(str(tmp_path / "parquet")).count() == 3
    saved = Finding.objects.filter(run_id=found["run_id"], job="throughput").order_by("row_number")
    assert [finding.row_number for finding in saved] == [0, 1, 2]
    assert [finding.data["type"] for finding in saved] == ["order.0", "order.1", "order.2"]
    assert [finding.data["events"] for finding in saved] == [10, 10, 10]
    assert saved[0].parameters["columns"] == found["columns"]
    run("throughput", "--output", tmp_path / "csv", "--file-format", "csv")
    (file,) = (tmp_path / "csv").glob("*.csv")
    assert file.read_text().splitlines()[0] == "topic,hour,type,keys,per_second,events"
    run("throughput", "--output", tmp_path / "json", "--file-format", "json")
    (file,) = (tmp_path / "json").glob("*.json")
    assert [json.loads(line)["events"] for line in file.read_text().splitlines()] == [10, 10, 10]
    with pytest.raises(CommandError, match="exists already") as raised:
        run("throughput", "--output", tmp_path / "csv", "--file-format", "csv")
    assert raised.value.returncode == 1
    run("throughput", "--output", tmp_path / "csv", "--file-format", "csv", "--overwrite")


def test_what_is_redacted_is_shown_by_no_job(spark: SparkSession, settings: Any, tmp_path: Path) -> None:
    settings.PUBSUB = {"redact_paths": ["card"]}
    make_topic()
    publish_all("orders", [{"payload": {"card": "4111-1111", "total": 3}, "key": "k"}])
    DeadLetterFactory(exception_message="4111-1111 was refused")
    (row,) = run("snapshot", "--save", "--output", tmp_path / "now")["rows"]
    assert json.loads(row["payload"]) == {"card": "[redacted]", "total": 3}
    (row,) = run("dead_letters", "--save")["rows"]
    assert row["for_example"] == "[redacted]"
    # The page of findings asks for no permission to see payloads.
    saved = {finding.job: finding.data for finding in Finding.objects.all()}
    assert (saved["snapshot"]["payload"], saved["snapshot"]["key"]) == ("[redacted]", "k")
    assert saved["dead_letters"]["for_example"] == "[redacted]"
    assert "4111-1111" in (spark.read.parquet(str(tmp_path / "now")).first() or {})["payload"]  # files are for programs


def test_the_admin_shows_the_columns_as_the_job_has_them(spark: SparkSession, admin_client: Any) -> None:
    make_topic()
    publish_all("orders", orders(30))
    run("throughput", "--save", "--topic", "orders")
    (shown,) = admin_client.get("/admin/pubsub/finding/").context["runs"]
    assert shown.columns == ["topic", "hour", "type", "keys", "per_second", "events"]
    assert shown.charted == "events"
    assert shown.chart
    assert "columns" not in shown.parameters
    assert "topics: orders" in shown.parameters


def test_latency_lies_between_two_samples(spark: SparkSession) -> None:
    topic = make_topic()
    publish_all("orders", orders(4))
    begun = dt.datetime(2030, 1, 1, 12, tzinfo=dt.UTC)
    backdate({1: 0, 2: 0, 3: 20, 4: 50}, begun)
    # After 10 s none had been passed, after 40 s the first two, after 70 s three of four.
    for seconds, tip, lag in ((10, 2, 2), (40, 3, 1), (70, 4, 1)):
        Sample.objects.create(topic_id=topic, group_id="mail", tip=tip, lag=lag)
        sql(
            "UPDATE outbox_samples SET taken_at = %s WHERE id = (SELECT max(id) FROM outbox_samples)",
            begun + dt.timedelta(seconds=seconds),
        )
    (row,) = run("latency")["rows"]
    assert (row["topic"], row["group"], row["events"]) == ("orders", "mail", 3)
    assert (row["p50_at_least_s"], row["p50_at_most_s"]) == (10, 40)
    assert (row["p99_at_least_s"], row["p99_at_most_s"]) == (20, 50)
    assert run("latency", "--since", "2031-01-01")["rows"] == []


def test_dead_letters_are_grouped_by_the_requested_columns(spark: SparkSession) -> None:
    topic = make_topic()
    for number, (group, error) in enumerate([("mail", "Timeout"), ("mail", "Timeout"), ("bill", "KeyError")], start=1):
        DeadLetterFactory(topic_id=topic, group_id=group, exception_class=error, key=f"k{number}", c_offset=number)
    rows = run("dead_letters")["rows"]
    assert [(row["group"], row["exception"], row["letters"], row["keys"]) for row in rows] == [
        ("mail", "Timeout", 2, 2),
        ("bill", "KeyError", 1, 1),
    ]
    assert all(row["first_seen"] <= row["last_seen"] for row in rows)
    assert {row["key"]: row["letters"] for row in run("dead_letters", "--by", "key")["rows"]} == {
        "k1": 1,
        "k2": 1,
        "k3": 1,
    }
    assert sum(row["letters"] for row in run("dead_letters", "--by", "hour", "group")["rows"]) == 3
    assert run("dead_letters", "--topic", "default")["rows"] == []


def test_skew_names_hot_keys_and_tries_other_numbers_of_partitions(spark: SparkSession) -> None:
    make_topic(partitions=2)
    publish_all("orders", ({"payload": n, "key": "hot" if n % 2 else f"k{n}"} for n in range(200)))
    found = run("skew", "--topic", "orders", "--keys", 1)
    rows = found["rows"]
    assert [(row["name"], row["events"], row["share"]) for row in rows if row["what"] == "key"] == [("hot", 100, 0.5)]
    assert sum(row["events"] for row in rows if row["what"] == "partition") == 200
    # What is tried for the present number of partitions is what the sequencer has really done.
    busiest = max(row["events"] for row in rows if row["what"] == "partition")
    assert {row["name"]: row["events"] for row in rows if row["what"] == "busiest of"}["2 partitions"] == busiest
    assert "The hottest key has 50.0 %" in found["notes"][0]


def test_a_funnel_is_how_keys_get_from_type_to_type(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", ({"payload": 1, "key": key, "type": type} for key, type in SHOP))
    backdate({1: 0, 2: 0, 3: 10, 4: 40, 5: 20, 6: 0}, dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    rows = run("funnel", "--topic", "orders", "--steps", "created", "paid", "sent")["rows"]
    assert [(row["type"], row["keys"], row["of_first"], row["p95_s"]) for row in rows] == [
        ("created", 2, 1.0, None),
        ("paid", 2, 1.0, 20.0),
        ("sent", 1, 0.5, 30.0),
    ]
    rows = run("funnel", "--topic", "orders")["rows"]
    assert [(row["from_type"], row["to_type"], row["times"]) for row in rows] == [
        ("created", "paid", 2),
        ("paid", "sent", 1),
    ]


def test_an_audit_of_a_whole_log_finds_nothing(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", orders(30))
    publish_all("orders", orders(30))
    found = run("audit")
    assert found["problems"] == []
    assert "orders: offsets 1 to 60 are whole." in found["notes"]


def test_an_audit_names_what_is_wrong(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small chunks, so that what is wrong also lies between two of them.
    monkeypatch.setattr("pubsub.spark.jobs.audit.CHUNK", 10)
    topic = make_topic()
    publish_all("orders", orders(60))
    message = LogView.objects.get(topic="orders", c_offset=50).message_id
    sql("DELETE FROM log_entry WHERE topic_id = %s AND (c_offset IN (5, 6) OR c_offset BETWEEN 18 AND 31)", topic)
    sql("UPDATE log_entry SET position = position - 3 WHERE topic_id = %s AND c_offset = 40", topic)
    sql("DELETE FROM outbox_message_t WHERE id = %s", message)
    sql("DELETE FROM log_entry WHERE topic_id = %s AND c_offset = 60", topic)
    sql(
        "INSERT INTO consumer_offsets (group_id, topic_id, partition_id, next_offset) VALUES ('mail', %s, 0, 99)", topic
    )
    with pytest.raises(CommandError) as raised:
        call_command("run_spark_job", "audit", "--topic", "orders", stdout=io.StringIO())
    assert raised.value.returncode == 1
    said = str(raised.value).splitlines()
    assert [line.removeprefix("orders: ").split(":")[0] for line in said] == [
        "cursor beyond the tip at offset 99",
        "gap at offsets 5 to 6",
        "gap at offsets 18 to 31",
        "gap at offset 60",
        "lost message at offset 50",
        "order at offset 40",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["throughput", "--topic", "ordres"], "There is no topic"),
        (["throughput", "--start", "3"], "name one"),
        (["throughput", "--topic", "default", "--start", "30"], "cannot begin at 30"),
        (["throughput", "--database", "nowhere"], "There is no database"),
    ],
)
def test_invalid_requests_are_explained(spark: SparkSession, arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("run_spark_job", *arguments)


def test_the_printed_table_is_readable(spark: SparkSession) -> None:
    make_topic()
    publish_all("orders", orders(3000))
    printed = io.StringIO()
    call_command("run_spark_job", "throughput", "--topic", "orders", "--rows", 2, stdout=printed)
    heading, first, *rest = printed.getvalue().splitlines()
    assert heading.split() == ["topic", "hour", "type", "keys", "per", "second", "events"]
    assert first.split()[-1] == "1,000"
    assert rest[-1] == "… and more. These are the first 2 rows; --rows shows more."
    call_command("run_spark_job", "dead_letters", stdout=printed)
    assert printed.getvalue().splitlines()[-1] == "There is nothing to show."
