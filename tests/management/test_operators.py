"""The commands of operators: they parse, do what they say, print what they did, and end with a meaningful code."""

import datetime as dt
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone

from pubsub import publish
from pubsub.db.audit import record
from pubsub.management.operator_command import system_user
from pubsub.management.processes import from_a_signal
from pubsub.management.status_text import as_text
from pubsub.models import OperatorEvent, OutboxMessage, Subscription, Topic
from pubsub.monitoring.status import status
from pubsub.sequencing.sequencer import sequence
from tests.control.helpers import GROUP, TOPIC, fill, lag, make_topic, places, reread, status_of, subscribe
from tests.factories import DeadLetterFactory, LeaseFactory, MemberFactory, SubscriptionFactory
from tests.log import insert
from tests.sessions import Session, connected_to, database_url

pytestmark = pytest.mark.django_db(transaction=True)

CHECKOUT = Path(__file__).resolve().parents[2]


def run(*arguments: str, exit_code: int = 0) -> str:
    out = io.StringIO()
    if exit_code:
        with pytest.raises(CommandError) as ended:
            call_command(*arguments, stdout=out, stderr=io.StringIO())
        assert ended.value.returncode == exit_code
        return str(ended.value)
    call_command(*arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def told(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--format=json"))


# pubsub_topic


def test_topics_are_made_changed_resized_and_removed() -> None:
    made = told("pubsub_topic", "create", TOPIC, "--partitions=3", "--retention=36h", "--max-bytes=2GB")
    assert (made["partitions"], made["retention"], made["max_bytes"]) == (3, "P1DT12H00M00S", 2 * 10**9)
    changed = told("pubsub_topic", "configure", TOPIC, "--max-bytes=none", "--zero-subscribers=refuse")
    assert changed["changed"] == {
        "max_bytes": {"before": 2 * 10**9, "after": None},
        "zero_subscribers": {"before": "keep", "after": "refuse"},
    }
    resized = told("pubsub_topic", "resize", TOPIC, "5", "--reason=growth", "--actor=olivia")
    assert resized == {"topic": TOPIC, "before": 3, "after": 5, "from_offset": 1}
    event = OperatorEvent.objects.get(action="resize")
    assert (event.actor, event.reason) == ("olivia", "growth")
    assert OperatorEvent.objects.get(action="configure").actor == system_user()
    listed = {topic["name"]: topic for topic in told("pubsub_topic", "list")}
    assert (listed[TOPIC]["partitions"], listed[TOPIC]["retention"]) == (5, 36 * 3600)
    assert told("pubsub_topic", "remove", TOPIC)["lost"] == []
    assert not Topic.objects.filter(name=TOPIC).exists()


def test_it_says_so_if_nothing_changes() -> None:
    make_topic(partitions=2)
    assert run("pubsub_topic", "resize", TOPIC, "2") == 'Topic "orders" has 2 partitions already.\n'
    assert run("pubsub_topic", "configure", TOPIC, "--semantics=PUB_SUB") == 'Topic "orders" is like this already.\n'
    assert run("pubsub_topic", "configure", TOPIC, "--retention=1d") == "orders: retention 7.0 d → 24 h\n"


def test_a_dry_run_changes_and_records_nothing() -> None:
    make_topic(partitions=2)
    subscribe()
    fill(2)
    before = (OperatorEvent.objects.count(), Topic.objects.count(), places())
    for arguments in (
        ("pubsub_topic", "create", "other"),
        ("pubsub_topic", "configure", TOPIC, "--retention=1d"),
        ("pubsub_topic", "resize", TOPIC, "9"),
        ("pubsub_topic", "remove", TOPIC, "--force"),
        ("pubsub_group", "pause", GROUP),
        ("pubsub_group", "cancel", GROUP),
        ("pubsub_group", "seek", GROUP, "--to=latest"),
        ("pubsub_group", "force-complete", GROUP, "--older-than=0s"),
        ("pubsub_group", "remove", GROUP, "--force"),
    ):
        err = io.StringIO()
        call_command(*arguments, "--dry-run", stdout=io.StringIO(), stderr=err)
        assert "nothing was changed" in err.getvalue()
    assert (OperatorEvent.objects.count(), Topic.objects.count(), places()) == before
    assert (status_of(), Topic.objects.get(name=TOPIC).total_partitions) == ("ACTIVE", 2)


def test_a_dry_run_says_that_it_is_one_to_programs_too() -> None:
    make_topic()
    subscribe()
    assert told("pubsub_group", "pause", GROUP, "--dry-run")[0]["dry_run"] is True
    assert told("pubsub_group", "seek", GROUP, "--to=latest", "--dry-run")["dry_run"] is True
    assert "dry_run" not in told("pubsub_group", "pause", GROUP)[0]


def test_a_dry_run_that_would_be_refused_is_refused() -> None:
    make_topic()
    fill(1)
    assert "1 event is in its log" in run("pubsub_topic", "remove", TOPIC, "--dry-run", exit_code=1)


def test_sync_applies_the_settings() -> None:
    with override_settings(PUBSUB={"topics": {TOPIC: {"partitions": 2}}}):
        assert told("pubsub_topic", "sync") == {TOPIC: {"partitions": {"before": None, "after": 2}}}
        assert run("pubsub_topic", "sync") == 'All topics match PUBSUB["topics"].\n'


@pytest.mark.parametrize(
    ("arguments", "message", "exit_code"),
    [
        (("pubsub_topic", "resize", "oders", "2"), 'Did you mean "orders"?', 1),
        (("pubsub_topic", "resize", TOPIC, "0"), "at least 1", 1),
        (("pubsub_topic", "configure", TOPIC, "--retention=week"), "expected a duration such as", 1),
        (("pubsub_topic", "configure", TOPIC, "--max-bytes=2x"), "expected a number of bytes", 1),
        (("pubsub_topic", "list", "--database=nowhere"), 'There is no database "nowhere"', 2),
        (("pubsub_group", "list", "--topic=oders"), 'Did you mean "orders"?', 1),
        (("pubsub_group", "pause", "mial"), 'Did you mean "mail"?', 1),
        (("pubsub_group", "seek", GROUP, "--to=yesterday"), "expected earliest, latest, an offset", 1),
        (("pubsub_group", "seek", GROUP, "--by=1.5"), "expected a number of events", 1),
        (("pubsub_group", "seek", GROUP, "--to=99"), "beyond the tip", 1),
        (("pubsub_group", "seek", GROUP), "required", 1),
        (("pubsub_status", "--topic=oders"), 'Did you mean "orders"?', 2),
        (("pubsub_status", "--group=mial"), 'Did you mean "mail"?', 2),
        (("pubsub_dead_letters", "list", "--group=mial"), 'Did you mean "mail"?', 2),
        (("pubsub_dead_letters", "replay", "--group=mial"), 'Did you mean "mail"?', 2),
        (("pubsub_tail", "oders", "--no-follow"), 'Did you mean "orders"?', 2),
        (("pubsub_tail", TOPIC, "--from=99", "--no-follow"), "beyond the tip", 2),
    ],
)
def test_misuse_says_what_was_expected(arguments: tuple[str, ...], message: str, exit_code: int) -> None:
    make_topic()
    subscribe()
    assert message in run(*arguments, exit_code=exit_code)


@pytest.mark.parametrize(
    "arguments",
    [
        ("pubsub_tail", "oders", "--no-follow"),
        ("pubsub_dead_letters", "replay", "--topic=oders"),
        ("pubsub_topic", "resize", "oders", "2"),
    ],
)
@override_settings(PUBSUB={"unknown_topic": "create"})
def test_reading_creates_no_topic(arguments: tuple[str, ...]) -> None:
    make_topic()
    with pytest.raises(CommandError, match='Did you mean "orders"'):
        call_command(*arguments, stdout=io.StringIO(), stderr=io.StringIO())
    assert not Topic.objects.filter(name="oders").exists()


EVERY_COMMAND = [
    ("pubsub_topic", "list"),
    ("pubsub_group", "list"),
    ("pubsub_status",),
    ("pubsub_tail", "default"),
    ("pubsub_dead_letters", "list"),
    ("pubsub_publish", "default"),
    ("run_cleanup", "--once"),
    ("run_cleanup", "--dry-run"),
]
AND_THOSE_THAT_WAIT = [*EVERY_COMMAND, ("run_cleanup",), ("run_consumer", "--group=readers")]


@pytest.mark.parametrize("arguments", AND_THOSE_THAT_WAIT, ids=" ".join)
def test_missing_tables_are_explained(arguments: tuple[str, ...]) -> None:
    options = {**connection.settings_dict["OPTIONS"], "options": "-c search_path=nowhere"}
    with connected_to(OPTIONS=options):
        said = run(*arguments, exit_code=2)
    assert said == 'The outbox\'s tables are not in database "default"; run `manage.py migrate`.'


@pytest.mark.parametrize("arguments", EVERY_COMMAND, ids=" ".join)
def test_a_database_that_does_not_answer_is_explained(arguments: tuple[str, ...]) -> None:
    with connected_to(PORT="1"):
        assert run(*arguments, exit_code=3).startswith('Database "default" does not answer: ')


@pytest.mark.parametrize("arguments", AND_THOSE_THAT_WAIT, ids=" ".join)
def test_a_database_that_is_not_configured_is_explained(arguments: tuple[str, ...]) -> None:
    assert run(*arguments, "--database=nowhere", exit_code=2).startswith('There is no database "nowhere"; there are: ')


def test_a_signal_may_arrive_just_before_the_worker_waits() -> None:
    stopping = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: from_a_signal(stopping.set))
    try:
        with stopping._cond:  # type: ignore[attr-defined]  # as wait() has it for a moment
            signal.raise_signal(signal.SIGUSR1)
        assert stopping.wait(30)
    finally:
        signal.signal(signal.SIGUSR1, before)


# pubsub_group


def test_groups_are_listed_paused_resumed_and_cancelled() -> None:
    topic = make_topic()
    subscribe()
    fill(3)
    DeadLetterFactory(topic=topic, group_id=GROUP)
    MemberFactory(topic=topic, group_id=GROUP, worker_id="worker-7", host="app-3")
    (group,) = told("pubsub_group", "list", f"--topic={TOPIC}")
    assert (group["group"], group["status"], group["lag"], group["dead"], group["members"]) == (
        GROUP,
        "ACTIVE",
        3,
        1,
        1,
    )
    assert sum(partition["lag"] for partition in group["partitions"]) == 3
    headings, row = run("pubsub_group", "list").splitlines()
    assert " ".join(headings.split()) == "group topic status members heartbeat lag behind dead retrying"
    assert row.split()[:4] == [GROUP, TOPIC, "ACTIVE", "1"]
    assert row.split()[5] == "s"
    (member,) = told("pubsub_group", "members", GROUP)
    assert (member["worker_id"], member["host"]) == ("worker-7", "app-3")
    assert "worker-7" in run("pubsub_group", "members", GROUP)
    assert run("pubsub_group", "pause", GROUP, "--reason=mail is down") == (
        'Group "mail" on topic "orders": ACTIVE → PAUSED\n'
    )
    assert OperatorEvent.objects.get(action="pause").reason == "mail is down"
    assert run("pubsub_group", "pause", GROUP) == 'Group "mail" on topic "orders": PAUSED already\n'
    assert told("pubsub_group", "resume", GROUP)[0]["changed"]
    run("pubsub_group", "cancel", GROUP)
    assert "cancelled for good" in run("pubsub_group", "resume", GROUP, exit_code=1)


def test_a_group_on_several_topics_is_paused_on_all_and_moved_on_one() -> None:
    make_topic()
    make_topic(name="payments")
    subscribe()
    subscribe(topic="payments")
    run("pubsub_group", "pause", GROUP)
    assert set(Subscription.objects.values_list("status", flat=True)) == {"PAUSED"}
    run("pubsub_group", "resume", GROUP, "--topic=payments")
    assert set(Subscription.objects.values_list("topic__name", "status")) == {(TOPIC, "PAUSED"), ("payments", "ACTIVE")}
    assert "orders, payments: choose one with" in run("pubsub_group", "seek", GROUP, "--to=earliest", exit_code=2)
    run("pubsub_group", "seek", GROUP, "--to=earliest", "--topic=payments")


def test_a_seek_is_shown_before_and_after() -> None:
    make_topic(partitions=1)
    subscribe(read=True)
    fill(10)
    reread()
    foreseen = told("pubsub_group", "seek", GROUP, "--by=-4", "--dry-run")
    assert (foreseen["lag_before"], foreseen["lag_after"]) == (0, 4)
    assert sum(lag().values()) == 0
    shown = run("pubsub_group", "seek", GROUP, "--by=-4")
    assert shown.splitlines() == [
        "partition  from offset  to offset  lag was  lag is  in use by",
        "        0           11          7        0       4",
        'Group "mail" on topic "orders": 0 events behind → 4.',
    ]
    assert sorted(reread()) == [6, 7, 8, 9]
    run("pubsub_group", "seek", GROUP, "--to=2h")
    assert sum(lag().values()) == 10
    run("pubsub_group", "seek", GROUP, "--to=2030-01-31T12:00")
    assert reread() == []
    run("pubsub_group", "seek", GROUP, "--to", "9", "--partition=0")
    assert sorted(reread()) == [8, 9]


def test_a_seek_under_a_lease_is_refused_and_forced() -> None:
    topic = make_topic(partitions=1)
    subscribe()
    fill(1)
    LeaseFactory(topic=topic, group_id=GROUP, worker_id="worker-7")
    assert "worker-7" in run("pubsub_group", "seek", GROUP, "--to=latest", "--dry-run")
    assert "0 (by worker-7)" in run("pubsub_group", "seek", GROUP, "--to=latest", exit_code=4)
    run("pubsub_group", "seek", GROUP, "--to=latest", "--force")
    assert lag() == {0: 0}


def test_old_events_are_skipped_and_the_group_is_removed() -> None:
    make_topic(partitions=1)
    subscribe()
    fill(4)
    first = OutboxMessage.objects.order_by("id")[:3]
    OutboxMessage.objects.filter(pk__in=list(first.values_list("pk", flat=True))).update(
        created_at=timezone.now() - dt.timedelta(days=9)
    )
    assert told("pubsub_group", "force-complete", GROUP, "--older-than=3d")["lag_after"] == 1
    assert "there was nothing to move" in run("pubsub_group", "force-complete", GROUP, "--older-than=3d")
    assert "is ACTIVE" in run("pubsub_group", "remove", GROUP, exit_code=1)
    assert "It had 1 unread events" in run("pubsub_group", "remove", GROUP, "--force")
    assert run("pubsub_group", "list") == "No group is subscribed.\n"


def test_a_group_is_renamed() -> None:
    make_topic()
    subscribe()
    assert told("pubsub_group", "rename", GROUP, "post", "--dry-run")[0]["dry_run"]
    assert run("pubsub_group", "rename", GROUP, "post") == 'Group "mail" on topic "orders" is now "post".\n'
    assert "Did you mean" in run("pubsub_group", "rename", "pots", "mail", exit_code=1)


# pubsub_status


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """As wide as a file is taken to be: the terminal of the tests may be narrower."""
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def busy_site() -> None:
    for name in ("orders", "a-topic-with-a-name-that-is-longer-than-most-terminals-are-wide-" + "x" * 60):
        topic = make_topic(name=name, partitions=12)
        for group in ("mail", "a-group-whose-name-is-not-exactly-short-either-" + "y" * 40):
            subscribe(group=group, topic=name)
            DeadLetterFactory(topic=topic, group_id=group)
            MemberFactory(topic=topic, group_id=group)
        fill(30, topic=name)
    Subscription.objects.filter(group_id="mail", topic__name="orders").update(
        status="DEAD", status_reason="missed 3 heartbeats", missed={"0": [1, 7]}
    )


@pytest.mark.usefixtures("busy_site")
@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("every", [False, True])
def test_the_status_fits_the_terminal(width: int, every: bool) -> None:
    text = as_text(status("default"), width, every=every)
    assert max(len(line) for line in text.splitlines() if not line.startswith("    $ ")) <= width
    for expected in ("TOPIC", "GROUP", "orders", "DEAD", "by partition:", "lost unread, by partition: 0: 1–7"):
        assert expected in text


@pytest.mark.usefixtures("busy_site")
def test_the_status_says_what_is_wrong_and_what_to_type() -> None:
    lines = run("pubsub_status", "--topic=orders", "--group=mail").splitlines()
    (dead,) = (n for n, line in enumerate(lines) if line.startswith("STUCK  mail (orders) was given up: no heartbeat"))
    assert lines[dead + 1] == "    $ manage.py pubsub_group resume mail --topic=orders"
    elsewhere = as_text(status("default"), 80, using="the log")
    assert "$ manage.py pubsub_group resume mail --topic=orders --database='the log'\n" in elsewhere
    assert lines.index(next(line for line in lines if line.startswith("TOPIC"))) > dead
    found = told("pubsub_status", "--topic=orders", "--group=mail")["problems"]
    assert [(problem["severity"], problem["code"]) for problem in found] == [
        ("stuck", "dead"),
        ("warning", "missed"),
        ("warning", "dead-letters"),
    ]
    assert {(problem["topic"], problem["group"]) for problem in found} == {("orders", "mail")}
    assert len(told("pubsub_status")["problems"]) > len(found)
    for problem in found:
        # What it says to type is understood.
        run(*shlex.split(problem["remedy"].removeprefix("manage.py ")))
    assert "dead" not in [problem["code"] for problem in told("pubsub_status")["problems"]]


def test_nothing_is_printed_if_nothing_is_wrong() -> None:
    make_topic()
    assert told("pubsub_status")["problems"] == []
    assert "$" not in run("pubsub_status")


def test_a_session_in_the_way_of_the_sequencer_is_named(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("status", "problems_of_log"):
        monkeypatch.setattr(f"pubsub.monitoring.{module}.NUMBERING_LATE", dt.timedelta(0))
    make_topic()
    with transaction.atomic():
        publish(TOPIC, {})
    session.execute("BEGIN")
    session.execute("SELECT FROM log_sequencer FOR UPDATE")
    pid = session.info.backend_pid
    assert f"session {pid} (" in run("pubsub_status")
    assert told("pubsub_status")["problems"][0]["remedy"] == f"SELECT pg_terminate_backend({pid})"


@pytest.mark.usefixtures("busy_site")
def test_the_status_shows_what_blocks(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from pubsub.monitoring import status as module

    monkeypatch.setattr(module, "OLD_TRANSACTION", dt.timedelta(0))
    session.execute("BEGIN")
    session.execute("SELECT 'Ann''s report' FROM log_entry FOR KEY SHARE")
    pid = session.info.backend_pid
    text = run("pubsub_status")
    assert f"pid {pid}" in text
    assert "Ann's report" in text.replace("''", "'")
    assert "holds back retention" in text
    found = [blocker for blocker in told("pubsub_status")["blockers"] if blocker["pid"] == pid]
    assert [(blocker["state"], blocker["blocks_retention"]) for blocker in found] == [("idle in transaction", True)]


def test_the_status_as_data_and_of_one_group() -> None:
    make_topic(partitions=2)
    subscribe()
    subscribe("audit", read=True)
    fill(5)
    everything = told("pubsub_status")
    assert {topic["name"]: topic["tip"] for topic in everything["topics"]}[TOPIC] == 5
    assert everything["sequencer"]["waiting_since"] is None
    one = told("pubsub_status", f"--topic={TOPIC}", "--group=audit")
    assert [(group["group"], group["lag"]) for group in one["groups"]] == [("audit", 5)]
    assert all(partition["behind_s"] >= 0 for partition in one["groups"][0]["partitions"])
    assert [topic["name"] for topic in one["topics"]] == [TOPIC]


def test_limits_decide_the_exit_code() -> None:
    topic = make_topic()
    subscribe()
    fill(5)
    run("pubsub_status", "--fail-on-lag=5")
    assert "is 5 events behind" in run("pubsub_status", "--fail-on-lag=4", exit_code=1)
    run("pubsub_status", "--fail-on-age=1d")
    assert "s behind" in run("pubsub_status", "--fail-on-age=0s", exit_code=1)
    DeadLetterFactory(topic=topic, group_id=GROUP)
    run("pubsub_status", "--fail-on-dead-letters=1")
    assert "has 1 dead letters" in run("pubsub_status", "--fail-on-dead-letters=0", exit_code=1)
    run("pubsub_status", "--fail-on-lag=0", "--topic=default")
    assert "never ends" in run("pubsub_status", "--watch", "--fail-on-lag=0", exit_code=2)
    Subscription.objects.update(status="CANCELLED")
    run("pubsub_status", "--fail-on-lag=0", "--fail-on-dead-letters=0")


def test_what_has_no_offset_counts_for_the_limits() -> None:
    """All consumers are dead, and publishers go on: nothing is in the log, and all of it waits."""
    make_topic()
    subscribe()
    for _ in range(3):
        with transaction.atomic():
            publish(TOPIC, 1)
    assert "is 3 events behind" in run("pubsub_status", "--fail-on-lag=2", exit_code=1)
    assert "s behind" in run("pubsub_status", "--fail-on-age=0s", exit_code=1)
    run("pubsub_status", "--fail-on=warning")
    OutboxMessage.objects.update(created_at=timezone.now() - dt.timedelta(minutes=1))
    assert "no consumer is running" in run("pubsub_status", "--fail-on=stuck", exit_code=1)


def test_a_problem_decides_the_exit_code_by_how_bad_it_is() -> None:
    topic = make_topic()
    subscribe()
    DeadLetterFactory(topic=topic, group_id=GROUP)
    run("pubsub_status", "--fail-on=stuck")
    assert "1 dead letter in mail (orders)" in run("pubsub_status", "--fail-on=warning", exit_code=1)
    run("pubsub_status", "--fail-on=warning", "--topic=default")


def start(*arguments: str, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        cwd=CHECKOUT,
        env=os.environ | {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options,
    )


STABLE = {
    "": {"taken_at", "topics", "groups", "sequencer", "blockers", "problems"},
    "topics": {"name", "semantics", "partitions", "retention", "tip", "kept", "bytes", "published_at", "rate"},
    "groups": {
        *("topic", "group", "status", "status_reason", "missed", "members", "silent", "heard_at", "lag", "behind_s"),
        *("dead", "retrying", "parked", "failed_since", "partitions", "waiting_since"),
    },
    "sequencer": {"last_position", "is_foreign", "leader_pid", "waiting_since", "overdue_since", "bytes"},
    "blockers": {"kind", "pid", "name", "username", "state", "since", "age_s", "query", "bytes"},
    "problems": {"severity", "code", "text", "since", "topic", "group", "offset", "pid", "remedy"},
}
"""Names that programs know. More may come, none may go."""


def test_the_json_keeps_its_names(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub.monitoring.status.OLD_TRANSACTION", dt.timedelta(0))
    make_topic()
    subscribe()
    Subscription.objects.update(status="PAUSED")
    session.execute("BEGIN")
    session.execute("SELECT 1")
    data = told("pubsub_status")
    assert STABLE[""] <= data.keys()
    for name in STABLE.keys() - {""}:
        for row in [data[name]] if name == "sequencer" else data[name]:
            assert STABLE[name] <= row.keys()
        assert data[name]


def test_many_groups_with_one_cause_are_one_sentence_and_forty_rows() -> None:
    topic = make_topic()
    for number in range(50):
        SubscriptionFactory(topic=topic, group_id=f"group-{number}", status="PAUSED" if number < 45 else "ACTIVE")
    text = run("pubsub_status")
    assert text.count("NOTE") == 1
    assert "and 44 more like it: group-1 orders" in text
    assert "… and 10 more groups" in text
    assert "group-49" not in text, "what is wrong comes first"
    assert len(told("pubsub_status")["groups"]) == 50


def test_watching_refreshes_until_it_is_interrupted() -> None:
    make_topic()
    with start("pubsub_status", "--watch", "--interval=1", "--format=json") as process:
        assert process.stdout
        tips = []
        for line in process.stdout:
            tips.append({topic["name"]: topic["tip"] for topic in json.loads(line)["topics"]}[TOPIC])
            if len(tips) == 1:
                fill(2)
            elif tips[-1] == 2:
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert tips[0] == 0


# pubsub_tail


@pytest.fixture
def five() -> None:
    make_topic(partitions=1)
    for n in range(5):
        with transaction.atomic():
            publish(TOPIC, {"n": n}, type="odd" if n % 2 else "even", key=n % 3)
    sequence("default")


def tailed(*arguments: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in run("pubsub_tail", TOPIC, "--no-follow", "--format=json", *arguments).splitlines()
    ]


@pytest.mark.usefixtures("five")
@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        ((), []),
        (("--from=earliest",), [1, 2, 3, 4, 5]),
        (("--from=4",), [4, 5]),
        (("--from=6",), []),
        (("--last=2",), [4, 5]),
        (("--last=99",), [1, 2, 3, 4, 5]),
        (("--from=2000-01-01T00:00",), [1, 2, 3, 4, 5]),
        (("--from=earliest", "--type=odd"), [2, 4]),
        (("--from=earliest", "--type=odd", "--key=0"), [4]),
        (("--from=earliest", "--key=0", "--key=2"), [1, 3, 4]),
        (("--from=earliest", "--max-messages=2"), [1, 2]),
    ],
)
def test_a_topic_is_shown_from_an_offset_on(arguments: tuple[str, ...], offsets: list[int]) -> None:
    assert [event["offset"] for event in tailed(*arguments)] == offsets


@pytest.mark.usefixtures("five")
def test_an_event_is_shown_in_full_as_json_and_in_one_line_as_text() -> None:
    event = tailed("--from=5")[0]
    assert (event["topic"], event["partition"], event["type"], event["key"]) == (TOPIC, 0, "even", "1")
    assert (event["payload"], event["metadata"]) == ({"n": 4}, {})
    (line,) = run("pubsub_tail", TOPIC, "--no-follow", "--from=5").splitlines()
    assert line.startswith("5/0  ")
    assert line.endswith('  even  1  {"n": 4}')


@pytest.mark.usefixtures("five")
def test_long_ranges_without_a_match_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr("pubsub.streams.tail.PAGE", 1)
    assert [event["offset"] for event in tailed("--from=earliest", "--key=2")] == [3]


@pytest.mark.usefixtures("five")
def test_events_that_retention_dropped_are_reported() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM log_entry WHERE c_offset <= 2")
    out, err = io.StringIO(), io.StringIO()
    call_command("pubsub_tail", TOPIC, "--from=1", "--no-follow", "--format=json", stdout=out, stderr=err)
    assert len(out.getvalue().splitlines()) == 3
    assert err.getvalue().splitlines() == [
        "Offsets 1 to 2 are gone: retention has dropped them.",
        "3 events. Go on with --from 6.",
    ]


@pytest.fixture(params=[(), ("--no-listen", "--wait-period-ms=20")], ids=["listening", "polling"])
def following(request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[str]"]:
    make_topic(partitions=1)
    fill(1)
    with start("pubsub_tail", TOPIC, "--from=1", "--format=json", *request.param) as process:
        yield process
        process.kill()


def test_following_shows_new_events_and_says_where_to_continue(
    following: "subprocess.Popen[str]", session: Session
) -> None:
    assert following.stdout
    assert json.loads(following.stdout.readline())["offset"] == 1
    topic = Topic.objects.get(name=TOPIC).pk
    session.execute("BEGIN")
    insert(session, "held open", topic=topic)
    for n in range(2, 5):
        fill(1, start=n)
        assert json.loads(following.stdout.readline())["payload"] == n
    session.execute("COMMIT")
    sequence("default")
    assert json.loads(following.stdout.readline())["payload"] == {"n": "held open"}
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=30)
    assert (out, following.returncode) == ("", 0)
    assert err == "5 events. Go on with --from 6.\n"


def test_it_numbers_events_if_no_consumer_runs(following: "subprocess.Popen[str]", session: Session) -> None:
    assert following.stdout
    following.stdout.readline()
    insert(session, "by psql", topic=Topic.objects.get(name=TOPIC).pk)
    assert json.loads(following.stdout.readline())["payload"] == {"n": "by psql"}


def test_a_lost_connection_loses_and_repeats_no_event(following: "subprocess.Popen[str]", session: Session) -> None:
    assert following.stdout
    following.stdout.readline()
    for n in range(2, 5):
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        connection.close()
        fill(1, start=n)
        assert json.loads(following.stdout.readline())["offset"] == n


def test_nothing_is_written_and_no_group_is_made() -> None:
    make_topic(partitions=1)
    fill(1)
    run("pubsub_tail", TOPIC, "--from=earliest", "--no-follow")
    assert not Subscription.objects.exists()


# what is in events


ODD = [f'{{"n": {"9" * 5000}}}', "[" * 5000 + "]" * 5000, f'{{"n": {"1" * 400}.5}}']


def insert_odd(payload: str, key: str = "7") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO outbox_message_t (topic_id, key, payload)"
            " VALUES ((SELECT id FROM outbox_topics WHERE name = %s), %s, %s)",
            [TOPIC, key, payload],
        )


def test_the_tail_goes_on_behind_what_python_cannot_hold() -> None:
    make_topic(partitions=1)
    fill(1)
    for payload in ODD:
        insert_odd(payload)
    fill(1)
    sequence("default")
    shown = tailed("--from=1")
    assert [event["offset"] for event in shown] == [1, 2, 3, 4, 5]
    assert [list(event["payload"]) for event in shown[1:4]] == [["unreadable"]] * 3
    text = run("pubsub_tail", TOPIC, "--no-follow", "--from=1")
    assert text.count('{"unreadable": "Python cannot hold the JSON of this event: ') == 3


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_tail_shows_what_is_redacted_only_to_who_asks(settings: Any, form: str) -> None:
    settings.PUBSUB = {**settings.PUBSUB, "redact_paths": ["card"]}
    make_topic(partitions=1)
    insert_odd('{"card": "4111-1111", "total": 3}')
    sequence("default")
    arguments = ("pubsub_tail", TOPIC, "--no-follow", "--from=1", f"--format={form}")
    assert "[redacted]" in run(*arguments)
    assert "4111" not in run(*arguments)
    assert "4111-1111" in run(*arguments, "--reveal")


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_tail_writes_no_control_character_and_no_line_of_a_publisher_s(form: str) -> None:
    make_topic(partitions=1)
    insert_odd('{"name": "\\u001b[2J\\u009b2J\\u007f"}', key="7\x1b]0;owned\x07\n2/0  forged")
    sequence("default")
    (line,) = run("pubsub_tail", TOPIC, "--no-follow", "--from=1", f"--format={form}").splitlines()
    assert line.isprintable()


def test_the_log_does_not_report_what_a_dry_run_undoes(caplog: pytest.LogCaptureFixture) -> None:
    make_topic(partitions=3)
    with caplog.at_level("INFO", logger="pubsub.db.audit"):
        run("pubsub_topic", "resize", TOPIC, "5", "--dry-run")
        run("pubsub_topic", "resize", TOPIC, "7", "--reason=growth")
    said = [it.getMessage() for it in caplog.records if it.name == "pubsub.db.audit"]
    assert [message for message in said if message.startswith("resize")] == [
        f"resize by {system_user()}: {TOPIC} (growth)"
    ]


@pytest.mark.usefixtures("five")
def test_the_tail_counts_one_event_as_one() -> None:
    err = io.StringIO()
    call_command("pubsub_tail", TOPIC, "--last=1", "--no-follow", stdout=io.StringIO(), stderr=err)
    assert err.getvalue().strip() == "1 event. Go on with --from 6."


def test_a_reason_forges_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    make_topic()
    with caplog.at_level("INFO", logger="pubsub.db.audit"):
        record("pause", actor="olivia", using="default", topic=TOPIC, reason="quiet\n2030 INFO forged\x1b[2J")
    (message,) = [
        it.getMessage() for it in caplog.records if it.name == "pubsub.db.audit" and "quiet" in it.getMessage()
    ]
    assert message == f"pause by olivia: {TOPIC} (quiet\\n2030 INFO forged\\x1b[2J)"
