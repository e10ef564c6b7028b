"""The cleanup as a command: once, as a dry run, and as a loop that ends on a signal."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from pubsub.models import Subscription
from pubsub.retention.drop import drop_expired
from pubsub.subscriptions.register import register_subscription
from pubsub.worker import maintenance
from tests.factories import OperatorEventFactory
from tests.handlers import Recorder, declare
from tests.processes import CHECKOUT
from tests.retention.helpers import ROWS, make_old, publish_events, small_partitions, state, topic
from tests.sessions import database_url

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def log() -> Iterator[None]:
    with override_settings(PUBSUB={"segment_rows": ROWS}), small_partitions():
        topic("orders")
        register_subscription(declare(Recorder(), topic="orders"), using="default")
        publish_events("orders", 25)
        drop_expired("default")
        make_old(days=8)
        yield


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("run_cleanup", *arguments, stdout=out)
    return out.getvalue()


def test_a_dry_run_says_what_is_kept_and_why_and_changes_nothing() -> None:
    before = state()
    text = run("--dry-run")
    assert "log_entry_1 stays (10 entries): readers on orders/" in text
    assert "has not read offset 1 (active)" in text
    as_json = json.loads(run("--dry-run", "--format", "json"))
    assert as_json["storage"]["goes"] == []
    assert [each["partition"] for each in as_json["storage"]["stays"]] == ["log_entry_1", "log_entry_11"]
    assert state() == before


def test_a_dry_run_and_the_real_run_say_the_same() -> None:
    Subscription.objects.update(status="DEAD")
    assert "would miss its unread events" in run("--dry-run")
    planned = json.loads(run("--dry-run", "--format", "json"))["storage"]
    done = json.loads(run("--once", "--format", "json"))["storage"]
    assert done["dropped"] == planned["goes"] != []
    assert done["entries"] == planned["entries"] == 2 * ROWS
    (missed,) = done["missed"]["readers on orders"].values()
    assert missed == [1, 20]
    assert run("--once") == "nothing to do\n"


def test_a_failing_job_is_reported_and_the_others_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    Subscription.objects.update(status="DEAD")

    def fails(using: str) -> None:
        raise PermissionError("permission denied")

    monkeypatch.setattr(fails, "__name__", "forget_members")
    jobs = [fails if job.__name__ == "forget_members" else job for job in maintenance.JOBS]
    monkeypatch.setattr(maintenance, "JOBS", jobs)
    out = io.StringIO()
    with pytest.raises(CommandError, match="Some of the maintenance failed"):
        call_command("run_cleanup", "--once", stdout=out)
    assert "FAILED forget_members: PermissionError: permission denied" in out.getvalue()
    assert "dropped log_entry_1" in out.getvalue()


def test_an_unknown_database_is_reported_with_the_known_ones() -> None:
    with pytest.raises(CommandError, match='There is no database "nowhere"; there are: default, other'):
        run("--once", "--database", "nowhere")


@pytest.mark.parametrize("interval", ["0", "soon"])
def test_a_bad_interval_is_refused(interval: str) -> None:
    with pytest.raises(CommandError, match="at least 1"):
        run("--interval", interval)


def test_the_loop_ends_on_a_signal() -> None:
    OperatorEventFactory()
    environment = os.environ | {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"}
    with subprocess.Popen(
        [sys.executable, "manage.py", "run_cleanup", "--interval", "1", "--format", "json"],
        cwd=CHECKOUT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        for _ in range(2):
            assert json.loads(process.stdout.readline())["failed"] == {}
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
