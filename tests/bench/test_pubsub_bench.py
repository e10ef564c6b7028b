"""The benchmark measures what it says, in a database that is gone afterwards."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from pubsub.models import OutboxMessage

ALL = ("publish", "locked counter", "django insert", "raw insert", "raw copy")


@pytest.mark.django_db(transaction=True)
def test_every_contestant_takes_part_and_nothing_is_left(settings: object) -> None:
    name = connection.settings_dict["NAME"]
    out = StringIO()
    options = {"clients": 2, "batch": 3, "seconds": 0.2, "rounds": 1, "copy": True, "format": "json"}
    call_command("pubsub_bench", "publish", stdout=out, **options)
    told = json.loads(out.getvalue())
    assert told["options"] == {
        "subject": "publish",
        "alone": False,
        "payload_bytes": 1024,
        "work_ms": 0,
        **_without(options),
    }
    assert set(told["results"]) == set(ALL)
    for figures in told["results"].values():
        assert figures["events_per_s"] > 0
        assert 0 < figures["p50_ms"] <= figures["p99_ms"]
        assert figures["wal_bytes_per_event"] > 1000
        assert figures["times"] > 0
    assert told["results"]["publish"]["times"] == 1
    assert connection.settings_dict["NAME"] == name
    assert not OutboxMessage.objects.exists()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_database WHERE datname = %s", [f"{name}_bench"])
        assert cursor.fetchone() == (0,)


def test_a_database_that_does_not_exist() -> None:
    with pytest.raises(CommandError, match='There is no database "nowhere"; there are: default'):
        call_command("pubsub_bench", "wake", database="nowhere")


def _without(options: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if name not in ("copy", "format")}


@pytest.mark.django_db(transaction=True)
def test_the_text_names_the_ratio() -> None:
    out = StringIO()
    call_command("pubsub_bench", "publish", clients=1, seconds=0.1, rounds=1, stdout=out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "1 clients, 1 events of 1024 bytes a transaction"
    assert [line[:16].strip() for line in lines[2:]] == ["publish", "locked counter", "django insert", "raw insert"]
    assert all(line.endswith("times this") for line in lines[2:])


@pytest.mark.django_db(transaction=True)
def test_events_outside_a_transaction() -> None:
    out = StringIO()
    call_command("pubsub_bench", "publish", alone=True, clients=2, seconds=0.2, rounds=1, format="json", stdout=out)
    told = json.loads(out.getvalue())
    assert told["options"]["alone"] is True
    assert all(figures["events_per_s"] > 0 for figures in told["results"].values())


@pytest.mark.parametrize("options", [{"batch": 2}, {"work_ms": 1}, {"copy": True}])
def test_an_event_outside_a_transaction_cannot_be_in_a_batch(options: dict[str, int]) -> None:
    with pytest.raises(CommandError, match="--alone is about single events"):
        call_command("pubsub_bench", "publish", alone=True, **options)


@pytest.mark.parametrize("subject", ["wake", "latency"])
@pytest.mark.django_db(transaction=True)
def test_latencies_are_compared_with_a_bare_notification(subject: str) -> None:
    out = StringIO()
    call_command("pubsub_bench", subject, count=5, rounds=1, format="json", stdout=out)
    results = json.loads(out.getvalue())["results"]
    assert results[subject]["times"] == 1
    assert results["bare notify"]["times"] > 0
    assert results["there and back"]["times"] > 0
    assert 0 < results[subject]["p50_ms"] <= results[subject]["p99_ms"]


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
@pytest.mark.django_db(transaction=True)
def test_consuming_is_compared_with_a_raw_reader(delivery: str) -> None:
    out = StringIO()
    call_command(
        "pubsub_bench",
        "consume",
        events=500,
        groups=2,
        consumers=2,
        delivery=delivery,
        rounds=1,
        format="json",
        stdout=out,
    )
    told = json.loads(out.getvalue())
    assert told["options"]["events"] == 500
    assert told["options"]["groups"] == 2
    assert told["results"]["consume"]["events_per_s"] > 0
    assert told["results"]["consume"]["wal_bytes_per_event"] > 1000
    assert told["results"]["raw reader"]["times"] > 0


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
@pytest.mark.django_db(transaction=True)
def test_setbacks_are_compared_with_handling_as_ever(delivery: str) -> None:
    out = StringIO()
    call_command("pubsub_bench", "setbacks", events=30, batch=10, delivery=delivery, rounds=1, stdout=out)
    lines = out.getvalue().splitlines()
    assert lines[0] == f"30 events of 1024 bytes and of one key, each a transaction, 10 in a batch, {delivery}"
    assert lines[1].split() == ["events/s", "ordinary", "is"]
    assert [line.split()[0] for line in lines[2:]] == ["ordinary", "parked", "released", "replayed"]
    assert all(line.endswith("times this") for line in lines[2:])


@pytest.mark.django_db(transaction=True)
def test_fanning_out_is_compared_with_the_reference_loop_and_loses_nothing() -> None:
    out = StringIO()
    call_command("pubsub_bench", "fanout", groups=2, seconds=0.5, rounds=1, format="json", stdout=out)
    results = json.loads(out.getvalue())["results"]
    assert set(results) == {"fanout", "reference loop"}
    for figures in results.values():
        assert figures["written_per_s"] > 0
        assert figures["read_per_s"] > 0
        assert figures["times"] > 0
