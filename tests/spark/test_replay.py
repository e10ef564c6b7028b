"""Archived events go to one group once more, and to no other."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pyspark.sql import SparkSession

from pubsub.models import LogView, OutboxMessage, Subscription
from pubsub.spark.archive import archive_topic
from pubsub.spark.archive.replay import ReplayRequest, replay

from .log import make_topic, number_all, orders, publish_all

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(400), pytest.mark.usefixtures("spark")]


class Killed(BaseException):
    pass


@pytest.fixture
def root(spark: SparkSession, tmp_path: Path) -> str:
    """An archive of thirty events, one of them for another group only."""
    topic = make_topic()
    publish_all("orders", orders(29))
    publish_all("orders", [{"payload": 1e22, "key": "customer-1", "type": "order.0", "to_group": "other"}])
    archive_topic(spark, str(tmp_path), "orders")
    Subscription.objects.create(topic_id=topic, group_id="late")
    return str(tmp_path)


def run(*arguments: object) -> dict[str, Any]:
    printed = io.StringIO()
    command = ["run_spark_job", "replay", "--topic", "orders", "--to-group", "late", "--format", "json"]
    call_command(*command, *map(str, arguments), stdout=printed)
    return json.loads(printed.getvalue())


def replayed() -> list[LogView]:
    number_all()
    return list(LogView.objects.filter(topic="orders", to_group="late").order_by("c_offset"))


def test_events_are_repeated_unchanged_and_in_order(root: str) -> None:
    found = run("--from", root)
    assert sum(row["events"] for row in found["rows"]) == 29
    first = list(LogView.objects.filter(topic="orders", c_offset__lte=29).order_by("c_offset"))
    again = replayed()
    for column in ("event_id", "type", "key", "host_id", "user_id", "payload"):
        assert [getattr(event, column) for event in again] == [getattr(event, column) for event in first]
    assert [event.metadata["replayed_from"]["offset"] for event in again] == list(range(1, 30))


def test_by_range_key_and_type(root: str) -> None:
    run("--from", root, "--start", 5, "--end", 20, "--key", "customer-1", "--key", "customer-2", "--type", "order.1")
    assert {event.metadata["replayed_from"]["offset"] for event in replayed()} == {
        n for n in range(5, 21) if n % 7 in (1, 2) and n % 3 == 1
    }


def test_a_dry_run_publishes_nothing(root: str) -> None:
    before = OutboxMessage.objects.count()
    found = run("--from", root, "--dry-run")
    assert sum(row["events"] for row in found["rows"]) == 29
    assert OutboxMessage.objects.count() == before


def test_an_interrupted_replay_continues_and_repeats_nothing(
    spark: SparkSession, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub.spark.archive.replay.BATCH", 10)
    wanted = ReplayRequest(topic="orders", group="late")

    def reached(events: int) -> None:
        if events == 20:
            raise Killed

    with pytest.raises(Killed):
        replay(spark, root, wanted, reached=reached)
    done = replay(spark, root, wanted)
    assert (done.events, done.before) == (9, 20)
    assert replay(spark, root, wanted).events == 0
    assert [event.metadata["replayed_from"]["offset"] for event in replayed()] == list(range(1, 30))
    assert replay(spark, root, wanted, again=True).events == 29


def test_a_group_that_does_not_read_the_topic_is_refused(root: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM outbox_topic_subscriptions WHERE group_id = 'late'")
    with pytest.raises(CommandError, match="no one would receive the events"):
        run("--from", root)
