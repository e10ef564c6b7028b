"""What is wrong, said in a sentence; and nothing said where nothing is."""

import datetime as dt
import re
import uuid
from pathlib import Path

import pytest

from pubsub.monitoring.problems import CODES, NOTE, STUCK, WARNING, Problem, by_cause, find_problems
from pubsub.monitoring.status import (
    Blocker,
    CallInHand,
    GroupStatus,
    PartitionStatus,
    RecentFailures,
    SequencerStatus,
    Stop,
    SystemStatus,
    TopicStatus,
)
from pubsub.retention.plan import Held

OBSERVING = Path(__file__).resolve().parents[2] / "docs" / "observing.md"

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
        "published_at": None,
        "rate": 1.0,
    }
    return TopicStatus(**{**values, **changes})


def cursor(partition=0, lag=0, waiting=None, moved=1, unnumbered=0):
    return PartitionStatus(
        partition=partition,
        next_offset=1234,
        lag=lag,
        unnumbered=unnumbered,
        waiting_since=ago(seconds=waiting) if waiting else None,
        behind_s=waiting or 0,
        moved_at=ago(seconds=moved),
    )


def call(**changes):
    values = {
        "worker_id": "vm:1:abc",
        "host": "vm",
        "pid": 1,
        "threads": 1,
        "group": "mail",
        "topic": "orders",
        "partition": 3,
        "offset": 495,
        "event_id": uuid.UUID(int=1),
        "events": 1,
        "handler": "shop.subscribers.send",
        "session_pid": 29016,
        "is_overdue": False,
        "since": ago(seconds=130),
        "seconds": 130,
    }
    return CallInHand(**{**values, **changes})


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
        "partitions": partitions or (cursor(),),
    }
    return GroupStatus(**{**values, **changes})


def recent(in_a_row, newest, newest_failed, **changes):
    values = {"since": ago(minutes=6), "transactions": 7, "exception": "builtins.ValueError"}
    return RecentFailures(in_a_row=in_a_row, newest=newest, newest_failed=newest_failed, **{**values, **changes})


def stop(*partitions, until=None):
    return Stop(offset=46, exception="builtins.ValueError", since=ago(minutes=2), until=until, partitions=partitions)


def held(**changes):
    values = {"topic": "orders", "group": "mail", "bytes": 4_800_000, "since": ago(hours=1)}
    return Held(**{**values, **changes})


def sequencer(**changes):
    values = {
        "last_position": 100,
        "is_foreign": False,
        "leader_pid": 77,
        "leader_client": "10.0.0.7",
        "leader_seen_at": ago(seconds=1),
        "waiting_since": None,
        "overdue_since": None,
        "bytes": 1,
    }
    return SequencerStatus(**{**values, **changes})


def blocker(**changes):
    values = {
        "kind": "transaction",
        "pid": 4711,
        "name": "psql",
        "username": "olga",
        "client": "10.0.0.9",
        "state": "idle in transaction",
        "since": ago(hours=1),
        "age_s": 3600,
        "query": "SELECT 1",
        "bytes": None,
        "blocks_sequencer": False,
        "blocks_retention": False,
    }
    return Blocker(**{**values, **changes})


def problems(groups=(), topics=(), blockers=(), held=(), **changes):
    return find_problems(
        SystemStatus(
            taken_at=NOW,
            topics=tuple(topics) or (topic(),),
            groups=tuple(groups),
            sequencer=sequencer(**changes),
            blockers=blockers,
            held=held,
        )
    )


CASES = {
    "restored": (
        {"is_foreign": True, "waiting_since": ago(hours=1)},
        STUCK,
        "foreign",
        "the first one repairs this by itself",
    ),
    "no sequencer": (
        {"leader_pid": None, "waiting_since": ago(minutes=3)},
        STUCK,
        "sequencer",
        "in the last 3 min has been numbered: no consumer is running",
    ),
    "the sequencer is slow": (
        {"waiting_since": ago(minutes=3)},
        STUCK,
        "sequencer-slow",
        "though session 77 (10.0.0.7) is at work",
    ),
    "the sequencer hangs": (
        {"waiting_since": ago(minutes=3), "leader_seen_at": ago(minutes=2)},
        STUCK,
        "sequencer-silent",
        "session 77 (10.0.0.7) should do that, and has been silent for 2 min",
    ),
    "the sequencer is locked out": (
        {"waiting_since": ago(minutes=3), "blocked_by": blocker(blocks_sequencer=True, age_s=200)},
        STUCK,
        "sequencer-blocked",
        "session 4711 (psql, olga, 10.0.0.9) blocks the sequencer with a transaction that has been open for 3 min",
    ),
    "the sequencer is locked out by no known session": (
        {
            "waiting_since": ago(minutes=3),
            "blockers": (blocker(kind="prepared", pid=None, name="gid-1", age_s=200, blocks_sequencer=True),),
        },
        STUCK,
        "sequencer-blocked",
        "prepared transaction gid-1 blocks the sequencer",
    ),
    "delayed": ({"overdue_since": ago(minutes=1)}, STUCK, "delayed", "due for 1 min"),
    "dead group": (
        {"groups": [group(status="DEAD")]},
        STUCK,
        "dead",
        "mail (orders) was given up: no heartbeat",
    ),
    "paused": (
        {"groups": [group(cursor(lag=2500, waiting=99999), status="PAUSED")]},
        NOTE,
        "paused",
        "is paused; 2,500 events are waiting",
    ),
    "paused, nothing waits": ({"groups": [group(status="PAUSED")]}, NOTE, "paused", "mail (orders) is paused."),
    "no workers": (
        {"groups": [group(cursor(lag=1, waiting=7500, moved=9000), members=0)]},
        STUCK,
        "no-members",
        "mail (orders). 1 event has been waiting for 2 h 5 min",
    ),
    "no workers, and no handler": (
        {"groups": [group(cursor(lag=1, waiting=7500, moved=9000), members=0, has_handler=False)]},
        STUCK,
        "no-handler",
        "mail (orders), and no handler is declared for it here",
    ),
    "a handler hangs": (
        {"groups": [group(cursor(3, lag=5, waiting=500, moved=120), calls=(call(partition=3),))]},
        STUCK,
        "hanging",
        "mail (orders) has been handling offset 495 for 2 min in worker vm:1:abc (session 29016).",
    ),
    "a handler hangs, and others wait for it": (
        {
            "groups": [
                group(cursor(3, lag=5, waiting=500, moved=120), calls=(call(),), waits_for=("vm:1:abc",)),
                group(cursor(lag=1, waiting=500, moved=500), group="search", waits_for=("vm:1:abc",)),
            ]
        },
        STUCK,
        "hanging",
        "in worker vm:1:abc (session 29016); 1 other group waits for it.",
    ),
    "a handler has not ended": (
        {"groups": [group(calls=(call(seconds=9, is_overdue=True, session_pid=None),))]},
        STUCK,
        "hanging",
        "for 9 s in worker vm:1:abc. Its time is over, and it has not ended.",
    ),
    "stuck": (
        {"groups": [group(cursor(), cursor(3, lag=5, waiting=500, moved=120), cursor(1, lag=1, waiting=90, moved=90))]},
        STUCK,
        "not-moving",
        "in partitions 3, 1 for up to 2 min; the oldest event is at offset 1,234",
    ),
    "slow": (
        {"groups": [group(cursor(lag=5, waiting=500, moved=1))]},
        WARNING,
        "behind",
        "mail (orders) is falling behind: 5 events are waiting, the oldest for 8 min",
    ),
    "growing": (
        {"groups": [group(cursor(lag=1200, waiting=40, moved=1), lag_before=300)]},
        WARNING,
        "behind",
        "1,200 events are waiting, 900 more than 5 min ago, and the oldest for 40 s",
    ),
    "skewed": (
        {"groups": [group(cursor(lag=5, waiting=9), cursor(3, lag=885, waiting=117))]},
        WARNING,
        "skewed",
        "885 of the 890 events that wait for mail (orders) are in partition 3",
    ),
    "keeps what has expired": (
        {"groups": [group()], "held": (held(),)},
        WARNING,
        "disk",
        "mail (orders) keeps 4.6 MB on disk that expired 1 h ago",
    ),
    "not read": ({"topics": [topic(published_at=NOW)], "groups": []}, NOTE, "unread", "No group reads orders"),
    "failed": (
        {"groups": [group(dead=3, parked=2, failed_since=ago(minutes=1))]},
        WARNING,
        "dead-letters",
        "3 dead letters in mail (orders), with 2 events parked behind them",
    ),
    "failed, with what": (
        {
            "groups": [
                group(dead=55, exception="mail.UnknownAddress", with_exception=54, failed_last=ago(seconds=3)),
            ]
        },
        WARNING,
        "dead-letters",
        "55 dead letters in mail (orders), 54 of them UnknownAddress, the newest 3 s old: replay or discard them.",
    ),
    "failing on everything": (
        {"groups": [group(retrying=314, recent_failures=recent(314, 20, 20))]},
        STUCK,
        "failing",
        "mail (orders) has been failing for 6 min, on all of its last 314 events: ValueError.",
    ),
    "failing on nearly everything": (
        {"groups": [group(retrying=314, recent_failures=recent(3, 20, 19))]},
        STUCK,
        "failing",
        "mail (orders) has been failing for 6 min, on 19 of its last 20 events: ValueError.",
    ),
    "stopped": (
        {"groups": [group(cursor(lag=9, waiting=500, moved=500), on_failure="stop", dead=2, stop=stop(0))]},
        STUCK,
        "stopped",
        "mail (orders) has stopped in partition 0 behind failed event 46 (ValueError): replay or discard it.",
    ),
    "stopped until the next attempt": (
        {
            "groups": [
                group(
                    cursor(lag=9, waiting=500, moved=500),
                    on_failure="stop",
                    retrying=2,
                    stop=stop(0, 3, until=NOW + dt.timedelta(minutes=4)),
                )
            ]
        },
        WARNING,
        "waits-for-retry",
        "waits in partitions 0, 3 for the next attempt at failed events, the first one 46 (ValueError), in 4 min",
    ),
    "failed, uncounted": (
        {"groups": [group(dead=1001, letters_bounded=True)]},
        WARNING,
        "dead-letters",
        "at least 1,001 dead letters",
    ),
    "lost": ({"groups": [group(missed={"0": [1, 10], "2": [5, 5]})]}, WARNING, "missed", "missed up to 11 events"),
    "refused": ({"topics": [topic(zero_subscribers="refuse")]}, STUCK, "refused", "Publishing to orders fails"),
    "open transaction": (
        {"blockers": (blocker(),)},
        WARNING,
        "long-transaction",
        "Session 4711 (psql, olga, 10.0.0.9) has kept a transaction open for 1 h; VACUUM",
    ),
    "reader": (
        {"blockers": (blocker(blocks_retention=True),)},
        WARNING,
        "long-transaction",
        "old partitions cannot be dropped until it ends",
    ),
    "prepared": (
        {"blockers": (blocker(kind="prepared", pid=None, name="gid-1"),)},
        WARNING,
        "long-transaction",
        "gid-1 has been open",
    ),
    "xids to come": (
        {"xids_to_come": 2},
        WARNING,
        "xids-to-come",
        "2 events wait for transaction ids that are still to come here",
    ),
    "many xids to come": ({"xids_to_come": 1001}, WARNING, "xids-to-come", "at least 1,001 events wait"),
    "default segment": (
        {"overflowing": ["outbox_message_t"]},
        WARNING,
        "default-segment",
        "outbox_message_t: rows in the default segment, which retention cannot drop",
    ),
    "slot": (
        {"blockers": (blocker(kind="slot", name="standby", age_s=None, since=None, bytes=3 * 1024**3),)},
        WARNING,
        "slot",
        "standby is unused, and keeps 3.0 GB",
    ),
}


@pytest.mark.parametrize(("given", "severity", "code", "said"), CASES.values(), ids=CASES)
def test_every_problem_is_reported(given, severity, code, said):
    (found,) = problems(**given)
    assert (found.severity, found.code) == (severity, code)
    assert said in found.text


@pytest.mark.parametrize(
    "given",
    [
        {"waiting_since": ago(seconds=1), "leader_pid": None, "overdue_since": ago(seconds=5)},
        {"groups": [group(cursor(lag=5, waiting=30, moved=3000))]},
        {"groups": [group(cursor(lag=5, unnumbered=5, waiting=900, moved=3000), members=0)]},
        {"groups": [group(cursor(lag=0, moved=30000), members=0)]},
        {"groups": [group(cursor(lag=500, waiting=200, moved=2))]},
        {"groups": [group(status="CANCELLED", members=0)]},
        {"groups": [group(retrying=4, failed_since=ago(days=1))]},
        {"groups": [group(cursor(lag=1200, waiting=40, moved=1), lag_before=1100)]},
        {"groups": [group(cursor(lag=400, waiting=90), cursor(3, lag=885, waiting=117))]},
        {"groups": [group()], "held": (held(since=ago(seconds=30)),)},
        {"groups": [group(retrying=9, recent_failures=recent(9, 20, 9))]},
        {"groups": [group(retrying=4, recent_failures=recent(4, 4, 4))]},
        {"groups": [group(retrying=90, recent_failures=recent(90, 20, 20, transactions=1))]},
        {"groups": [group(status="PAUSED")], "topics": [topic(zero_subscribers="refuse")]},
        {"blockers": (blocker(age_s=60), blocker(kind="slot", age_s=None, since=None, bytes=1000))},
    ],
)
def test_a_state_that_resolves_itself_is_not_mentioned(given):
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


def test_a_code_has_one_severity_and_every_case_is_a_code():
    assert {code for _, _, code, _ in CASES.values()} == set(CODES)
    assert all(CODES[code] == severity for _, severity, code, _ in CASES.values())


def test_only_a_session_that_has_to_end_is_named_for_that():
    late = {"waiting_since": ago(minutes=3)}
    in_the_way = {"blocked_by": blocker(blocks_sequencer=True)}
    assert [found.pid for found in problems(**late)] == [None], "ours is at work: ending it would cure nothing"
    assert [found.pid for found in problems(**late, **in_the_way)] == [4711]
    assert [found.pid for found in problems(**late, leader_seen_at=ago(minutes=2))] == [77]


def test_every_code_is_documented_with_its_severity():
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (stuck|warning|note) \|", OBSERVING.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert dict(rows) == CODES


def test_a_dozen_sentences_are_said_at_most():
    few = [Problem(code="paused", text=str(n)) for n in range(3)]
    assert [cause.problem for cause in by_cause(few)] == few
    many = [Problem(code=code, text=str(n)) for code in list(CODES)[:11] for n in range(5)]
    causes = by_cause(many)
    assert [cause.problem.code for cause in causes] == list(CODES)[:11]
    assert all(len(cause.alike) == 4 for cause in causes)
    twos = [Problem(code=code, text=str(n)) for code in list(CODES)[:11] for n in range(2)]
    assert len(by_cause(twos)) == 11, "two of each kind would be more than a dozen"
