"""Sentry, set up as the documents say: an issue for each cause, and an event for each attempt."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.consuming.helpers import publish_each
from tests.processes import CHECKOUT
from tests.sessions import database_url

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]

SECRET = "4929-1234-5678"


def test_three_handlers_that_fail_for_two_reasons_are_six_issues() -> None:
    publish_each(*({"card": SECRET, "declined": declined} for declined in (True, False, True)), type="order.placed")
    done = subprocess.run(
        [sys.executable, "-m", "tests.monitoring.sentry"],
        cwd=CHECKOUT,
        env=os.environ | {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert SECRET not in done.stdout, "neither in messages nor in local variables nor in breadcrumbs"
    events = [json.loads(line) for line in done.stdout.splitlines()]
    declined, invalid = "__main__.CardDeclined", "builtins.ValueError"
    assert Counter(tuple(event["fingerprint"]) for event in events) == {
        ("__main__.charge", declined): 2,
        ("__main__.charge", invalid): 1,
        ("__main__.reserve", declined): 2,
        ("__main__.reserve", invalid): 1,
        ("__main__.send_mail", declined): 4,
        ("__main__.send_mail", invalid): 2,
    }
    for event in events:
        handler = event["tags"]["group"]
        assert event["tags"] == {"group": handler, "topic": "work", "event_type": "order.placed"}
        exception = event["exception"]["values"][-1]
        assert exception["type"] in ("CardDeclined", "ValueError")
        frames = exception["stacktrace"]["frames"]
        assert [frame["function"] for frame in frames if frame["in_app"]][-2:] == [handler, "fail"]
        assert event["extra"]["dead_letter"]
    assert Counter(event["level"] for event in events) == {"error": 9, "warning": 3}
