"""Metrics: the same figures as everywhere, for those who may see them, and as Prometheus reads them."""

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import RequestFactory
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from pubsub import publish, publish_many, signals
from pubsub.models import ConsumerLag, DeadLetter, Status, Subscription
from pubsub.monitoring import metrics
from pubsub.monitoring.metrics import Metrics
from pubsub.monitoring.problems import CODES
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.register import register_subscription
from tests.handlers import Recorder, declare, drain
from tests.sessions import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def parse(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """By name, then by the labels' values in the order of the labels' names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def scrape(**options: Any) -> dict[str, dict[tuple[str, ...], float]]:
    options.setdefault("permission", lambda request: True)
    response = Metrics.as_view(**options)(RequestFactory().get("/metrics/"))
    assert (response.status_code, "no-cache" in response.headers["Cache-Control"]) == (200, True)
    return parse(response.content.decode())


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0


@pytest.fixture
def counting() -> Iterator[None]:
    metrics.instrument()
    metrics.instrument()
    yield
    for signal in (signals.batch_handled, signals.event_failed, signals.sequenced):
        signal.disconnect(dispatch_uid="pubsub.monitoring.metrics")


def test_the_gauges_are_those_of_the_views() -> None:
    register_subscription(declare(Recorder()), using="default")
    with transaction.atomic():
        publish_many("default", [{"payload": n, "key": n} for n in range(10)])
    sequence("default")
    found = scrape()
    assert found["pubsub_database_up"] == {(): 1}
    assert found["pubsub_topic_tip_offset"][("default",)] == 10
    assert found["pubsub_topic_kept_events"][("default",)] == 10
    lag = {("readers", str(place.partition_id), "default"): place.lag for place in ConsumerLag.objects.all()}
    assert sum(lag.values()) == 10
    assert found["pubsub_lag_events"] == lag
    behind = found["pubsub_lag_seconds"]
    assert all((behind[place] > 0) == (lag[place] > 0) for place in lag)
    states = found["pubsub_group_status"]
    assert states == {("readers", each, "default"): each == "ACTIVE" for each in Status.values}
    assert found["pubsub_members"] == {("readers", "default"): 0}
    assert found["pubsub_oldest_transaction_seconds"] == {(): 0}
    assert found["pubsub_unnumbered_seconds"] == {(): 0}
    with transaction.atomic():
        publish("default", "not numbered")
    found = scrape()
    assert found["pubsub_unnumbered_seconds"][()] > 0
    assert sum(found["pubsub_lag_events"].values()) == 11
    assert max(found["pubsub_lag_seconds"].values()) > 0


def test_problems_are_a_gauge_that_never_loses_a_series() -> None:
    register_subscription(declare(Recorder()), using="default")
    assert scrape()["pubsub_problems"] == dict.fromkeys(CODES.items(), 0)
    Subscription.objects.update(status="PAUSED")
    assert scrape()["pubsub_problems"][("paused", "note")] == 1


def test_open_dead_letters_by_group_and_state() -> None:
    for n in range(3):
        with transaction.atomic():
            publish("default", n)
    drain(declare(Recorder(fails=lambda event: event.payload != 1)))
    found = scrape()["pubsub_dead_letters"]
    assert found == {("readers", state, "default"): n for state, n in (("dead", 2), ("retrying", 0), ("parked", 0))}
    assert DeadLetter.objects.filter(state="dead").count() == 2


@pytest.mark.usefixtures("counting")
def test_a_consumer_counts_what_it_does() -> None:
    labels = {"group": "counted", "topic": "default"}
    with transaction.atomic():
        publish_many("default", [{"payload": n, "key": "k"} for n in range(3)])
    with transaction.atomic():
        publish("default", "bad", key="k")
    before = counted("pubsub_events_sequenced_total")
    drain(declare(Recorder(fails=lambda event: event.payload == "bad"), group="counted"))
    assert counted("pubsub_events_sequenced_total") == before + 4
    assert counted("pubsub_events_handled_total", **labels) == 3
    assert counted("pubsub_events_failed_total", **labels) == 1
    assert counted("pubsub_batches_total", **labels) >= 1
    assert counted("pubsub_batch_seconds_count", **labels) == counted("pubsub_batches_total", **labels)
    assert counted("pubsub_batch_seconds_sum", **labels) > 0
    assert scrape()["pubsub_events_handled_total"][("counted", "default")] == 3


@pytest.mark.parametrize("options", [{}, {"permission": lambda request: False}, {"permission": lambda request: None}])
def test_closed_unless_a_permission_opens_it(options: dict[str, Any]) -> None:
    response = Metrics.as_view(**options)(RequestFactory().get("/metrics/"))
    assert response.status_code == 403
    assert b"pubsub" not in response.content


def test_the_permission_gets_the_request() -> None:
    view = Metrics.as_view(permission=lambda request: request.headers.get("Authorization") == "Bearer secret")
    assert view(RequestFactory().get("/", headers={"Authorization": "Bearer wrong"})).status_code == 403
    assert view(RequestFactory().get("/", headers={"Authorization": "Bearer secret"})).status_code == 200


def test_a_scraper_that_wants_openmetrics_gets_it() -> None:
    request = RequestFactory().get("/", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    response = Metrics.as_view(permission=bool)(request)
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert response.content.rstrip().endswith(b"# EOF")


def test_without_a_database_the_process_is_still_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    try:
        found = scrape()
    finally:
        connection.close()
    assert found["pubsub_database_up"] == {(): 0}
    assert "pubsub_lag_events" not in found
    assert "python_info" in found


def other_sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND state IS NOT NULL"
        )
        return int(cursor.fetchone()[0])


@pytest.mark.usefixtures("counting")
def test_a_consumer_serves_its_metrics_and_leaves_no_connection_open() -> None:
    server = metrics.serve(0)
    try:
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as response:
                found = parse(response.read().decode())
            assert found["pubsub_database_up"] == {(): 1}
        # A server process is gone a moment after its client has left.
        wait_until(lambda: other_sessions() == 0, "no connection is left open")
    finally:
        server.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30)


def test_registering_needs_no_database() -> None:
    connection.close()
    metrics.everything()
    assert connection.connection is None
