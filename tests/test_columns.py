"""A column of messages reaches everything that reads messages: a test names what was forgotten."""

import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import fields

import pytest
from django.db import connection

from pubsub import publish
from pubsub.db.sql import load
from pubsub.events import COLUMNS, Entry, Event, events_of
from pubsub.models import DeadLetter, DelayedMessage, LogView, OutboxMessage
from pubsub.publishing.checked import COLUMNS as PUBLISHED
from pubsub.publishing.encode import as_json
from pubsub.spark.columns import COLUMNS as SPARKS
from pubsub.subscriptions.filters import FIELDS

GIVEN_BY_THE_DATABASE = {"event_id", "transaction_id", "created_at"}
ELSEWHERE = {"topic_id", "to_group"}
"""Columns that say for whom a message is: no reader gets them."""


def columns(model: type) -> set[str]:
    return {field.column for field in model._meta.concrete_fields}  # type: ignore[attr-defined]


def returned_by(function: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT proargnames FROM pg_proc WHERE proname = %s", [function])
        return set(cursor.fetchone()[0])


def stored_by(function: str) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT substring(prosrc FROM '\\((.*?)\\)') FROM pg_proc WHERE proname = %s", [function])
        return {name.strip() for name in cursor.fetchone()[0].split(",")}


def event_names(names: Iterable[str]) -> set[str]:
    return {"event_id" if name == "id" else name for name in names}


LISTS: dict[str, Callable[[], set[str]]] = {
    "models/message.py: DelayedMessage": lambda: columns(DelayedMessage),
    "models/dead_letter.py": lambda: {
        name.replace("published_at", "created_at") if name == "published_at" else name for name in columns(DeadLetter)
    },
    "models/log.py: LogView": lambda: columns(LogView),
    "the function pubsub_read_v1": lambda: returned_by("pubsub_read_v1"),
    "events.py: Entry": lambda: event_names(Entry._fields),
    "events.py: Event": lambda: event_names(field.name for field in fields(Event)),
    "events.py: Event.as_json": lambda: event_names(an_event().as_json()),
    "publishing/publish.py: publish()": lambda: {*inspect.signature(publish).parameters, *GIVEN_BY_THE_DATABASE},
    "publishing/checked.py": lambda: {*PUBLISHED, *GIVEN_BY_THE_DATABASE},
    "publishing/encode.py: as_json()": lambda: {
        *json.loads(as_json("", (1, *[None] * 5, "{}", "{}"))),
        *GIVEN_BY_THE_DATABASE,
    },
    "the function pubsub_publish_v1": lambda: {*stored_by("pubsub_publish_v1"), *GIVEN_BY_THE_DATABASE},
    "subscriptions/filters.py": lambda: {*FIELDS, "event_id", "transaction_id"},
    "spark/columns.py": lambda: set(SPARKS),
    "spark/sql/log.sql": lambda: {name for name in COLUMNS if f"message.{name}" in load("spark/log")},
}


def an_event() -> Event:
    nothing = "00000000-0000-0000-0000-000000000000"
    entry = Entry(1, 1, True, False, nothing, "", None, "1", "{}", None, None, nothing, 0.0)  # type: ignore[arg-type]
    (event,) = events_of([entry], "default", 0)
    return event


def test_the_list_is_the_tables() -> None:
    """Of a column that the model has, and COLUMNS lacks, no reader would ever hear."""
    assert columns(OutboxMessage) - {"id", "xid"} - ELSEWHERE == set(COLUMNS)


@pytest.mark.django_db
@pytest.mark.parametrize("name", LISTS)
def test_every_list_has_all_columns(name: str) -> None:
    missing = set(COLUMNS) - LISTS[name]()
    assert not missing, f"{name} lacks {', '.join(sorted(missing))}"
