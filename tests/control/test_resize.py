"""Another number of partitions while publishers publish: all agree on the position in the log where it changes."""

import threading
from collections import defaultdict

import pytest
from django.db import connection

from pubsub.control import cancel, resize_topic
from pubsub.errors import InvalidTopic, UnknownTopic
from pubsub.models import ConsumerOffset, OperatorEvent, Resize, Topic
from pubsub.sequencing.sequencer import sequence
from tests.log import insert
from tests.sessions import Running, Session, connect, wait_until

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
    subscribe,
    wait_for_waiting,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_resize_is_a_row_with_the_position_from_which_it_applies() -> None:
    topic = make_topic(partitions=2)
    fill(3, topic="default")
    fill(4)
    resized = resize_topic(TOPIC, 5, reason="more workers", **WHO)
    assert (resized.before, resized.after, resized.offset, resized.changed) == (2, 5, 5, True)
    row = Resize.objects.get()
    assert (row.topic_id, row.position, row.c_offset) == (topic.pk, 8, 5)
    assert (row.partitions_before, row.partitions_after) == (2, 5)
    assert Topic.objects.get(pk=topic.pk).total_partitions == 5
    event = OperatorEvent.objects.get(action="resize")
    assert (event.before, event.after) == (
        {"partitions": 2},
        {"partitions": 5, "from_offset": 5, "from_position": 8},
    )
    assert event.reason == "more workers"


def test_every_group_gets_a_cursor_in_each_new_partition_at_the_tip() -> None:
    make_topic(partitions=2)
    subscribe()
    subscribe("audit")
    subscribe("gone")
    cancel(TOPIC, "gone", **WHO)
    fill(6)
    before = places()
    resize_topic(TOPIC, 4, **WHO)
    for group in (GROUP, "audit", "gone"):
        assert places(group) == {**before, 2: (7, 7, 0), 3: (7, 7, 0)}
        check_counts(group)
    fill(20, start=6)
    assert set(lag()) == {0, 1, 2, 3}
    assert sum(lag().values()) == 26


def test_fewer_partitions_leave_the_old_cursors_for_the_events_still_in_them() -> None:
    make_topic(partitions=4)
    subscribe()
    fill(12)
    resize_topic(TOPIC, 1, **WHO)
    fill(3, start=12)
    assert set(places()) == {0, 1, 2, 3}
    assert sum(lag().values()) == 15
    resize_topic(TOPIC, 4, **WHO)
    assert Resize.objects.count() == 2
    check_counts()
    fill(8, start=15)
    assert sum(lag().values()) == 23


def test_a_late_joiner_also_gets_what_is_left_in_removed_partitions() -> None:
    make_topic(partitions=4)
    fill(12)
    resize_topic(TOPIC, 1, **WHO)
    fill(3, start=12)
    subscribe("late")
    assert sum(lag("late").values()) == 15
    check_counts("late")


def test_registering_returns_where_a_late_joiner_starts() -> None:
    make_topic(partitions=2)
    fill(5)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM log_entry WHERE c_offset <= 2")
    subscribe("late")
    event = OperatorEvent.objects.get(action="subscribe")
    assert (event.actor, event.topic, event.group_id) == ("consumer", TOPIC, "late")
    assert event.after == {"start": "earliest", "start_value": None, "offset": 3}


def test_the_same_number_changes_nothing() -> None:
    make_topic(partitions=2)
    assert not resize_topic(TOPIC, 2, **WHO).changed
    assert not Resize.objects.exists()
    assert [action for _, action, _, _ in journal()] == ["create"]


def test_two_resizes_at_one_position_are_one_change() -> None:
    make_topic(partitions=2)
    fill(1)
    resize_topic(TOPIC, 8, **WHO)
    resize_topic(TOPIC, 3, **WHO)
    row = Resize.objects.get()
    assert (row.position, row.partitions_before, row.partitions_after) == (2, 2, 3)
    assert [action for _, action, _, _ in journal()] == ["create", "resize", "resize"]


def test_bad_numbers_and_names_are_refused() -> None:
    make_topic()
    with pytest.raises(InvalidTopic, match="partitions"):
        resize_topic(TOPIC, 0, **WHO)
    with pytest.raises(UnknownTopic):
        resize_topic("other", 2, **WHO)


def test_a_transaction_open_across_a_resize_goes_to_the_new_partitions(session: Session) -> None:
    topic = make_topic(partitions=1)
    session.execute("BEGIN")
    for n in range(20):
        insert(session, n, topic=topic.pk, key=str(n))
    resize_topic(TOPIC, 4, **WHO)
    session.execute("COMMIT")
    sequence("default")
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT partition_id FROM log_entry ORDER BY 1")
        assert cursor.fetchall() == [(0,), (1,), (2,), (3,)]


def test_it_waits_for_a_pass_but_publishers_wait_for_neither(session: Session, other: Session) -> None:
    topic = make_topic(partitions=2)
    fill(2)
    session.execute("BEGIN")
    insert(other, "numbered by the pass", topic=topic.pk)
    assert session.execute("SELECT events FROM pubsub_sequence_v1()").fetchone() == (1,)
    resizing = Running(resize_topic, TOPIC, 3, **WHO)
    wait_for_waiting(other, "log_sequencer")
    other.execute("SET lock_timeout = '1s'")
    insert(other, "published meanwhile", topic=topic.pk)
    session.execute("COMMIT")
    assert resizing.result().offset == 4
    assert sequence("default").messages == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT c_offset FROM log_entry WHERE topic_id = %s ORDER BY position", [topic.pk])
        assert [offset for (offset,) in cursor.fetchall()] == [1, 2, 3, 4]


def test_resizes_under_load_divide_the_log_exactly(session: Session) -> None:
    """Publishers and a sequencer run while the number changes; each entry has the partition of its time."""
    topic = make_topic(partitions=3)
    subscribe()
    stopping = threading.Event()

    def publish_until_told(publisher: int) -> int:
        with connect() as mine:
            n = 0
            while not stopping.is_set():
                insert(mine, n, topic=topic.pk, key=f"{publisher}-{n % 7}")
                n += 1
            return n

    def number_until_told() -> None:
        while not stopping.is_set():
            sequence("default")

    running = [Running(publish_until_told, publisher) for publisher in range(3)] + [Running(number_until_told)]
    tip = "SELECT coalesce(max(next_offset), 1) FROM log_counter WHERE topic_id = %s"

    def more_than(offset: int) -> bool:
        row = session.execute(tip, [topic.pk]).fetchone()
        return bool(row and row[0] > offset)

    offset = 50
    for partitions in (5, 2, 2, 8, 1):
        wait_until(lambda: more_than(offset), "there are more events")  # noqa: B023
        offset = (resize_topic(TOPIC, partitions, **WHO).offset or offset) + 50
    wait_until(lambda: more_than(offset), "there are more events")
    stopping.set()
    published = sum(worker.result() or 0 for worker in running)
    sequence("default")

    resizes = list(Resize.objects.order_by("position").values_list("position", "c_offset", "partitions_after"))
    assert [after for _, _, after in resizes] == [5, 2, 8, 1]
    rows = session.execute(
        "SELECT position, c_offset, partition_id, abs(hashtext(key)::bigint), key, (payload ->> 'n')::integer"
        " FROM log_entry JOIN outbox_message_t AS message ON message.id = message_id ORDER BY position"
    ).fetchall()
    assert len(rows) == published
    seen: dict[str, list[int]] = defaultdict(list)
    for position, c_offset, partition, hashed, key, n in rows:
        now = [3] + [after for begins, _, after in resizes if begins <= position]
        assert partition == hashed % now[-1], f"position {position}"
        assert now == [3] + [after for _, begins, after in resizes if begins <= c_offset]
        seen[key].append(n)
    assert all(order == sorted(order) for order in seen.values())
    assert ConsumerOffset.objects.filter(group_id=GROUP).count() == 8
    assert sum(lag().values()) == published
    check_counts()
