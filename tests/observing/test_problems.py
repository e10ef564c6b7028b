"""What is wrong, said in a sentence; and nothing said where nothing is."""

import datetime as dt

import pytest

from pubsub.observing.problems import NOTE, STUCK, WARNING, find_problems
from pubsub.observing.status import GroupStatus, Hold, Numbering, PartitionStatus, Status, TopicStatus

NOW = dt.datetime(2030, 1, 1, 12, tzinfo=dt.UTC)


def ago(**span):
    return NOW - dt.timedelta(**span)


def topic(**changes):
    values = {
        "id": 2,
        "name": "orders",
        "semantics": "PUB_SUB",
        "total_partitions": 4,
        "retention": dt.timedelta(days=7),
        "zero_subscribers": "keep",
        "tip": 100,
        "kept": 100,
        "bytes": 1000,
        "published_at": NOW,
        "rate": 1.0,
    }
    return TopicStatus(**{**values, **changes})


def place(partition=0, lag=0, waiting=None, moved=1):
    return PartitionStatus(
        partition=partition,
        next_offset=1234,
        lag=lag,
        waiting_since=ago(seconds=waiting) if waiting else None,
        behind_s=waiting or 0,
        moved_at=ago(seconds=moved),
    )


def group(*partitions, **changes):
    values = {
        "subscription_id": 1,
        "topic": "orders",
        "group": "mail",
        "status": "ACTIVE",
        "status_reason": "",
        "status_changed_at": ago(days=3),
        "missed": {},
        "on_failure": "dead_letter",
        "delivery": "transactional",
        "members": 1,
        "silent": 0,
        "heard_at": NOW,
        "dead": 0,
        "retrying": 0,
        "parked": 0,
        "letters_bounded": False,
        "failed_since": None,
        "partitions": partitions or (place(),),
    }
    return GroupStatus(**{**values, **changes})


def numbering(**changes):
    values = {
        "last_position": 100,
        "is_foreign": False,
        "leader_pid": 77,
        "waiting_since": None,
        "overdue_since": None,
        "bytes": 1,
    }
    return Numbering(**{**values, **changes})


def hold(**changes):
    values = {
        "kind": "transaction",
        "pid": 4711,
        "name": "psql",
        "username": "olga",
        "state": "idle in transaction",
        "since": ago(hours=1),
        "age_s": 3600,
        "query": "SELECT 1",
        "bytes": None,
        "holds_numbering": False,
        "holds_retention": False,
    }
    return Hold(**{**values, **changes})


def problems(groups=(), topics=(), holds=(), **changes):
    return find_problems(
        Status(
            taken_at=NOW,
            topics=tuple(topics) or (topic(),),
            groups=tuple(groups),
            numbering=numbering(**changes),
            holds=holds,
        )
    )


CASES = {
    "restored": (
        {"is_foreign": True, "waiting_since": ago(hours=1)},
        STUCK,
        "foreign",
        "the first one puts that right by itself",
    ),
    "nobody numbers": (
        {"leader_pid": None, "waiting_since": ago(minutes=3)},
        STUCK,
        "numbering",
        "no offsets for 3 min, and nobody hands them out",
    ),
    "numbering hangs": ({"waiting_since": ago(minutes=3)}, STUCK, "numbering", "though session 77 should"),
    "numbering is locked out": (
        {"waiting_since": ago(minutes=3), "holds": (hold(holds_numbering=True, age_s=200),)},
        STUCK,
        "numbering",
        "session 4711 has locked",
    ),
    "delayed": ({"overdue_since": ago(minutes=1)}, STUCK, "delayed", "due for 1 min"),
    "dead group": ({"groups": [group(status="DEAD")]}, STUCK, "dead", "mail on orders is dead"),
    "paused": (
        {"groups": [group(place(lag=2500, waiting=99999), status="PAUSED")]},
        NOTE,
        "paused",
        "is paused; 2,500 events wait for it",
    ),
    "paused, nothing waits": ({"groups": [group(status="PAUSED")]}, NOTE, "paused", "mail on orders is paused."),
    "nobody works": (
        {"groups": [group(place(lag=1, waiting=7500, moved=9000), members=0)]},
        STUCK,
        "no-members",
        "1 event not handled, the first one for 2 h 5 min",
    ),
    "stuck": (
        {"groups": [group(place(), place(3, lag=5, waiting=500, moved=120), place(1, lag=1, waiting=90, moved=90))]},
        STUCK,
        "not-moving",
        "partitions 3, 1 of orders; longest for 2 min, at offset 1,234",
    ),
    "slow": (
        {"groups": [group(place(lag=5, waiting=500, moved=1))]},
        WARNING,
        "behind",
        "mail is 8 min behind on orders, by 5 events",
    ),
    "failed": (
        {"groups": [group(dead=3, parked=2, failed_since=ago(minutes=1))]},
        WARNING,
        "dead-letters",
        "could not handle 3 events of orders, and 2 events of the same keys wait",
    ),
    "failed, uncounted": (
        {"groups": [group(dead=1001, letters_bounded=True)]},
        WARNING,
        "dead-letters",
        "at least 1,001 events",
    ),
    "lost": ({"groups": [group(missed={"0": [1, 10], "2": [5, 5]})]}, WARNING, "missed", "lost up to 11 events"),
    "refused": ({"topics": [topic(zero_subscribers="refuse")]}, STUCK, "refused", "Publishing to orders is refused"),
    "open transaction": ({"holds": (hold(),)}, WARNING, "held", "Session 4711 has had a transaction open for 1 h"),
    "reader": ({"holds": (hold(holds_retention=True),)}, WARNING, "held", "retention waits for it"),
    "prepared": ({"holds": (hold(kind="prepared", pid=None, name="gid-1"),)}, WARNING, "held", "gid-1 has been open"),
    "slot": (
        {"holds": (hold(kind="slot", name="standby", age_s=None, since=None, bytes=3 * 1024**3),)},
        WARNING,
        "slot",
        "standby, which keeps 3.0 GB",
    ),
}


@pytest.mark.parametrize(("given", "severity", "code", "said"), CASES.values(), ids=CASES)
def test_what_is_wrong_is_said(given, severity, code, said):
    (found,) = problems(**given)
    assert (found.severity, found.code) == (severity, code)
    assert said in found.text


@pytest.mark.parametrize(
    "given",
    [
        {"waiting_since": ago(seconds=1), "leader_pid": None, "overdue_since": ago(seconds=5)},
        {"groups": [group(place(lag=5, waiting=30, moved=3000))]},
        {"groups": [group(place(lag=0, moved=30000), members=0)]},
        {"groups": [group(place(lag=500, waiting=200, moved=2))]},
        {"groups": [group(status="CANCELLED", members=0)]},
        {"groups": [group(retrying=4, failed_since=ago(days=1))]},
        {"groups": [group(status="PAUSED")], "topics": [topic(zero_subscribers="refuse")]},
        {"holds": (hold(age_s=60), hold(kind="slot", age_s=None, since=None, bytes=1000))},
    ],
)
def test_what_goes_on_by_itself_is_not_mentioned(given):
    assert [p for p in problems(**given) if p.severity != NOTE] == []


def test_the_worst_comes_first_and_then_the_oldest():
    found = problems(
        [
            group(status="PAUSED", group="a"),
            group(dead=1, failed_since=ago(minutes=1), group="b"),
            group(status="DEAD", status_changed_at=ago(minutes=1), group="c"),
            group(status="DEAD", status_changed_at=ago(minutes=2), group="d"),
        ]
    )
    assert [problem.group for problem in found] == ["d", "c", "b", "a"]
