"""Members: who lives, who is dead, and what a group learns that comes back."""

import datetime as dt
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from pubsub import publish
from pubsub.db.sql import load
from pubsub.models import Member, OperatorEvent, Subscription
from pubsub.retention.drop import drop_expired
from pubsub.subscriptions.register import register_subscription
from pubsub.worker.maintenance import Maintenance
from pubsub.worker.membership import Membership, forget_members, watch_groups
from pubsub.worker.worker import Worker
from tests.handlers import Recorder, declare, drain
from tests.processes import SET_UP, child
from tests.retention.helpers import check_storage, make_old, publish_events, sql, topic
from tests.sessions import Running, together, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

READER = (
    SET_UP
    + """
from django.db import connection
from pubsub.subscriptions.declare import Declaration
from pubsub.worker.worker import Worker
worker_id, = sys.argv[1:]
def handle(event):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO handled VALUES (%s)", [event.payload["n"]])
worker = Worker([Declaration(topic="orders", group="readers", handler=handle)], using="default", wait_period_ms=50,
                worker_id=worker_id)
import threading
runs = threading.Thread(target=worker.run)
runs.start()
print("ready", flush=True)
sys.stdin.readline()
worker.stop()
runs.join()
print("left", flush=True)
"""
)


@pytest.fixture
def group() -> Subscription:
    topic("orders")
    register_subscription(declare(Recorder(), topic="orders"), using="default")
    return Subscription.objects.get()


def member(worker_id: str = "w1", *, group: str = "readers") -> Membership:
    membership = Membership("default", worker_id, [("orders", group)])
    membership.step()
    return membership


def time_passes(seconds: float) -> None:
    """All that has been heard is so much older."""
    past = [seconds]
    sql("UPDATE outbox_members SET last_heartbeat_at = last_heartbeat_at - make_interval(secs => %s)", *past)
    sql("UPDATE outbox_message_t SET created_at = created_at - make_interval(secs => %s)", *past)
    sql("UPDATE consumer_offsets SET updated_at = updated_at - make_interval(secs => %s)", *past)
    sql(
        "UPDATE outbox_topic_subscriptions SET created_at = created_at - passed, last_miss_at = last_miss_at - passed,"
        " status_changed_at = status_changed_at - passed, last_heartbeat_at = last_heartbeat_at - passed"
        " FROM make_interval(secs => %s) AS passed",
        *past,
    )


def status() -> tuple[str, int]:
    found = Subscription.objects.get()
    return found.status, found.misses


def test_a_group_whose_members_all_miss_their_heartbeats_so_many_times_is_dead(group: Subscription) -> None:
    member()
    seen = []
    for _ in range(4):
        time_passes(301)
        for _ in range(3):  # as often as one likes: only time counts
            watch_groups("default")
        seen.append(status())
    assert seen == [("ACTIVE", 1), ("ACTIVE", 2), ("DEAD", 3), ("DEAD", 3)]
    (told,) = OperatorEvent.objects.filter(action="dead")
    assert (told.topic, told.group_id, told.after) == ("orders", "readers", {"status": "DEAD"})
    assert "none of its 1 members" in told.reason


def test_one_heartbeat_resets_the_count(group: Subscription) -> None:
    living = member("lives")
    member("crashed")
    for _ in range(2):
        time_passes(301)
        watch_groups("default")
    assert status() == ("ACTIVE", 2)
    living.step()
    watch_groups("default")
    assert status() == ("ACTIVE", 0)


def test_a_living_member_keeps_the_group_and_hides_no_dead_one(group: Subscription) -> None:
    living = member("lives")
    member("crashed")
    for _ in range(5):
        time_passes(301)
        living.step()
        watch_groups("default")
        forget_members("default")
    assert status() == ("ACTIVE", 0)
    assert Member.objects.filter(worker_id="crashed").exists()
    time_passes(24 * 3600)
    living.step()
    assert forget_members("default") == 1
    assert [each.worker_id for each in Member.objects.all()] == ["lives"]


def test_how_many_misses_it_takes_is_set(group: Subscription) -> None:
    member()
    with override_settings(PUBSUB={"dead_after_misses": 1}):
        time_passes(301)
        watch_groups("default")
    assert status()[0] == "DEAD"


def test_after_a_time_without_any_process_the_count_begins_at_one(group: Subscription) -> None:
    """The whole site was down for a week: the first process to come up gives no group up at once."""
    member()
    time_passes(7 * 24 * 3600)
    for _ in range(5):
        watch_groups("default")
    assert status() == ("ACTIVE", 1)


def test_a_group_whose_members_stopped_in_good_order_lives_for_long(group: Subscription) -> None:
    publish_events("orders", 1)
    membership = Membership("default", "w1", [("orders", "readers")])
    membership.start()
    membership.stop()
    assert not Member.objects.exists()
    for _ in range(10):
        time_passes(2 * 24 * 3600)
        watch_groups("default")
    assert status() == ("ACTIVE", 0)
    time_passes(11 * 24 * 3600)
    for _ in range(3):
        watch_groups("default")
        time_passes(301)
    assert status() == ("DEAD", 3)


def test_a_group_with_nothing_to_do_is_never_given_up(group: Subscription) -> None:
    publish_events("orders", 3)
    drain(declare(Recorder(), topic="orders"))
    for _ in range(5):
        time_passes(40 * 24 * 3600)
        assert watch_groups("default") == []
    publish_events("orders", 1)  # at last; one that comes once a day comes in time
    time_passes(29 * 24 * 3600)
    assert watch_groups("default") == []
    time_passes(24 * 3600)
    assert [change.misses for change in watch_groups("default")] == [1]


def test_a_spark_stream_sends_no_heartbeats_and_misses_none(transactional_db: None) -> None:
    """Its group as Spark itself makes it: a subscription and cursors, and no heartbeats."""
    orders = topic("orders")
    stream: dict[str, object] = {"topic_id": orders.pk, "group": "readers", "next_offset": 1}
    sql(load("spark/subscribe"), stream)
    publish_events("orders", 3)
    for next_offset in (2, 4):
        sql(load("spark/move_cursors"), {**stream, "next_offset": next_offset})
        for _ in range(10):  # it is busy, or waits, for longer than any heartbeat would be waited for
            time_passes(20 * 24 * 3600 if next_offset == 4 else 2 * 24 * 3600)
            assert watch_groups("default") == []
        assert status() == ("ACTIVE", 0)


def test_never_is_possible(group: Subscription) -> None:
    publish_events("orders", 1)
    time_passes(1000 * 24 * 3600)
    with override_settings(PUBSUB={"dead_after_silence_s": None, "dead_after_misses": 1}):
        watch_groups("default")
    assert status() == ("ACTIVE", 0)


def test_closing_one_member_leaves_the_others_and_the_group(group: Subscription) -> None:
    one, other = (Membership("default", name, [("orders", "readers")]) for name in ("one", "other"))
    one.start()
    other.start()
    one.stop()
    assert [each.worker_id for each in Member.objects.all()] == ["other"]
    assert status() == ("ACTIVE", 0)
    other.stop()
    assert status() == ("ACTIVE", 0)


@pytest.mark.parametrize("paused", ["PAUSED", "CANCELLED"])
def test_only_active_groups_are_given_up(group: Subscription, paused: str) -> None:
    member()
    Subscription.objects.update(status=paused)
    time_passes(90 * 24 * 3600)
    with override_settings(PUBSUB={"dead_after_misses": 1}):
        assert watch_groups("default") == []
    assert status()[0] == paused


def test_many_watch_at_once_and_count_once(group: Subscription) -> None:
    member()
    time_passes(301)
    all_ready = threading.Barrier(6)
    watching = [Running(together(all_ready, watch_groups), "default") for _ in range(6)]
    assert sum(len(each.result(60)) for each in watching) == 1
    assert status() == ("ACTIVE", 1)


def test_a_heartbeat_is_one_update_for_all_groups_of_the_process(
    group: Subscription, django_assert_num_queries: object
) -> None:
    register_subscription(declare(Recorder(), topic="orders", group="others"), using="default")
    membership = Membership("default", "w1", [("orders", "readers"), ("orders", "others")])
    membership.step()
    assert Member.objects.count() == 2
    with django_assert_num_queries(1):  # type: ignore[operator]
        membership.step()


def test_the_shortest_interval_of_the_groups_counts(group: Subscription) -> None:
    Subscription.objects.update(heartbeat_interval=dt.timedelta(seconds=7))
    register_subscription(declare(Recorder(), topic="orders", group="others"), using="default")
    membership = Membership("default", "w1", [("orders", "readers"), ("orders", "others")])
    membership.step()
    assert membership.interval_s == 7


def test_the_thread_sends_heartbeats_and_survives_a_failure(
    group: Subscription, caplog: pytest.LogCaptureFixture
) -> None:
    Subscription.objects.update(heartbeat_interval=dt.timedelta(milliseconds=50))
    membership = Membership("default", "w1", [("orders", "readers")])
    membership.start()
    try:
        wait_until(lambda: membership.heartbeats >= 2, "it sends a heartbeat")
        sql("ALTER TABLE outbox_members RENAME TO away")
        wait_until(lambda: "no heartbeat" in caplog.text, "a failure is reported")
        sql("ALTER TABLE away RENAME TO outbox_members")
        before = membership.heartbeats
        wait_until(lambda: membership.heartbeats > before, "it sends another")
    finally:
        sql("ALTER TABLE IF EXISTS away RENAME TO outbox_members")
        membership.stop()
    assert not Member.objects.exists()


def test_a_worker_sends_heartbeats_however_long_maintenance_takes(
    group: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And on time: its heartbeats go on meanwhile."""
    Subscription.objects.update(heartbeat_interval=dt.timedelta(milliseconds=50))
    begun, done = threading.Event(), threading.Event()

    def takes_long(maintenance: Maintenance, **options: Any) -> bool:
        begun.set()
        done.wait(60)
        return False

    monkeypatch.setattr(Maintenance, "step", takes_long)
    worker = Worker([declare(Recorder(), topic="orders")], using="default", worker_id="w1", listen=False)
    running = Running(worker.run)
    try:
        assert begun.wait(30)
        wait_until(lambda: Member.objects.filter(worker_id="w1").exists(), "it is a member")
        wait_until(lambda: worker._membership.heartbeats >= 3, "it sends a heartbeat")
    finally:
        worker.stop()
        done.set()
        running.result()


def die() -> None:
    for _ in range(3):
        time_passes(301)
        watch_groups("default")
    assert status()[0] == "DEAD"


def test_a_group_that_rejoins_continues_where_it_was(
    small: None, group: Subscription, caplog: pytest.LogCaptureFixture
) -> None:
    member()
    publish_events("orders", 25)
    die()
    with caplog.at_level(logging.WARNING):
        member("new")
    assert status() == ("ACTIVE", 0)
    assert "continues where it was" in caplog.text
    handler = Recorder()
    drain(declare(handler, topic="orders"))
    assert handler.offsets == list(range(1, 26))


def test_a_group_that_rejoins_reports_what_it_missed(
    small: None, group: Subscription, caplog: pytest.LogCaptureFixture
) -> None:
    member()
    publish_events("orders", 25, key="k")
    first = Recorder()
    drain(declare(first, topic="orders"))
    publish_events("orders", 20, key="k")
    die()
    drop_expired("default")
    for _ in range(2):  # in two steps: one range all the same
        sql("UPDATE log_segments SET filled_at = filled_at - interval '8 days' WHERE lower IN (1, 11, 21)")
        drop_expired("default")
        make_old(days=8)
        drop_expired("default")
    check_storage()
    assert first.offsets == list(range(1, 26))
    (missed,) = [each for each in [Subscription.objects.get().missed] if each]
    (span,) = missed.values()
    assert span == [26, 40]
    with caplog.at_level(logging.WARNING):
        member("new")
    assert "has missed offsets 26 to 40 in partition" in caplog.text
    (told,) = OperatorEvent.objects.filter(action="rejoin")
    assert told.before["missed"] == missed
    second = Recorder()
    drain(declare(second, topic="orders"))
    assert second.offsets == [41, 42, 43, 44, 45]


def test_a_process_that_was_only_asleep_rejoins_its_group(group: Subscription) -> None:
    asleep = member()
    die()
    asleep.step()
    assert status() == ("ACTIVE", 0)


@pytest.fixture
def handled() -> Iterator[Callable[[], list[int]]]:
    """What handlers have done, each in the transaction that passed its event."""
    sql("CREATE TABLE handled (n integer)")
    yield lambda: [n for (n,) in sql("SELECT n FROM handled ORDER BY n")]
    sql("DROP TABLE handled")


def test_rolling_restarts_lose_nothing(group: Subscription, handled: Callable[[], list[int]]) -> None:
    """Each process is replaced while events are published, in good order or by kill -9."""
    published = 0

    def publish_some() -> None:
        nonlocal published
        for _ in range(5):
            with transaction.atomic():
                publish("orders", {"n": published}, key=str(published))
            published += 1

    def has_left(worker_id: str) -> Callable[[], bool]:
        return lambda: not Member.objects.filter(worker_id=worker_id).exists()

    for number, killed in enumerate((False, True, False)):
        with child(READER, f"w{number}") as reader:
            publish_some()
            wait_until(lambda: len(handled()) == published, "all is handled", 60)
            publish_some()
            if killed:
                reader.kill()
            else:
                reader.tell("stop")
                wait_until(has_left(f"w{number}"), "it has left", 60)
        publish_some()
        watch_groups("default")
    with child(READER, "last"):
        wait_until(lambda: len(handled()) >= published, "all is handled", 60)
        assert handled() == list(range(published))
        assert status() == ("ACTIVE", 0)
        assert {each.worker_id for each in Member.objects.all()} == {"w1", "last"}
    assert sql("SELECT sum(lag) FROM consumer_lag_v") == [(0,)]
