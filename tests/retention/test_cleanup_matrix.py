"""What retention keeps and what it lets go, for each kind of topic, each state of its groups, and each age."""

import datetime as dt
import itertools

import pytest

from pubsub.models import ConsumerOffset, LogEntry, OutboxMessage, Subscription
from pubsub.retention.drop import drop_expired, dry_run
from pubsub.subscriptions.register import register_subscription
from tests.handlers import Recorder, declare, drain

from .helpers import ROWS, check_storage, make_old, publish_events, sql, state, topic

pytestmark = pytest.mark.django_db(transaction=True)

KINDS = {"queue": ("QUEUE", 1), "no groups": ("PUB_SUB", 0), "one group": ("PUB_SUB", 1), "two groups": ("PUB_SUB", 2)}
CASES = ("read", "unread", "paused", "dead", "late joiner")
HOLDS = {"unread", "paused", "late joiner"}


def a_group(case: str, group: str = "the one in question") -> Recorder:
    """A group in the given state, before or after 25 events have been published."""
    handler = Recorder()
    declared = declare(handler, group=group, topic="orders")
    if case != "late joiner":
        register_subscription(declared, using="default")
    publish_events("orders", 25)
    if case == "late joiner":
        register_subscription(declared, using="default")
    elif case == "read":
        drain(declared)
    elif case in ("paused", "dead"):
        Subscription.objects.filter(group_id=group).update(status=case.upper())
    return handler


@pytest.mark.parametrize(
    ("kind", "case", "expired"),
    [
        (kind, case, expired)
        for kind, case, expired in itertools.product(KINDS, CASES, (False, True))
        if KINDS[kind][1] or case == "unread"
    ],
)
def test_what_is_dropped(small: None, kind: str, case: str, expired: bool) -> None:
    semantics, groups = KINDS[kind]
    topic("orders", semantics=semantics)
    if groups:
        second = declare(Recorder(), group="the other", topic="orders")
        if groups == 2:
            register_subscription(second, using="default")
        a_group(case)
        if groups == 2:
            drain(second)
    else:
        publish_events("orders", 25)
    drop_expired("default")
    make_old(days=8 if expired else 6)
    goes = expired and not (groups and case in HOLDS)
    assert len(dry_run("default").going) == (2 if goes else 0)
    lags = dict(sql("SELECT group_id, sum(lag) FROM consumer_lag_v GROUP BY 1"))

    done = [len(drop_expired("default").partitions) for _ in range(3)]

    assert done == [4 if goes else 0, 0, 0]
    assert LogEntry.objects.count() == OutboxMessage.objects.count() == (5 if goes else 25)
    check_storage()
    loses = goes and case == "dead"
    told = Subscription.objects.values_list("missed", flat=True)
    assert [missed for missed in told if missed] == ([{str(place()): [1, 20]}] if loses else [])
    if not loses:
        assert dict(sql("SELECT group_id, sum(lag) FROM consumer_lag_v GROUP BY 1")) == lags


def place() -> int:
    """The partition that all events of these tests are in."""
    return int(LogEntry.objects.values_list("partition_id", flat=True).distinct().get())


@pytest.mark.parametrize("case", ["unread", "paused", "late joiner"])
def test_kept_events_are_read_and_then_dropped(small: None, case: str) -> None:
    topic("orders")
    handler = a_group(case)
    drop_expired("default")
    make_old(days=8)
    assert drop_expired("default").partitions == ()
    Subscription.objects.update(status="ACTIVE")
    drain(declare(handler, group="the one in question", topic="orders"))
    assert handler.offsets == list(range(1, 26))
    drop_expired("default")  # the worker may have done so itself
    assert LogEntry.objects.count() == OutboxMessage.objects.count() == 5
    check_storage()


def test_a_group_that_joins_after_a_drop_has_the_right_lag(small: None) -> None:
    topic("orders")
    publish_events("orders", 25)
    drop_expired("default")
    make_old(days=8)
    assert drop_expired("default").entries == 2 * ROWS
    late = Recorder()
    declared = declare(late, group="late", topic="orders")
    register_subscription(declared, using="default")
    assert sql("SELECT sum(lag) FROM consumer_lag_v") == [(5,)]
    drain(declared)
    assert late.offsets == [21, 22, 23, 24, 25]
    assert sql("SELECT sum(lag) FROM consumer_lag_v") == [(0,)]
    assert ConsumerOffset.objects.get(partition_id=place()).passed == 25


def test_an_undeclared_topic_and_a_removed_one_expire_too(small: None) -> None:
    for _ in range(12):
        sql("INSERT INTO outbox_message_t (topic_id, payload) VALUES (2000000077, '1')")
    topic("short-lived")
    publish_events("short-lived", 10)
    sql("DELETE FROM outbox_topics WHERE name = 'short-lived'")
    drop_expired("default")
    make_old(days=8)
    assert drop_expired("default").entries == 2 * ROWS
    check_storage()


def test_a_topic_that_keeps_long_keeps_what_shares_its_storage(small: None) -> None:

    topic("brief", retention=dt.timedelta(0))
    topic("archive", retention=dt.timedelta(days=365))
    publish_events("brief", 12)
    publish_events("archive", 1)
    publish_events("brief", 12)
    drop_expired("default")
    assert LogEntry.objects.count() == 15
    plan = dry_run("default")
    (kept,) = plan.staying
    assert "retention of archive" in plan.why(kept)[0]


def test_the_state_is_the_same_however_often_it_runs(small: None) -> None:
    topic("orders")
    a_group("dead")
    drop_expired("default")
    make_old(days=8)
    drop_expired("default")
    once = state()
    drop_expired("default")
    drop_expired("default")
    assert state() == once
