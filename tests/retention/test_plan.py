"""What retention plans, from plain data: no database."""

import datetime as dt
from typing import Any

import pytest

from pubsub.retention.plan import Plan, Segment, Storage, TablePartition, Unread, make_plan

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


def segment(lower: int, *, expired: bool = True, **changes: Any) -> Segment:
    """Ten entries, and their messages under the same numbers."""
    values = {
        "lower": lower,
        "upper": lower + 10,
        "filled_at": NOW - dt.timedelta(days=8),
        "expires_at": NOW - dt.timedelta(days=1) if expired else NOW + dt.timedelta(days=1),
        "longest_topic": "orders",
        "entries": 10,
        "first_message_id": lower,
        "last_message_id": lower + 9,
        "log_bytes": 60,
        "message_bytes": 40,
    }
    return Segment(**{**values, **changes})


def storage(*segments: Segment) -> Storage:
    messages = [
        TablePartition(name=f"outbox_message_t_{n}", lower=n, upper=n + 10, bytes=40) for n in (1, 11, 21, 31, 41)
    ]
    return Storage(now=NOW, segments=segments, messages=messages, last_message_id=35)


def unread(position: int, **changes: Any) -> Unread:
    values = {
        "topic_id": 1,
        "topic": "orders",
        "group": "mail",
        "status": "ACTIVE",
        "partition": 0,
        "position": position,
        "offset": position,
        "max_age": None,
        "max_bytes": None,
    }
    return Unread(**{**values, **changes})


THREE = storage(segment(1), segment(11), segment(21))


def plan(found: Storage = THREE, *not_read: Unread, needed: int | None = 31, at_most: int | None = None) -> Plan:
    return make_plan(found, not_read, least_needed_id=needed, at_most=at_most)


def lowers(made: Plan) -> list[int]:
    return [each.lower for each in made.going]


def test_expired_and_read_entries_are_dropped_with_their_messages() -> None:
    made = plan()
    assert made.names == [
        *("log_entry_1", "log_entry_11", "log_entry_21"),
        *("outbox_message_t_1", "outbox_message_t_11", "outbox_message_t_21"),
    ]
    assert (made.upper, made.numbered_below_id, made.bytes) == (31, 31, 300)


def test_nothing_after_a_segment_that_stays_is_dropped() -> None:
    made = plan(storage(segment(1), segment(11, expired=False), segment(21)))
    assert lowers(made) == [1]
    assert [made.why(each) for each in made.staying] == [
        ["not expired before 2030-01-02 00:00:00 UTC: retention of orders"],
        ["an older segment stays"],
    ]


def test_a_group_keeps_what_it_has_not_read() -> None:
    made = plan(THREE, unread(15))
    assert lowers(made) == [1]
    assert made.missed == []
    assert made.why(made.staying[0]) == ["mail on orders/0 has not read offset 15 (active)"]


@pytest.mark.parametrize(
    "changes",
    [{"status": "DEAD"}, {"max_age": dt.timedelta(days=8)}, {"max_bytes": 99}],
    ids=["dead", "too old", "too much"],
)
def test_a_group_that_does_not_count_or_is_beyond_a_cap_misses_them(changes: dict[str, Any]) -> None:
    late = unread(15, **changes)
    made = plan(THREE, late)
    assert lowers(made) == [1, 11, 21]
    assert made.missed == [late]


def test_a_cap_on_bytes_frees_only_the_oldest() -> None:
    made = plan(THREE, unread(5, max_bytes=200))
    assert lowers(made) == [1]


def test_no_more_are_dropped_at_once_than_requested() -> None:
    assert lowers(plan(at_most=2)) == [1, 11]


def test_messages_that_an_entry_needs_stay() -> None:
    made = plan(needed=15)
    assert [partition.name for partition in made.messages] == ["outbox_message_t_1"]
    made = plan(storage(segment(1), segment(11, expired=False, first_message_id=4)))
    assert made.messages == []


def test_a_partition_of_messages_that_is_not_full_stays() -> None:
    made = plan(needed=None)
    assert [partition.lower for partition in made.messages] == [1, 11, 21]


def test_nothing_is_dropped_from_an_empty_log() -> None:
    made = plan(storage())
    assert (made.names, made.upper, made.bytes) == ([], 0, 0)


def test_what_groups_keep_that_has_expired_is_shown_by_group() -> None:
    made = plan(THREE, unread(15), unread(16, partition=1), unread(25, group="search"))
    assert [(each.group, each.bytes) for each in made.held] == [("mail", 200), ("search", 100)]
    assert made.held[0].since == NOW - dt.timedelta(days=1)
    assert plan(storage(segment(1, expired=False)), unread(5)).held == []
    assert plan(THREE, unread(15, status="DEAD")).held == []
