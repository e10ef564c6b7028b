"""Dropping storage: consistent, never in the way for long, and visible to a group that loses something."""

import datetime as dt
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError
from django.test import override_settings
from django.utils import timezone

from pubsub import control
from pubsub.db.transactions import read_committed
from pubsub.models import (
    Attempt,
    DeadLetter,
    LogEntry,
    OperatorEvent,
    OutboxMessage,
    SegmentContents,
    SinkBatch,
    Subscription,
    Topic,
)
from pubsub.monitoring.problems import find_problems
from pubsub.monitoring.status import status
from pubsub.retention import drop, prune
from pubsub.retention.detach import drop_detached, find_lock_holders
from pubsub.retention.drop import drop_expired, dry_run
from pubsub.retention.partitions import make_partitions_ahead
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.register import register_subscription
from pubsub.worker import cleanup
from tests.factories import AttemptFactory, DeadLetterFactory, OperatorEventFactory, SinkBatchFactory
from tests.handlers import Recorder, declare, drain
from tests.log import insert, number
from tests.sessions import Running, Session, connect, together, transaction_of, wait_until_blocked

from .helpers import ROWS, check_storage, longest_insert, make_old, names, publish_events, sql, state, topic

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session() -> Session:
    with connect() as mine:
        yield mine


def expired_log(count: int = 25) -> None:
    topic("orders")
    publish_events("orders", count)
    drop_expired("default")
    make_old(days=8)


def test_the_status_says_which_group_keeps_what_has_expired(small: None) -> None:
    topic("orders")
    register_subscription(declare(Recorder(), topic="orders", group="mail"), using="default")
    publish_events("orders", 25)
    drop_expired("default")
    assert status("default").held == ()
    make_old(days=8)
    (held,) = status("default").held
    assert (held.group, held.topic, held.bytes > 0) == ("mail", "orders", True)
    assert "disk" in [problem.code for problem in find_problems(status("default"))]
    drain(declare(Recorder(), topic="orders", group="mail"))
    assert status("default").held == ()


def test_many_processes_drop_at_once(small: None) -> None:
    expired_log(95)
    all_ready = threading.Barrier(6)

    def clean() -> int:
        return sum(drop_expired("default").entries for _ in range(3))

    assert sum(each.result(90) for each in [Running(together(all_ready, clean)) for _ in range(6)]) <= 9 * ROWS
    drop_expired("default")
    assert LogEntry.objects.count() == OutboxMessage.objects.count() == 5
    dropped = [event.after["entries"] for event in OperatorEvent.objects.filter(action="partition-dropped")]
    assert sum(dropped) == 9 * ROWS
    check_storage()
    once = state()
    drop_expired("default")
    assert state() == once


def test_an_open_publisher_with_an_old_id_keeps_everything_until_it_is_numbered(small: None, session: Session) -> None:
    """Its row is in the oldest partition of messages, and will stand far behind in the log."""
    topic("orders")
    with transaction_of(session):
        insert(session, "early", topic=Topic.objects.get(name="orders").pk)
        publish_events("orders", 25)
        drop_expired("default", attempts=1)
        make_old(days=8)
        assert any(each.pid == session.info.backend_pid for each in find_lock_holders("default"))
        done = drop_expired("default", lock_timeout_ms=50, attempts=2)
        assert (done.partitions, done.blocked) == ((), True)
        check_storage()
    # Committed, and not numbered yet: it must not go with its partition.
    assert drop_expired("default", lock_timeout_ms=50, attempts=1).blocked
    assert OutboxMessage.objects.count() == 26
    sequence("default")
    # Its entry is among the last, and so keeps the first partition of messages.
    assert drop_expired("default").partitions == ("log_entry_1", "log_entry_11")
    assert "outbox_message_t_1" in names("outbox_message_t")
    check_storage()
    publish_events("orders", 15)
    drop_expired("default")
    make_old(days=8)
    drop_expired("default")
    assert "outbox_message_t_1" not in names("outbox_message_t")
    check_storage()


def test_messages_whose_entries_are_gone_are_not_numbered_again_in_another_cluster(small: None) -> None:
    topic("orders")
    for _ in range(3):
        sql("SELECT nextval(pg_get_serial_sequence('outbox_message_t', 'id'))")  # so that bounds do not meet
    publish_events("orders", 25)
    drop_expired("default")
    make_old(days=8)
    drop_expired("default")
    left = OutboxMessage.objects.count() - LogEntry.objects.count()
    assert left > 0, "messages without entries are what this is about"
    waiting = insert_unnumbered()
    sql("UPDATE log_sequencer SET system_identifier = 1")
    assert sequence("default").messages == 1
    assert LogEntry.objects.filter(message_id=waiting).exists()
    check_storage()


def insert_unnumbered() -> int:
    with connect() as mine:
        return insert(mine, "new")


def test_a_reader_keeps_its_batch_and_publishers_wait_no_longer_than_the_timeout(small: None, session: Session) -> None:
    expired_log()
    longest = 0.0
    enough = threading.Event()

    with transaction_of(session):
        session.execute("SELECT count(*) FROM log_entry JOIN outbox_message_t AS m ON m.id = message_id")
        publisher = Running(longest_insert, enough)
        try:
            done = drop_expired("default", lock_timeout_ms=100, attempts=3)
        finally:
            enough.set()
        longest = publisher.result(60)
        assert done.blocked
        assert session.execute("SELECT count(*) FROM log_entry").fetchone() == (25,)
    assert longest < 1.0
    assert drop_expired("default").entries == 2 * ROWS


def test_a_reader_that_waits_in_the_meantime_continues(small: None, session: Session) -> None:
    expired_log()
    with connect() as operator, connect() as watcher:
        with transaction_of(operator):
            operator.execute("LOCK TABLE log_entry, outbox_message_t IN ACCESS EXCLUSIVE MODE")
            operator.execute("ALTER TABLE log_entry DETACH PARTITION log_entry_1")
            reader = Running(lambda: session.execute("SELECT count(*) FROM log_entry").fetchone())
            wait_until_blocked(session, watcher)
        assert reader.result() == (15,)
        operator.execute("DROP TABLE log_entry_1")


def test_a_process_that_dies_between_detaching_and_dropping(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    expired_log()
    monkeypatch.setattr(drop, "drop_detached", lambda using: 0)
    assert len(drop_expired("default").partitions) == 4
    assert len(state()[2]) == 4
    check_storage()
    monkeypatch.undo()
    sql("CREATE TABLE log_entry_5_retired_by_hand (n int)")
    assert drop_detached("default") == 4
    assert state()[2] == []
    sql("DROP TABLE log_entry_5_retired_by_hand")


def test_rows_of_the_default_partition_are_dropped_too(transactional_db: None, small: None) -> None:
    topic("orders")
    for table in ("log_entry", "outbox_message_t"):
        for name in names(table):
            sql(f"DROP TABLE {name}")
    with connect() as mine:
        for n in range(25):
            insert(mine, n, topic=Topic.objects.get(name="orders").pk)
        number(mine)
    make_partitions_ahead("default")
    publish_events("orders", 130)
    drop_expired("default")
    make_old(days=8)
    assert drop_expired("default").entries >= 125
    check_storage()


def test_a_resized_topic_keeps_unread_events_in_its_new_partitions(small: None) -> None:
    orders = topic("orders", total_partitions=1)
    handler = Recorder()
    declared = declare(handler, topic="orders")
    register_subscription(declared, using="default")
    publish_events("orders", 5)
    drain(declared)
    Topic.objects.filter(pk=orders.pk).update(total_partitions=8)
    in_new_ones = sql(
        "SELECT key FROM (SELECT 'k' || n AS key FROM generate_series(1, 100) AS n) AS keys"
        " WHERE abs(hashtext(key)::bigint) %% 8 > 0 LIMIT 20"
    )
    for (key,) in in_new_ones:
        publish_events("orders", 1, key=key)
    drop_expired("default")
    make_old(days=8)
    # The group has no cursors in the new partitions yet. All the same nothing is lost.
    drop_expired("default")
    drain(declared)
    assert sorted(handler.offsets) == list(range(1, 26))
    drop_expired("default")  # the worker may have done so itself
    assert LogEntry.objects.count() == 25 - 2 * ROWS
    check_storage()


def after_looking(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Any]) -> None:
    """Lets something happen when a group has looked where it begins, and has not locked anything yet."""

    once = [happens]

    def locking(using: str) -> Any:
        if once:
            once.pop()()
        return read_committed(using)

    monkeypatch.setattr("pubsub.subscriptions.register.read_committed", locking)


def dropped() -> None:
    make_old(days=8)
    assert drop_expired("default").entries == 2 * ROWS


def resized() -> None:
    control.resize_topic("orders", 4, actor="olivia", using="default")
    for n in range(12):
        publish_events("orders", 1, key=str(n))


MEANWHILE = {
    "nothing": lambda: None,
    "more comes": lambda: publish_events("orders", 7),
    "its segment is dropped": dropped,
    "there are more partitions": resized,
    "more comes, and all is dropped": lambda: (
        publish_events("orders", 7),
        resized(),
        make_old(8),
        drop_expired("default"),
    ),
    "another process is faster": lambda: register_subscription(
        declare(Recorder(), topic="orders", start=20), using="default"
    ),
}


@pytest.mark.parametrize("start", [1, 5, 20, 24, 25, 26, dt.timedelta(0), dt.timedelta(days=1)], ids=str)
@pytest.mark.parametrize("happens", MEANWHILE.values(), ids=MEANWHILE)
def test_a_group_begins_at_the_right_offset_whatever_happens_meanwhile(
    small: None, monkeypatch: pytest.MonkeyPatch, start: Any, happens: Callable[[], Any]
) -> None:
    topic("orders")
    publish_events("orders", 15)
    middle = timezone.now()
    publish_events("orders", 10)
    drop_expired("default")
    if isinstance(start, dt.timedelta):
        start += middle
    after_looking(monkeypatch, happens)
    register_subscription(declare(Recorder(), topic="orders", start=start), using="default")
    check_storage()
    if isinstance(start, dt.datetime):
        start = 16 if start == middle else 26
    if happens is MEANWHILE["another process is faster"]:
        start = 20
    places = sql("SELECT partition_id, next_offset, next_position, passed FROM consumer_offsets ORDER BY 1")
    assert places == sql(
        "SELECT partition_id, cursor.* FROM outbox_topics, generate_series(0, total_partitions - 1) AS partition_id,"
        " pubsub_cursor_at_v1(id, partition_id, %s) AS cursor WHERE name = 'orders' ORDER BY 1",
        start,
    )


def why_the_oldest_stays() -> list[str]:
    plan = dry_run("default")
    return plan.why(plan.staying[0])


def stuck_group(**caps: object) -> Subscription:
    topic("orders", **caps)
    register_subscription(declare(Recorder(), topic="orders"), using="default")
    publish_events("orders", 45)
    drop_expired("default")
    return Subscription.objects.get()


def test_a_group_that_is_further_behind_than_the_cap_loses_events_visibly(
    small: None, caplog: pytest.LogCaptureFixture
) -> None:
    stuck_group(max_age=dt.timedelta(days=30))
    make_old(days=29)
    assert drop_expired("default").partitions == ()
    sql("UPDATE log_segments SET filled_at = filled_at - interval '2 days' WHERE lower < 21")
    with caplog.at_level(logging.ERROR):
        assert drop_expired("default").entries == 2 * ROWS
    found = Subscription.objects.get()
    assert [*found.missed.values()] == [[1, 20]]
    assert "max_age" in found.status_reason
    assert "missed events of topic orders: offsets 1 to 20 in partition" in caplog.text
    (told,) = OperatorEvent.objects.filter(action="lost")
    assert told.after == {"missed": found.missed}
    handler = Recorder()
    drain(declare(handler, topic="orders"))
    assert handler.offsets == list(range(21, 46))
    check_storage()


@pytest.mark.parametrize("for_ever", [dt.timedelta.max, dt.timedelta(days=3_000_000)])
def test_an_endless_retention_does_not_overflow(small: None, for_ever: dt.timedelta) -> None:
    """Topics share their storage, so that an error would keep what belongs to all of them."""
    stuck_group(max_age=for_ever)
    make_old(days=9)
    assert "has not read offset 1 (active)" in why_the_oldest_stays()[0]
    Topic.objects.update(max_age=None)
    topic("archive", retention=for_ever)
    publish_events("archive", 10)
    drain(declare(Recorder(), topic="orders"))
    assert cleanup.clean_up("default")["failed"] == {}
    plan = dry_run("default")
    (left,) = plan.staying
    assert (left.name, left.longest_topic) == ("log_entry_41", "archive")
    assert "retention of archive" in plan.why(left)[0]


def test_only_the_last_loss_of_a_reading_group_is_kept_with_it(small: None) -> None:
    stuck_group(max_age=dt.timedelta(days=8))
    sql("UPDATE log_segments SET filled_at = filled_at - interval '9 days' WHERE lower = 1")
    drop_expired("default")
    drain(declare(Recorder(), topic="orders"))
    publish_events("orders", 30)
    drop_expired("default")
    make_old(days=9)
    drop_expired("default")
    assert [*Subscription.objects.get().missed.values()] == [[46, 70]]
    assert [
        [*event.after["missed"].values()] for event in OperatorEvent.objects.filter(action="lost").order_by("id")
    ] == [
        [[1, 10]],
        [[46, 70]],
    ]


def test_drops_in_several_transactions_are_one_loss(small: None) -> None:
    topic("orders", max_bytes=1)
    register_subscription(declare(Recorder(), topic="orders"), using="default")
    publish_events("orders", 10 * (drop.AT_ONCE + 2) + 5)
    drop_expired("default")
    make_old(days=8)
    done = drop_expired("default")
    missed = Subscription.objects.get().missed
    assert [*missed.values()] == [[1, 10 * (drop.AT_ONCE + 2)]]
    assert done.missed == {"readers on orders": missed}
    ranges = [event.after["missed"].popitem()[1] for event in OperatorEvent.objects.filter(action="lost")]
    assert sorted(ranges) == [[1, 10 * drop.AT_ONCE], [10 * drop.AT_ONCE + 1, 10 * drop.AT_ONCE + 20]]


def test_a_group_may_keep_a_limited_number_of_bytes(small: None) -> None:
    stuck_group()
    make_old(days=8)
    assert drop_expired("default").partitions == ()
    sizes = [segment.bytes for segment in dry_run("default").staying]
    Topic.objects.filter(name="orders").update(max_bytes=sum(sizes[2:]) + 1)
    assert drop_expired("default").entries == 2 * ROWS
    assert [*Subscription.objects.get().missed.values()] == [[1, 20]]


def test_the_oldest_that_stays_says_why(small: None) -> None:
    stuck_group()
    assert "retention of orders" in why_the_oldest_stays()[0]
    make_old(days=8)
    plan = dry_run("default")
    why = plan.why(plan.staying[0])
    assert why == plan.why(plan.staying[-1])
    assert "readers on orders/" in why[0]
    assert "has not read offset 1 (active)" in why[0]


def test_a_segment_that_was_emptied_by_hand_is_dropped_too(small: None) -> None:
    topic("orders")
    publish_events("orders", 25)
    sql("TRUNCATE log_entry_1")
    assert "log_entry_1" in drop_expired("default").partitions


def test_what_a_full_partition_holds_is_noted_once(small: None) -> None:
    expired_log()
    before = list(SegmentContents.objects.order_by("lower").values())
    drop.note_full_segments("default")
    assert list(SegmentContents.objects.order_by("lower").values()) == before
    assert [each["entries"] for each in before] == [10, 10]


def letter(state: str, days: float) -> None:
    found = DeadLetterFactory(state=state, next_attempt_at=timezone_now() if state == "retrying" else None)
    AttemptFactory(letter=found)
    DeadLetter.objects.filter(pk=found.pk).update(updated_at=timezone_now() - dt.timedelta(days=days))


def timezone_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def test_only_finished_dead_letters_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "AT_ONCE", 1)
    for each in DeadLetter.State.values:
        letter(each, days=29)
        letter(each, days=31)
    assert [prune.remove_finished_letters("default") for _ in range(3)] == [2, 0, 0]
    left = sorted(DeadLetter.objects.values_list("state", flat=True))
    assert left == sorted([*DeadLetter.State.values, "dead", "retrying", "parked"])
    assert Attempt.objects.count() == len(left)


@override_settings(PUBSUB={"dead_letter_retention_s": 0, "audit_log_retention_s": 0})
def test_both_retentions_are_set() -> None:
    letter("resolved", days=0)
    OperatorEventFactory()
    assert prune.remove_finished_letters("default") == 1
    assert prune.prune_audit_log("default") >= 1
    assert not OperatorEvent.objects.exists()


def test_the_latest_batches_of_a_stream_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "BATCHES_KEPT", 2)
    for sink in ("a", "b"):
        for batch in range(5):
            SinkBatchFactory(sink=sink, batch_id=batch)
    SinkBatch.objects.filter(sink="a").update(published_at=timezone_now() - dt.timedelta(days=31))
    assert [prune.remove_old_sink_batches("default") for _ in range(2)] == [3, 0]
    assert [*SinkBatch.objects.filter(sink="a").order_by("batch_id").values_list("batch_id", flat=True)] == [3, 4]
    assert SinkBatch.objects.filter(sink="b").count() == 5


def test_old_rows_of_the_audit_log_are_removed() -> None:
    for days in (366, 364):
        OperatorEventFactory()
        OperatorEvent.objects.order_by("-id")[:1].get()
        OperatorEvent.objects.filter(pk=OperatorEvent.objects.latest("id").pk).update(
            happened_at=timezone_now() - dt.timedelta(days=days)
        )
    assert [prune.prune_audit_log("default") for _ in range(2)] == [1, 0]


def test_an_error_other_than_a_lock_timeout_is_raised(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    expired_log()

    def broken(cursor: object, names: object, timeout_ms: int) -> None:
        raise OperationalError("the disk is full")

    monkeypatch.setattr(drop, "lock_out_others", broken)
    with pytest.raises(OperationalError, match="disk is full"):
        drop_expired("default")
    monkeypatch.undo()
    check_storage()
    assert drop_expired("default").entries == 2 * ROWS
