"""Ready or not: what makes the difference, and who sees why."""

import json
from typing import Any

import pytest
from django.db import connection, transaction
from django.http import HttpRequest
from django.test import RequestFactory, override_settings

from pubsub import publish
from pubsub.monitoring import readiness
from pubsub.monitoring.readiness import Readiness, Watch, problems
from pubsub.sequencing.sequencer import sequence

pytestmark = pytest.mark.django_db(transaction=True)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    watched = Watch(clock)
    monkeypatch.setattr(readiness, "watch", lambda using: watched)
    return clock


def ask(**options: Any) -> tuple[int, Any]:
    response = Readiness.as_view(**options)(RequestFactory().get("/ready/"))
    assert "no-cache" in response.headers["Cache-Control"]
    return response.status_code, json.loads(response.content)


def say(payload: Any) -> None:
    with transaction.atomic():
        publish("default", payload)


def test_ready() -> None:
    assert ask() == (200, {"ready": True})
    assert Readiness.as_view()(RequestFactory().post("/ready/")).status_code == 405


def test_events_that_stay_unnumbered_make_it_not_ready(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    say(1)
    assert ask() == (200, {"ready": True})
    clock.now += 59
    assert ask() == (200, {"ready": True})
    clock.now += 1
    assert ask() == (503, {"ready": False})
    assert "has not been numbered for 60 s" in caplog.text
    sequence("default")
    assert ask() == (200, {"ready": True})


def test_it_is_ready_if_there_are_always_new_events_but_all_are_numbered(clock: Clock) -> None:
    for n in range(5):
        say(n)
        assert ask() == (200, {"ready": True})
        sequence("default")
        clock.now += 100


def test_a_transaction_that_was_open_for_long_is_seen_when_it_commits_and_not_before(clock: Clock) -> None:
    with transaction.atomic():
        publish("default", 1)
    clock.now += 1000
    assert ask() == (200, {"ready": True})


def test_the_setting_says_how_long(clock: Clock) -> None:
    say(1)
    with override_settings(PUBSUB={"sequencer_stuck_s": 5}):
        assert ask()[0] == 200
        clock.now += 5
        assert ask()[0] == 503


def test_strangers_get_no_details(clock: Clock) -> None:
    say(1)
    ask()
    clock.now += 100
    assert ask(details=lambda request: False) == (503, {"ready": False})
    status, answer = ask(details=lambda request: isinstance(request, HttpRequest))
    assert (status, list(answer["problems"])) == (503, ["numbering"])


def test_a_migration_that_is_missing() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'pubsub' AND name LIKE '0001%%' RETURNING name")
        (name,) = cursor.fetchone()
        try:
            assert problems("default") == {"migrations": f"not applied: {name}"}
        finally:
            cursor.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('pubsub', %s, now())", [name])
    assert problems("default") == {}


def test_a_database_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    try:
        status, answer = ask(details=lambda request: True)
    finally:
        connection.close()
    assert (status, list(answer["problems"])) == (503, ["database"])


def test_a_database_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "ANSWER_WITHIN_MS", 50)
    monkeypatch.setattr(readiness, "load", lambda name: "SELECT pg_sleep(60)::text")
    assert "statement timeout" in problems("default")["database"]


def test_restored_into_another_cluster_it_is_not_ready_until_that_is_repaired(clock: Clock) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE log_sequencer SET system_identifier = 1")
        assert ask()[0] == 200
        clock.now += 100
        assert ask()[0] == 503
        sequence("default")
    assert ask()[0] == 200


def test_the_question_is_cheap_on_a_long_log() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN " + readiness.load("monitoring/oldest_unnumbered"))
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Seq Scan on outbox_message" not in plan
    assert "outbox_message_t" in plan
