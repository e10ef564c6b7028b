"""Temporary subscriptions: gone with all that is theirs when idle, and never while they are used."""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from pubsub import publish
from pubsub.models import ConsumerOffset, DeadLetter, Lease, Member, Subscription
from pubsub.retention.expire import expire_idle
from pubsub.subscriptions.register import register_subscription
from tests.audit import journal
from tests.handlers import Recorder, declare, drain
from tests.sessions import Running, Session, connect

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = dt.timedelta(minutes=1)
LONG_AGO = timezone.now() - dt.timedelta(hours=1)


@pytest.fixture
def session(transactional_db: None) -> Iterator[Session]:
    with connect() as opened:
        yield opened


@pytest.fixture
def temporary() -> Callable[..., Subscription]:
    """Makes a subscription that was used last an hour ago."""

    def make(group: str, **options: Any) -> Subscription:
        register_subscription(declare(Recorder(), group=group), using="default")
        known = {"expires_after": MINUTE, "created_at": LONG_AGO, "status_changed_at": LONG_AGO}
        known |= {"last_heartbeat_at": LONG_AGO, **options}
        Subscription.objects.filter(group_id=group).update(**known)
        ConsumerOffset.objects.filter(group_id=group).update(updated_at=LONG_AGO)
        return Subscription.objects.get(group_id=group)

    return make


def test_an_idle_subscription_is_removed_with_its_cursors(temporary: Callable[..., Subscription]) -> None:
    with transaction.atomic():
        publish("default", 1)
    drain(declare(Recorder(fails=lambda event: True), group="idle"))
    temporary("idle")
    temporary("lasting", expires_after=None)
    temporary("patient", expires_after=dt.timedelta(days=1))
    assert expire_idle("default") == [("default", "idle")]
    assert sorted(Subscription.objects.values_list("group_id", flat=True)) == ["lasting", "patient"]
    assert not ConsumerOffset.objects.filter(group_id="idle").exists()
    assert ConsumerOffset.objects.filter(group_id="patient").count() == 8
    assert DeadLetter.objects.filter(group_id="idle").count() == 1
    (told,) = journal().all()
    assert (told.actor, told.action, told.topic, told.group_id) == ("maintenance", "expire", "default", "idle")
    assert told.reason == "not used for 00:01:00"
    assert expire_idle("default") == []
    assert journal().count() == 1


def test_a_group_that_returns_begins_again(temporary: Callable[..., Subscription]) -> None:
    temporary("idle")
    expire_idle("default")
    with transaction.atomic():
        publish("default", "new")
    again = Recorder()
    drain(declare(again, group="idle"))
    assert again.payloads == ["new"]


@pytest.mark.parametrize("used", ["created", "heartbeat", "member", "moved", "lease", "changed"])
def test_a_used_subscription_stays(temporary: Callable[..., Subscription], used: str) -> None:
    temporary("used")
    now = timezone.now()
    subscription = Subscription.objects.filter(group_id="used")
    if used == "created":
        subscription.update(created_at=now)
    elif used == "heartbeat":
        subscription.update(last_heartbeat_at=now)
    elif used == "member":
        Member.objects.create(topic_id=1, group_id="used", worker_id="w", last_heartbeat_at=now)
    elif used == "changed":
        subscription.update(status_changed_at=now)
    elif used == "moved":
        ConsumerOffset.objects.filter(group_id="used", partition_id=3).update(updated_at=now)
    else:
        lease = {"first_offset": 1, "last_offset": 2, "worker_id": "w", "epoch": 1, "expires_at": now + MINUTE}
        Lease.objects.create(group_id="used", topic_id=1, partition_id=0, **lease)
    assert expire_idle("default") == []
    assert ConsumerOffset.objects.filter(group_id="used").count() == 8
    Lease.objects.update(expires_at=now)
    Member.objects.update(last_heartbeat_at=LONG_AGO)
    if used in ("lease", "member"):
        assert expire_idle("default") == [("default", "used")]
        assert not Lease.objects.exists()
        assert not Member.objects.exists()


def test_a_running_subscription_stays_though_it_expires_before_its_next_heartbeat(
    temporary: Callable[..., Subscription],
) -> None:
    """A heartbeat comes once a minute. What is published after it had expired would be lost to a worker that runs."""
    temporary("quick", expires_after=dt.timedelta(seconds=10))
    beat_at = timezone.now() - dt.timedelta(seconds=50)
    member = Member.objects.create(topic_id=1, group_id="quick", worker_id="w", last_heartbeat_at=beat_at)
    assert expire_idle("default") == []
    member.delete()  # it has stopped in good order
    assert expire_idle("default") == [("default", "quick")]


def test_a_subscription_that_a_worker_holds_stays(temporary: Callable[..., Subscription], session: Session) -> None:
    temporary("busy")
    session.execute("BEGIN")
    session.execute("SELECT FROM consumer_offsets WHERE group_id = 'busy' AND partition_id = 5 FOR UPDATE")
    assert expire_idle("default") == []
    session.execute("UPDATE consumer_offsets SET updated_at = now() WHERE group_id = 'busy' AND partition_id = 5")
    session.execute("COMMIT")
    assert expire_idle("default") == []
    assert ConsumerOffset.objects.filter(group_id="busy").count() == 8


def test_several_processes_at_once_remove_each_once(temporary: Callable[..., Subscription]) -> None:
    for n in range(10):
        temporary(f"idle-{n}")
    at_once = [Running(expire_idle, "default") for _ in range(4)]
    removed = [pair for running in at_once for pair in running.result()]
    removed += expire_idle("default")  # what one has locked another skips
    assert sorted(removed) == [("default", f"idle-{n}") for n in range(10)]
    assert journal().count() == 10


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_any_default_isolation(temporary: Callable[..., Subscription], isolation: str) -> None:
    temporary("idle")
    with connection.cursor() as cursor:
        cursor.execute(f"SET default_transaction_isolation = '{isolation}'")
    try:
        assert expire_idle("default") == [("default", "idle")]
    finally:
        connection.close()
