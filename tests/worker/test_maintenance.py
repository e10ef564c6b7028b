"""What is done now and then: only when it is due, and as often as one likes."""

import datetime as dt
import uuid

import pytest
from django.db import OperationalError, connection, transaction
from django.test import override_settings
from django.utils import timezone

from pubsub import publish
from pubsub.models import DedupKey
from pubsub.retention import prune
from pubsub.retention.prune import forget_expired_keys
from pubsub.worker import maintenance
from pubsub.worker.maintenance import Maintenance

pytestmark = pytest.mark.django_db(transaction=True)


def remember(key: str, *, hours: int) -> None:
    expiry = timezone.now() + dt.timedelta(hours=hours)
    DedupKey.objects.create(topic_id=1, dedup_key=key, event_id=uuid.uuid4(), expires_at=expiry)


def test_expired_keys_are_forgotten_and_others_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "AT_ONCE", 2)
    for number in range(5):
        remember(f"old {number}", hours=-1)
    remember("young", hours=1)
    assert [forget_expired_keys("default") for _ in range(3)] == [5, 0, 0]
    assert [key.dedup_key for key in DedupKey.objects.all()] == ["young"]


@override_settings(PUBSUB={"dedup_window_s": 3600})
def test_the_window_is_the_one_that_is_set() -> None:
    with transaction.atomic():
        publish("default", 1, dedup_key="k")
    left = DedupKey.objects.get().expires_at - timezone.now()
    assert dt.timedelta(minutes=59) < left <= dt.timedelta(hours=1)


def test_maintenance_is_done_when_it_is_due(django_assert_num_queries: object) -> None:
    upkeep = Maintenance("default")
    remember("old", hours=-1)
    upkeep.step()
    assert not DedupKey.objects.exists()
    with django_assert_num_queries(0):  # type: ignore[operator]
        upkeep.step()


def test_a_busy_worker_does_maintenance_later_but_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    upkeep = Maintenance("default")
    remember("old", hours=-1)
    assert not upkeep.step(busy=True)
    assert DedupKey.objects.exists()
    monkeypatch.setattr(maintenance, "EVERY_S", 0)
    assert upkeep.step(busy=True)
    assert not DedupKey.objects.exists()


def test_a_failure_is_reported_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(using: str) -> None:
        raise PermissionError("permission denied for schema public")

    remember("old", hours=-1)
    assert Maintenance("default", [fails, *maintenance.JOBS]).step()
    assert "fails failed" in caplog.text
    assert not DedupKey.objects.exists()


def test_a_connection_that_was_cut_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "EVERY_S", 0)
    upkeep = Maintenance("default")
    upkeep.step()
    with connection.cursor() as cursor, pytest.raises(OperationalError):
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    remember_through_another_connection("old", hours=-1)
    upkeep.step()
    assert not DedupKey.objects.exists()


def remember_through_another_connection(key: str, *, hours: int) -> None:
    beside = connection.copy()
    with beside.cursor() as cursor:
        cursor.execute(
            "INSERT INTO outbox_dedup_key VALUES (1, %s, gen_random_uuid(), now() + make_interval(hours => %s))",
            [key, hours],
        )
    beside.close()
