"""The archive has each event once, whatever happens to the process that writes it, and retention waits for it."""

import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pyspark.sql import SparkSession

from pubsub.db import locks
from pubsub.models import ConsumerLag, ConsumerOffset, LogView, Subscription
from pubsub.spark.archive import Archive, archive_topic, read_archive
from pubsub.spark.errors import ArchiveBroken, ArchiveBusy, RangeNotThere
from pubsub.spark.readers import read_log

from .log import make_topic, orders, publish_all

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(400), pytest.mark.usefixtures("spark")]

STEPS = ["staged", "checked", "named", "published", "moved"]


class Killed(BaseException):
    """Nothing in between is to catch it."""


def killed_at(step: str, times: int = 1) -> Any:
    seen: list[str] = []

    def reached(name: str) -> None:
        seen.append(name)
        if seen.count(step) == times:
            raise Killed

    return reached


def sql(text: str, *parameters: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text, parameters)


def offsets(frame: Any) -> list[int]:
    return sorted(row.c_offset for row in frame.select("c_offset").collect())


def retire(topic: int, up_to: int) -> None:
    """As retention does: from the front, and counted."""
    sql("DELETE FROM log_entry WHERE topic_id = %s AND c_offset <= %s", topic, up_to)


def run(job: str, *arguments: object) -> dict[str, Any]:
    printed = io.StringIO()
    call_command("run_spark_job", job, "--format", "json", *map(str, arguments), stdout=printed)
    return json.loads(printed.getvalue())


def test_the_archive_equals_the_log(spark: SparkSession, tmp_path: Path) -> None:
    make_topic("odd/topic %*")
    publish_all("odd/topic %*", orders(20))
    publish_all("odd/topic %*", [{"payload": {"ключ": ["🎉", None]}, "key": "a b"}, {"payload": "x" * 300_000}])
    # Of two dates, of which one task has both.
    message = LogView.objects.get(topic="odd/topic %*", c_offset=7).message_id
    sql("UPDATE outbox_message_t SET created_at = '2020-02-29 23:59:59.999999+00' WHERE id = %s", message)
    root = str(tmp_path / "an archive")
    done = archive_topic(spark, root, "odd/topic %*", range_size=8)
    assert [(piece.first, piece.last) for piece in done.pieces] == [(1, 8), (9, 16), (17, 22)]
    assert done.pieces[0].files[0].date == "2020-02-29"
    live = read_log(spark, "odd/topic %*")
    again = read_archive(spark, root, "odd/topic %*")
    assert again.columns == live.columns
    assert again.orderBy("c_offset").collect() == live.orderBy("c_offset").collect()
    assert offsets(read_archive(spark, root, "odd/topic %*", start=5, end=10)) == [5, 6, 7, 8, 9, 10]
    assert offsets(read_archive(spark, root, "odd/topic %*", until=dt.datetime(2021, 1, 1, tzinfo=dt.UTC))) == [7]
    with pytest.raises(RangeNotThere, match="offsets 1 to 22, but not 23"):
        read_archive(spark, root, "odd/topic %*", start=5, end=23)


def test_retention_waits_for_unarchived_events(spark: SparkSession, tmp_path: Path) -> None:
    topic = make_topic()
    publish_all("orders", orders(20))
    archive_topic(spark, str(tmp_path), "orders")
    publish_all("orders", orders(7))
    lags = ConsumerLag.objects.filter(group_id="archive")
    assert {place.next_offset for place in lags} == {21}
    assert sum(place.lag for place in lags) == 7
    archive_topic(spark, str(tmp_path), "orders")
    assert sum(place.lag for place in lags.all()) == 0
    for place in ConsumerOffset.objects.filter(group_id="archive", topic_id=topic):
        assert place.passed == LogView.objects.filter(topic="orders", partition_id=place.partition_id).count()


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_ends_anywhere_is_completed_by_the_next(spark: SparkSession, tmp_path: Path, step: str) -> None:
    make_topic()
    publish_all("orders", orders(20))
    with pytest.raises(Killed):
        archive_topic(spark, str(tmp_path), "orders", range_size=10, reached=killed_at(step, times=2))
    # The group never stands behind what is safe.
    safe = Archive(spark, str(tmp_path)).topic("orders").pieces()[-1].last
    assert {place.next_offset for place in ConsumerOffset.objects.filter(group_id="archive")} <= {11, safe + 1}
    publish_all("orders", orders(5))
    archive_topic(spark, str(tmp_path), "orders", range_size=10)
    assert offsets(read_archive(spark, str(tmp_path), "orders")) == list(range(1, 26))
    assert {place.next_offset for place in ConsumerOffset.objects.filter(group_id="archive")} == {26}
    archive_topic(spark, str(tmp_path), "orders")  # which also cleans
    named = {file.path for piece in Archive(spark, str(tmp_path)).topic("orders").pieces() for file in piece.files}
    there = {str(path.relative_to(tmp_path / "topic=orders")) for path in tmp_path.rglob("*.parquet")}
    assert there == named


def test_small_ranges_are_merged_and_the_old_files_removed_later(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic()
    root = str(tmp_path)
    for n in range(4):
        publish_all("orders", orders(3))
        done = archive_topic(spark, root, "orders", together=4)
        assert len(done.merged) == (n == 3)
    archive = Archive(spark, root).topic("orders")
    assert [(piece.first, piece.last, len(piece.files)) for piece in archive.pieces()] == [(1, 12, 1)]
    assert len(archive.every_piece()) == 5
    assert offsets(read_archive(spark, root, "orders")) == list(range(1, 13))
    monkeypatch.setattr("pubsub.spark.archive.write.REPLACED_STAY_S", -1)
    archive_topic(spark, root, "orders")
    assert len(archive.every_piece()) == 1
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert offsets(read_archive(spark, root, "orders")) == list(range(1, 13))


def test_archive_and_log_are_one_range(spark: SparkSession, tmp_path: Path) -> None:
    topic = make_topic()
    root = str(tmp_path)
    publish_all("orders", orders(20))
    archive_topic(spark, root, "orders")
    publish_all("orders", orders(10))
    before = read_log(spark, "orders").orderBy("c_offset").collect()
    retire(topic, up_to=15)
    both = read_log(spark, "orders", archive=root)
    assert both.orderBy("c_offset").collect() == before
    assert offsets(read_log(spark, "orders", archive=root, start=12, end=24)) == list(range(12, 25))
    parsed = read_log(spark, "orders", archive=root, payload="id int", partition=[0, 1]).select("payload.id")
    assert parsed.count() == sum(row.partition_id in (0, 1) for row in before)
    counted = run("throughput", "--topic", "orders", "--archive", root)["rows"]
    assert sum(row["events"] for row in counted) == 30
    retire(topic, up_to=25)
    with pytest.raises(RangeNotThere, match="offsets 21 to 25 are neither in the archive nor in the log"):
        read_log(spark, "orders", archive=root)


def test_lost_offsets_are_named(spark: SparkSession, tmp_path: Path) -> None:
    topic = make_topic()
    root = str(tmp_path)
    publish_all("orders", orders(10))
    archive_topic(spark, root, "orders")
    publish_all("orders", orders(10))
    retire(topic, up_to=15)
    with pytest.raises(RangeNotThere, match="dropped offsets 11 to 15"):
        archive_topic(spark, root, "orders")
    archive_topic(spark, root, "orders", allow_gap=True)
    assert offsets(read_archive(spark, root, "orders")) == [*range(1, 11), *range(16, 21)]
    with pytest.raises(RangeNotThere, match="lacks offsets 11 to 15"):
        read_archive(spark, root, "orders", start=5, end=18)


def test_another_log_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    topic = make_topic()
    publish_all("orders", orders(10))
    archive_topic(spark, str(tmp_path), "orders")
    sql("DELETE FROM log_entry WHERE topic_id = %s AND c_offset > 5", topic)
    sql("UPDATE log_counter SET next_offset = 6 WHERE topic_id = %s", topic)
    with pytest.raises(ArchiveBroken, match="ends at offset 10, and the log at 5"):
        archive_topic(spark, str(tmp_path), "orders")
    publish_all("orders", orders(10))
    with pytest.raises(ArchiveBroken, match=r"Offset 10 .* is event"):
        archive_topic(spark, str(tmp_path), "orders")


def test_it_does_not_run_when_it_must_not(spark: SparkSession, tmp_path: Path) -> None:
    topic = make_topic()
    publish_all("orders", orders(5))
    archive_topic(spark, str(tmp_path), "orders")
    Subscription.objects.update(status="DEAD")
    with pytest.raises(ArchiveBusy, match="is DEAD: its unarchived events may be dropped"):
        archive_topic(spark, str(tmp_path), "orders")
    Subscription.objects.update(status="ACTIVE")
    other = connection.copy()
    lock = f"hashtext('{topic} archive') # {locks.WORKERS}"
    try:
        with other.cursor() as cursor:
            cursor.execute(f"SELECT pg_advisory_lock({lock})")
            with pytest.raises(ArchiveBusy, match="Another run is archiving"):
                archive_topic(spark, str(tmp_path), "orders")
            cursor.execute(f"SELECT pg_advisory_unlock({lock})")  # the end of a connection is noticed a moment later
    finally:
        other.close()
    archive_topic(spark, str(tmp_path), "orders")


def test_an_audit_compares_archive_and_log(spark: SparkSession, tmp_path: Path) -> None:
    make_topic()
    root = str(tmp_path)
    publish_all("orders", orders(30))
    assert run("archive", "--topic", "orders", "--to", root, "--dry-run")["rows"][0]["last"] == 30
    assert not list(tmp_path.iterdir())
    assert not Subscription.objects.exists()
    run("archive", "--topic", "orders", "--to", root, "--range-size", 10)
    assert run("audit", "--topic", "orders", "--archive", root)["problems"] == []
    message = LogView.objects.get(topic="orders", c_offset=25).message_id
    sql("UPDATE outbox_message_t SET payload = '{}' WHERE id = %s", message)
    pieces = Archive(spark, root).topic("orders").pieces()
    damaged = tmp_path / "topic=orders" / pieces[0].files[0].path
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    (tmp_path / "topic=orders" / pieces[1].files[0].path).unlink()
    with pytest.raises(CommandError) as raised:
        run("audit", "--topic", "orders", "--archive", root)
    assert [line.rpartition(": date=")[0] or line for line in str(raised.value).splitlines()] == [
        "orders: archive and log differ at offset 25",
        "orders: damaged file at offsets 1 to 10",
        "orders: missing file at offsets 11 to 20",
    ]


def test_a_snapshot_is_the_latest_event_of_each_key(spark: SparkSession, tmp_path: Path) -> None:
    topic = make_topic()
    root = str(tmp_path / "archive")
    publish_all("orders", [{"payload": n, "key": f"k{n % 3}", "type": "changed"} for n in range(9)])
    archive_topic(spark, root, "orders")
    retire(topic, up_to=8)
    publish_all("orders", [{"payload": None, "key": "k1", "type": "deleted"}, {"payload": 10, "host_id": "h"}])
    found = run("snapshot", "--topic", "orders", "--archive", root, "--gone", "deleted", "--output", tmp_path / "now")
    assert [(row["key"], row["payload"], row["c_offset"]) for row in found["rows"]] == [
        ("h", "10", 11),
        ("k0", "6", 7),
        ("k2", "8", 9),
    ]
    assert spark.read.parquet(str(tmp_path / "now")).count() == 3
