"""Any row that plain SQL can put into the outbox is numbered, and handled or set aside; all who look at the log cope
with it, and other events go on."""

import io
import uuid
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.urls import reverse
from hypothesis import strategies as st

import pubsub
from pubsub import Event, publish
from pubsub.db.sql import load
from pubsub.errors import UnreadableEvent
from pubsub.models import DeadLetter, LogView, OutboxMessage, Topic
from pubsub.monitoring.metrics import DatabaseMetrics
from pubsub.monitoring.status import status
from tests.consuming.helpers import lag, number
from tests.handlers import declare, drain
from tests.hostile import attack

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]

MARK = "mark"

# The driver sends neither NUL nor half a surrogate pair.
texts = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=20),
    st.sampled_from(["", " ", "readers", "\x1b[2J", "\n8 paid", "<script>", "%s", "\u202e", "𒀀" * 500, "x" * 2000]),
    st.none(),
)
short = st.sampled_from(["1", '"x"', "null", "{}", '"\\u0001\\u001b[2J"', "-0", "0.10", "1e3"])
json_texts = st.one_of(
    short,
    st.sampled_from(
        [
            "1e400",
            "-1e-400",
            "1" * 400,
            "9" * 4300,
            "9" * 4301,
            "1e131071",
            "0." + "1" * 16000,
            '"' + "x" * 300_000 + '"',
        ]
    ),
    st.builds(
        lambda levels, opening, inner, closing: opening * levels + inner + closing * levels,
        st.sampled_from([2, 300, 900, 1100, 6000]),
        st.just("["),
        short,
        st.just("]"),
    ),
    st.builds(lambda levels, inner: '{"a":' * levels + inner + "}" * levels, st.sampled_from([900, 5000]), short),
    st.builds(lambda inner: f'{{"a": {inner}, "a": [{inner}], "": 1, "\\ud83d\\ude00": "\\u2028"}}', short),
    st.sampled_from(['"\\u0000"', '"\\ud800"', "NaN", "", "{"]),  # PostgreSQL takes none of these
)
moments = st.sampled_from(
    ["now", "0001-01-02 00:00+00", "9999-12-30 23:59:59.999999+00", "infinity", "0044-03-15 00:00+00 BC", "2024-02-30"]
)
columns = {
    "type": texts,
    "key": texts,
    "host_id": texts,
    "user_id": texts,
    "to_group": texts,
    "metadata": json_texts,
    "created_at": moments,
    "topic_id": st.sampled_from(["1", "-1", "0", "999", "2147483647"]),
    "transaction_id": st.sampled_from([str(uuid.UUID(int=0)), str(uuid.UUID(int=2**128 - 1)), "x"]),
    "event_id": st.sampled_from([str(uuid.UUID(int=0)), str(uuid.UUID(int=7))]),
    "id": st.sampled_from(["1", "-1", "0", str(10**15), str(2**63 - 1)]),
    "xid": st.sampled_from(["1", "3", str(2**63)]),
}
rows = st.one_of(
    # PostgreSQL refuses many of those with several odd columns.
    *(st.fixed_dictionaries({"payload": json_texts, name: strategy}) for name, strategy in columns.items()),
    st.fixed_dictionaries({"payload": json_texts}, optional=columns),
)

CASTS = {
    "payload": "jsonb",
    "metadata": "jsonb",
    "created_at": "timestamptz",
    "topic_id": "int",
    "id": "bigint",
    "xid": "xid8",
    "transaction_id": "uuid",
    "event_id": "uuid",
}


def store(row: dict[str, str | None]) -> bool:
    """As another program would. False if PostgreSQL refuses it."""
    values = ", ".join(f"%({name})s::{CASTS.get(name, 'text')}" for name in row)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO outbox_message_t ({', '.join(row)}) VALUES ({values})", row)
    except DatabaseError:
        return False
    return True


def mark(n: int) -> None:
    with transaction.atomic():
        publish("default", {MARK: n}, key=n)


def fill() -> list[int]:
    """Returns the numbers of the events between the rows."""
    marks: list[int] = []
    stored = 0

    @attack(200, 15, row=rows)
    def run(row: dict[str, str | None]) -> None:
        nonlocal stored
        stored += store(row)
        marks.append(len(marks))
        mark(marks[-1])

    run()
    number()
    assert stored > 50
    assert LogView.objects.filter(topic="default").count() == OutboxMessage.objects.filter(topic_id=1).count()
    return marks


def marks_among(events: list[Event]) -> list[int]:
    """Each once: what is undone with its batch is handled once more."""
    return sorted(
        {event.payload[MARK] for event in events if isinstance(event.payload, dict) and MARK in event.payload}
    )


@pytest.mark.timeout(240)
def test_any_row_is_handled_or_set_aside_and_all_who_look_cope() -> None:
    marks = fill()
    for looks_at_the_log in (consumers, streams, commands, pages, figures, sparks_reader):
        looks_at_the_log(marks)


def consumers(marks: list[int]) -> None:
    for delivery in ("transactional", "at_least_once", "at_most_once"):
        handled: list[Event] = []

        def handler(event: Event, handled: list[Event] = handled) -> None:
            handled.append(event)

        drain(declare(handler, group=delivery, delivery=delivery), wait_period_ms=1)
        assert lag() == 0
        assert marks_among(handled) == marks
        unreadable = set(DeadLetter.objects.values_list("exception_class", flat=True))
        assert unreadable <= {"pubsub.errors.UnreadableEvent"}


def streams(marks: list[int]) -> None:
    seen: list[Event] = []
    with pubsub.listen("default", start="earliest") as events:
        while not seen or seen[-1].payload != {MARK: marks[-1]}:
            with suppress(UnreadableEvent):
                seen.append(next(events))
    assert marks_among(seen) == marks


def run_command(*arguments: Any) -> str:
    out = io.StringIO()
    call_command(*map(str, arguments), stdout=out, stderr=out)
    return out.getvalue()


def commands(marks: list[int]) -> None:
    for shape in ("text", "json"):
        shown = run_command("pubsub_tail", "default", "--no-follow", "--from", "earliest", "--format", shape)
        assert "\x1b" not in shown
        assert shown.count(MARK) >= len(marks)
        run_command("pubsub_dead_letters", "list", "--limit", 1000, "--format", shape)
        run_command("pubsub_status", "--format", shape)
    for letter in DeadLetter.objects.values_list("pk", flat=True):
        assert "\x1b" not in run_command("pubsub_dead_letters", "show", letter)
        run_command("pubsub_dead_letters", "show", letter, "--format", "json")


def pages(marks: list[int]) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))

    def look(name: str, *arguments: Any, **given: Any) -> Any:
        response = client.get(reverse(f"admin:pubsub_{name}", args=arguments), given)
        assert response.status_code == 200, (name, arguments, given)
        assert b"<script>alert" not in response.content
        return response

    topic = Topic.objects.get(name="default").pk
    for offset in LogView.objects.filter(topic="default").values_list("c_offset", flat=True):
        look("outboxmessage_event", topic, offset)
        look("outboxmessage_payload", topic, offset)
        if offset % 40 == 0:
            look("outboxmessage_changelist", topic=topic, before=offset)
            look("outboxmessage_tail_events", topic=topic, after=offset)
    for letter in DeadLetter.objects.values_list("pk", flat=True):
        look("deadletter_change", letter)
        look("deadletter_edit", letter)
        for document in ("payload", "metadata"):
            look("deadletter_json", letter, document)
    for page in ("overview", "deadletter", "subscription", "topic", "operatorevent", "outboxmessage"):
        look(f"{page}_changelist")


def figures(marks: list[int]) -> None:
    assert status("default").topics
    up = {family.name: family for family in DatabaseMetrics("default").collect()}["pubsub_database_up"]
    assert up.samples[0].value == 1


def sparks_reader(marks: list[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(load("spark/log"))
        columns = [column.name for column in cursor.description]
        payloads = [row[columns.index("payload")] for row in cursor.fetchall()]
    assert sum(MARK in payload for payload in payloads) == len(marks)
