"""Seeking: to either end, to a time, to an offset, by a number of events; exactly, visibly, and not under a worker."""

import datetime as dt
import threading
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from pubsub import publish
from pubsub.control import (
    cancel,
    dry_run,
    force_complete,
    pause,
    preview_force_complete,
    preview_seek,
    resize_topic,
    seek,
)
from pubsub.errors import PartitionInUse, Refused
from pubsub.models import ConsumerOffset, Lease, OperatorEvent, OutboxMessage, Subscription
from pubsub.monitoring.problems import find_problems
from pubsub.monitoring.status import status
from pubsub.sequencing.sequencer import sequence
from tests.factories import LeaseFactory
from tests.handlers import Recorder, declare, drain
from tests.log import insert
from tests.sessions import Running, Session

from .helpers import (
    GROUP,
    TOPIC,
    WHO,
    check_counts,
    fill,
    journal,
    lag,
    make_topic,
    places,
    reread,
    subscribe,
    wait_for_waiting,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ten() -> list[int]:
    """Ten events that the group has read, in two partitions. Says in which partition each is."""
    make_topic()
    subscribe(read=True)
    fill(10)
    reread()
    with connection.cursor() as cursor:
        cursor.execute("SELECT partition_id FROM log_entry ORDER BY c_offset")
        return [partition for (partition,) in cursor.fetchall()]


def test_earliest_repeats_everything_and_latest_nothing(ten: list[int]) -> None:
    seek(TOPIC, GROUP, to="earliest", **WHO)
    assert sum(lag().values()) == 10
    check_counts()
    assert sorted(reread()) == list(range(10))
    seek(TOPIC, GROUP, to="earliest", **WHO)
    seek(TOPIC, GROUP, to="latest", **WHO)
    check_counts()
    assert set(lag().values()) == {0}
    assert reread() == []
    fill(1, start=10)
    assert reread() == [10]


def test_earliest_is_the_oldest_event_still_stored(ten: list[int]) -> None:
    """As retention does: entries go, and the counters say how many."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM log_entry WHERE c_offset <= 4")
        cursor.execute(
            "UPDATE log_partition_counter AS counter SET retired = entries - ("
            " SELECT count(*) FROM log_entry WHERE (topic_id, partition_id) = (counter.topic_id, counter.partition_id))"
        )
    seek(TOPIC, GROUP, to="earliest", **WHO)
    assert sum(lag().values()) == 6
    assert sorted(reread()) == list(range(4, 10))
    seek(TOPIC, GROUP, by=-100, **WHO)
    assert sorted(reread()) == list(range(4, 10))
    seek(TOPIC, GROUP, to=2, **WHO)
    assert sorted(reread()) == list(range(4, 10))


@pytest.mark.parametrize("offset", [1, 2, 5, 6, 10, 11])
def test_an_offset_is_the_first_event_to_be_repeated(ten: list[int], offset: int) -> None:
    moves = seek(TOPIC, GROUP, to=offset, **WHO)
    check_counts()
    assert sum(move.lag_after for move in moves) == 11 - offset == sum(lag().values())
    assert sorted(reread()) == list(range(offset - 1, 10))


def test_beyond_the_tip_is_refused_in_numbers_and_clamped_in_steps(ten: list[int]) -> None:
    with pytest.raises(Refused, match=r"Offset 12 is beyond the tip .* which is 10"):
        seek(TOPIC, GROUP, to=12, **WHO)
    moves = seek(TOPIC, GROUP, by=5, **WHO)
    assert {move.events for move in moves} == {0}
    check_counts()
    assert {offset for offset, _, _ in places().values()} == {11}


def test_moving_a_group_acknowledges_what_it_missed(ten: list[int]) -> None:
    lost = {"0": [1, 7]}
    Subscription.objects.update(missed=lost)
    passed = {partition: passed for partition, (_, _, passed) in places().items()}
    assert [problem.code for problem in find_problems(status("default"))] == ["missed"]
    preview_seek(TOPIC, GROUP, by=0, using="default")
    assert Subscription.objects.get().missed == lost
    seek(TOPIC, GROUP, by=0, **WHO)
    assert {partition: passed for partition, (_, _, passed) in places().items()} == passed
    check_counts()
    assert find_problems(status("default")) == []
    assert OperatorEvent.objects.get(action="seek").before["missed"] == lost


@pytest.mark.parametrize("back", [1, 2, 3, 100])
def test_steps_count_events_in_each_partition(ten: list[int], back: int) -> None:
    at_the_end = {partition: passed for partition, (_, _, passed) in places().items()}
    of = {partition: [n for n in range(10) if ten[n] == partition] for partition in (0, 1)}
    moves = seek(TOPIC, GROUP, by=-back, **WHO)
    check_counts()
    assert {move.partition: -move.events for move in moves} == {p: min(back, len(of[p])) for p in of}
    forward = seek(TOPIC, GROUP, by=1, **WHO)
    check_counts()
    assert [move.events for move in forward] == [1, 1]
    assert sorted(reread()) == sorted(n for p in of for n in of[p][-back:][1:])
    assert {partition: passed for partition, (_, _, passed) in places().items()} == at_the_end


def test_one_partition_moves_alone(ten: list[int]) -> None:
    (move,) = seek(TOPIC, GROUP, to="earliest", partitions=[1], **WHO)
    assert (move.partition, move.events) == (1, -ten.count(1))
    assert reread() == [n for n in range(10) if ten[n] == 1]
    with pytest.raises(Refused, match=r"has no partition 2, 7 of topic .* it has 0, 1"):
        seek(TOPIC, GROUP, to="earliest", partitions=[7, 1, 2], **WHO)


def test_a_time_means_the_first_event_published_then_or_later(ten: list[int]) -> None:
    start = timezone.now() - dt.timedelta(hours=20)
    for n, message in enumerate(OutboxMessage.objects.filter(topic__name=TOPIC).order_by("id")):
        OutboxMessage.objects.filter(pk=message.pk).update(created_at=start + dt.timedelta(hours=n))
    for to, expected in (
        (start - dt.timedelta(days=1), 0),
        (start + dt.timedelta(hours=3), 3),
        (start + dt.timedelta(hours=3, seconds=1), 4),
        (timezone.now(), 10),
    ):
        seek(TOPIC, GROUP, to=to, **WHO)
        check_counts()
        assert sorted(reread()) == list(range(expected, 10))


def test_a_time_is_found_although_a_long_transaction_is_late_in_the_log(session: Session) -> None:
    """5,000 events a second apart; in the middle stand 900 of a transaction that was open for eight minutes."""
    topic = make_topic(partitions=1)
    start = "timestamptz '2026-01-01 00:00+00'"
    session.execute(
        f"INSERT INTO outbox_message_t (topic_id, payload, created_at) SELECT %s, to_jsonb(n), {start}"
        " + make_interval(secs => CASE WHEN n BETWEEN 2000 AND 2899 THEN 2000 - 480 ELSE n END)"
        " FROM generate_series(1, 5000) AS n",
        [topic.pk],
    )
    sequence("default")
    truth = (
        "SELECT coalesce(min(c_offset), 5001) FROM log_entry JOIN outbox_message_t ON id = message_id"
        f" WHERE created_at >= {start} + make_interval(secs => %s)"
    )
    search = f"SELECT pubsub_offset_at_v1(%s, {start} + make_interval(secs => %s))"
    for seconds in (0, 1, 700, 1519, 1520, 1521, 1900, 1999, 2000, 2001, 2899, 2900, 4999, 5000, 5001):
        expected = session.execute(truth, [seconds]).fetchone()
        assert session.execute(search, [topic.pk, seconds]).fetchone() == expected, seconds


def test_a_time_is_found_among_messages_that_were_delayed(session: Session) -> None:
    """Half of them were published five hours before they were due."""
    topic = make_topic(partitions=1)
    start = "timestamptz '2026-01-01 00:00+00'"
    session.execute(
        f"INSERT INTO outbox_message_t (topic_id, payload, created_at) SELECT %s, to_jsonb(n), {start}"
        " + make_interval(secs => CASE WHEN n %% 2 = 0 THEN n - 18000 ELSE n END) FROM generate_series(1, 5000) AS n",
        [topic.pk],
    )
    sequence("default")
    for n in range(1, 5000, 170):
        found = session.execute(
            f"SELECT pubsub_offset_at_v1(%s, {start} + make_interval(secs => %s))", [topic.pk, n]
        ).fetchone()
        assert found == (n + 1 - n % 2,)


def test_latest_skips_numbered_events_and_gives_those_of_open_transactions(session: Session) -> None:
    """A publisher's transaction is held open across the move: committed before it or after it, not numbered yet."""
    topic = make_topic()
    subscribe()
    fill(2)
    for n in (10, 11):
        session.execute("BEGIN")
        session.execute("INSERT INTO outbox_message_t (topic_id, payload) VALUES (%s, %s)", [topic.pk, str(n)])
        if n == 11:
            session.execute("COMMIT")
        seek(TOPIC, GROUP, to="latest", **WHO)
        if n == 10:
            session.execute("COMMIT")
        sequence("default")
        assert reread() == [n]


def test_nothing_is_numbered_until_a_move_to_latest_has_committed(session: Session) -> None:
    topic = make_topic()
    subscribe()
    with transaction.atomic():
        seek(TOPIC, GROUP, to="latest", **WHO)
        insert(session, 1, topic=topic.pk)
        assert session.execute("SELECT outcome FROM pubsub_sequence_v1()").fetchone() == ("busy",)
    assert session.execute("SELECT outcome FROM pubsub_sequence_v1()").fetchone() == ("numbered",)
    assert reread() == [{"n": "1"}]


# Under a worker.


class Held:
    """A handler that waits for a signal in the middle of its transaction."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, event: Any) -> None:
        self.begun.set()
        assert self.go_on.wait(15)


def test_a_partition_that_a_worker_holds_is_not_moved(ten: list[int]) -> None:
    seek(TOPIC, GROUP, to="earliest", **WHO)
    held = Held()
    worker = Running(drain, declare(held, topic=TOPIC, group=GROUP))
    assert held.begun.wait(15)
    before = places()
    with pytest.raises(
        PartitionInUse, match=r'hold partitions of topic "orders": [01] \(by a worker\)\. Pause the group'
    ):
        seek(TOPIC, GROUP, to="latest", **WHO)
    assert places() == before
    assert journal()[-1][1] == "seek"
    assert OperatorEvent.objects.filter(action="seek").count() == 1
    held.go_on.set()
    worker.result()
    assert set(lag().values()) == {0}


@pytest.mark.parametrize("wait_s", [30, 10**9, float("inf")])
def test_force_waits_for_the_current_batch_and_then_moves(ten: list[int], session: Session, wait_s: float) -> None:
    seek(TOPIC, GROUP, to="earliest", **WHO)
    held = Held()
    worker = Running(drain, declare(held, topic=TOPIC, group=GROUP))
    assert held.begun.wait(15)
    with pytest.raises(PartitionInUse, match=r"for more than 0.05 s"):
        seek(TOPIC, GROUP, to=1, force=True, wait_s=0.05, **WHO)
    pause(TOPIC, GROUP, **WHO)
    operator = Running(seek, TOPIC, GROUP, to=4, force=True, wait_s=wait_s, **WHO)
    wait_for_waiting(session, "consumer_offsets")
    held.go_on.set()
    moves = operator.result()
    worker.result()
    assert sum(move.lag_after for move in moves) == 7
    assert sum(lag().values()) == 7


def test_a_lease_holds_a_partition_until_it_expires_or_is_ended_by_force(ten: list[int]) -> None:
    topic = Subscription.objects.get().topic
    lease = {"topic": topic, "group_id": GROUP, "partition_id": 0, "worker_id": "worker-7"}
    LeaseFactory(**lease)
    with pytest.raises(PartitionInUse, match=r"0 \(by worker-7\)"):
        seek(TOPIC, GROUP, to=1, **WHO)
    assert [move.in_use for move in preview_seek(TOPIC, GROUP, to=1, using="default")] == ["worker-7", ""]
    seek(TOPIC, GROUP, to=1, partitions=[1], **WHO)
    assert Lease.objects.count() == 1
    epochs = dict(ConsumerOffset.objects.values_list("partition_id", "epoch"))
    seek(TOPIC, GROUP, to=2, force=True, **WHO)
    assert not Lease.objects.exists()
    assert dict(ConsumerOffset.objects.values_list("partition_id", "epoch")) == {p: e + 1 for p, e in epochs.items()}
    LeaseFactory(**lease, expires_at=timezone.now() - dt.timedelta(seconds=1))
    seek(TOPIC, GROUP, to=1, **WHO)
    LeaseFactory(**lease, expires_at=timezone.now() + dt.timedelta(days=1), lock_key=7)
    assert [move.in_use for move in preview_seek(TOPIC, GROUP, to=2, using="default")] == ["", ""]
    seek(TOPIC, GROUP, to=2, **WHO)  # no session has that lock: the worker has died


def test_a_timeout_leaves_the_callers_transaction_as_it_was(ten: list[int], session: Session) -> None:
    session.execute("BEGIN")
    session.execute("SELECT FROM consumer_offsets WHERE partition_id = 0 FOR UPDATE")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '7s'")
        with pytest.raises(PartitionInUse):
            seek(TOPIC, GROUP, to=1, force=True, wait_s=0.05, **WHO)
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("7s",)
        seek(TOPIC, GROUP, to=1, partitions=[1], force=True, **WHO)
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("7s",)


# What is said.


def test_the_preview_is_right_and_changes_nothing(ten: list[int]) -> None:
    seek(TOPIC, GROUP, by=-2, **WHO)
    for where in ({"to": "earliest"}, {"to": "latest"}, {"to": 4}, {"by": -1}, {"by": 1}):
        before, told = places(), len(journal())
        foreseen = preview_seek(TOPIC, GROUP, using="default", **where)
        assert (places(), len(journal())) == (before, told)
        with dry_run(using="default"):
            assert seek(TOPIC, GROUP, **where, **WHO) == foreseen
        assert (places(), len(journal())) == (before, told)


def test_the_preview_neither_blocks_nor_waits(ten: list[int], session: Session) -> None:
    session.execute("BEGIN")
    session.execute("SELECT FROM consumer_offsets FOR UPDATE")
    session.execute("SELECT FROM log_sequencer FOR UPDATE")
    moves = preview_seek(TOPIC, GROUP, to="latest", using="default")
    assert [move.events for move in moves] == [0, 0]


def test_the_audit_log_has_the_cursors_before_and_after(ten: list[int]) -> None:
    moves = seek(TOPIC, GROUP, by=-2, reason="a bug in the handler", **WHO)
    event = OperatorEvent.objects.get(action="seek")
    assert event.before is not None
    assert event.after is not None
    assert event.before["next_offsets"] == {str(move.partition): move.offset_before for move in moves}
    assert event.after == {
        "next_offsets": {str(move.partition): move.offset_after for move in moves},
        "lag": 4,
        "by": -2,
    }
    assert (event.actor, event.reason) == ("olivia", "a bug in the handler")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({}, "Give either"),
        ({"to": "latest", "by": 1}, "Give either"),
        ({"to": "newest"}, "not 'newest'"),
        ({"to": 0}, "at least 1, not 0"),
        ({"to": True}, "not True"),
        ({"by": 1.5}, "not 1.5"),
        ({"to": dt.datetime(2030, 1, 1)}, "needs a time zone"),
        ({"to": 1, "partitions": []}, "at least one partition"),
    ],
)
def test_what_makes_no_sense_is_refused(where: dict[str, Any], message: str, ten: list[int]) -> None:
    with pytest.raises(Refused, match=message):
        seek(TOPIC, GROUP, **where, **WHO)
    with pytest.raises(Refused, match=message):
        preview_seek(TOPIC, GROUP, using="default", **where)


def test_a_cancelled_group_has_no_cursors_to_move(ten: list[int]) -> None:
    cancel(TOPIC, GROUP, **WHO)
    with pytest.raises(Refused, match="cancelled for good"):
        seek(TOPIC, GROUP, to="earliest", **WHO)


def test_a_group_that_moves_back_before_a_resize_must_pass_it_again(ten: list[int]) -> None:
    resize_topic(TOPIC, 4, **WHO)
    Subscription.objects.update(resizes_passed=11)
    seek(TOPIC, GROUP, to="latest", **WHO)
    assert Subscription.objects.get().resizes_passed == 11
    seek(TOPIC, GROUP, to=5, partitions=[1], **WHO)
    assert Subscription.objects.get().resizes_passed == places()[1][1] < 11


# Force-complete.


def test_older_events_are_skipped_and_younger_ones_are_not(ten: list[int]) -> None:
    seek(TOPIC, GROUP, to=2, **WHO)
    for n, message in enumerate(OutboxMessage.objects.filter(topic__name=TOPIC).order_by("id")):
        if n < 6:
            OutboxMessage.objects.filter(pk=message.pk).update(created_at=timezone.now() - dt.timedelta(days=9))
    foreseen = preview_force_complete(TOPIC, GROUP, older_than=dt.timedelta(days=3), using="default")
    moves = force_complete(TOPIC, GROUP, older_than=dt.timedelta(days=3), **WHO)
    assert moves == foreseen
    assert sum(move.events for move in moves) == 5
    check_counts()
    assert journal()[-1][1] == "force-complete"
    assert sorted(reread()) == [6, 7, 8, 9]


@pytest.mark.parametrize("long_ago", [dt.timedelta(days=999_999), dt.timedelta.max])
def test_any_age_may_be_given(ten: list[int], long_ago: dt.timedelta) -> None:
    seek(TOPIC, GROUP, to=2, **WHO)
    assert preview_force_complete(TOPIC, GROUP, older_than=long_ago, using="default") == []
    assert force_complete(TOPIC, GROUP, older_than=long_ago, **WHO) == []


def test_it_never_moves_back_and_then_records_nothing(ten: list[int]) -> None:
    before = places()
    assert force_complete(TOPIC, GROUP, older_than=dt.timedelta(days=3), **WHO) == []
    assert places() == before
    assert [action for _, action, _, _ in journal()] == ["create"]
    with pytest.raises(Refused, match="not negative"):
        force_complete(TOPIC, GROUP, older_than=dt.timedelta(days=-1), **WHO)


def test_seeking_is_right_under_a_strict_default_isolation(ten: list[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    seek(TOPIC, GROUP, to="latest", **WHO)
    with transaction.atomic():
        publish(TOPIC, 10, key=10)
    sequence("default")
    recorder = Recorder()
    drain(declare(recorder, topic=TOPIC, group=GROUP))
    assert recorder.payloads == [10]
