"""How many locks a session takes for each segment: docs/retention.md says it, and by it operators size the server."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import transaction

from pubsub import publish
from pubsub.monitoring.status import status
from pubsub.sequencing.sequencer import sequence
from tests.handlers import declare, drain

from .helpers import ROWS, names, publish_events, sql

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("small", "work")]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "retention.md"


def held() -> int:
    """Locks on tables and indexes, by the transaction that asks."""
    [(count,)] = sql("SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND pid = pg_backend_pid()")
    return int(count)


def publishing() -> int:
    with transaction.atomic():
        publish("work", 1)
        return held()


def a_pass() -> int:
    publishing()
    with transaction.atomic():
        held()  # now it is open, and the pass is a part of it
        sequence("default")
        return held()


def a_batch() -> int:
    publishing()
    counted: list[int] = []
    drain(declare(lambda event: counted.append(held()), topic="work", group=f"readers-{segments()}", start="earliest"))
    return counted[-1]


def looking() -> int:
    with transaction.atomic():
        status("default")
        return held()


SESSIONS: dict[str, Callable[[], int]] = {
    "publishing": publishing,
    "a pass of the sequencer": a_pass,
    "a batch of a consumer": a_batch,
    "`pubsub_status`": looking,
}


def segments() -> int:
    return len(names("log_entry")) + len(names("outbox_message_t"))


@pytest.mark.parametrize("session", SESSIONS)
def test_a_session_takes_no_more_locks_than_the_page_says(session: str) -> None:
    (formula,) = re.findall(r"\*\*(\d+) × segments \+ (\d+)\*\*", PAGE.read_text())
    of_segment, besides = map(int, formula)
    publish_events("work", 2 * ROWS)
    few, fewer = SESSIONS[session](), segments()
    publish_events("work", 10 * ROWS)
    many, more = SESSIONS[session](), segments()
    assert few <= of_segment * fewer + besides
    assert many <= of_segment * more + besides
    if session == "`pubsub_status`":  # the one that reads them all
        assert many - few == of_segment * (more - fewer)
    if session == "publishing":
        assert many == few
