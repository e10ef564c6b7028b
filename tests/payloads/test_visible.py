"""What leaves the system for people's eyes and programs outside: redacted, harmless, and never an error."""

import json
import uuid
from decimal import Decimal
from typing import Any

import pytest

from pubsub.errors import UnreadableEvent
from pubsub.events import Entry, Event
from pubsub.payloads.decode import decode
from pubsub.payloads.redact import REDACTED, Redactor
from pubsub.payloads.visible import readable, visible, visible_json
from pubsub.payloads.write import write_json, write_line

HOSTILE = "7\x1b]0;owned\x07\x9b2J\n8 paid\u202e\x7f"

UNREADABLE = {
    "a number of 5,000 digits": f'{{"n": {"9" * 5000}}}',
    "20,000 levels": "[" * 20_000 + "]" * 20_000,
    "a number beyond a float's range": f'{{"n": {"1" * 400}.5}}',
}

odd = pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)


def entry(payload: str, metadata: str = "{}", *, key: str = "7") -> Entry:
    some = uuid.UUID(int=1)
    return Entry(1, 1, True, False, some, "paid", key, payload, metadata, None, None, some, 0.0)


def event(payload: Any, **options: Any) -> Event:
    return entry(json.dumps(payload), **options).as_event("orders", 0)


@odd
def test_what_python_cannot_hold_is_an_error_of_its_own(text: str) -> None:
    with pytest.raises(UnreadableEvent, match="Python cannot hold the JSON of this event: "):
        entry(text).as_event("orders", 0)


@odd
@pytest.mark.parametrize("field", ["payload", "metadata"])
def test_readers_get_an_explanation_instead_of_it(text: str, field: str) -> None:
    it = readable(entry('{"id": 1}')._replace(**{field: text}), "orders", 0)
    shown = json.loads(visible_json(it))
    assert list(shown.pop(field)) == ["unreadable"]
    assert (shown["key"], shown.get("payload", {"id": 1})) == ("7", {"id": 1})


@odd
def test_pages_show_it_with_all_its_digits_and_levels(text: str) -> None:
    assert write_line(decode(text)) == text
    assert write_line(decode(text), at_most=160) == text[:159] + "…"


def test_what_is_deeper_than_the_stack_is_written_all_the_same() -> None:
    deep: Any = 7
    for _ in range(3000):
        deep = [deep]
    assert json.loads(json.dumps({"a": 1}))  # the usual encoder works, and would fail on this
    written = visible_json(Event(**{**vars(event(1)), "payload": deep}))
    assert "[" * 3000 + "7" + "]" * 3000 in written


@pytest.mark.parametrize("raw", [False, True])
def test_what_is_redacted_leaves_the_system_only_where_it_is_asked_for_raw(settings: Any, raw: bool) -> None:
    settings.PUBSUB = {"redact_paths": ["card", "trace"]}
    given = event({"card": "4111", "total": 1.5}, metadata='{"trace": "secret"}')
    shown = json.loads(visible_json(given, raw=raw, to_group="mail"))
    assert shown["payload"] == {"card": "4111" if raw else REDACTED, "total": 1.5}
    assert shown["metadata"] == {"trace": "secret" if raw else REDACTED}
    assert shown["to_group"] == "mail"
    assert given.payload["card"] == "4111"  # listeners share it


def test_no_control_character_is_left() -> None:
    assert visible(HOSTILE) == r"7\x1b]0;owned\x07\x9b2J\n8 paid\u202e\x7f"
    assert visible("größe 😀 \\ é") == "größe 😀 \\ é"
    assert visible("Traceback:\n\tline\x1b[2J", lines=True) == "Traceback:\n\tline\\x1b[2J"


@pytest.mark.parametrize("write", [write_json, write_line, lambda value: visible_json(event(value))])
def test_json_without_one_says_the_same(write: Any) -> None:
    written = write({HOSTILE: [HOSTILE]})
    assert written.replace("\n", "").isprintable()
    read = json.loads(written)
    assert read.get("payload", read) == {HOSTILE: [HOSTILE]}


def test_indentation_has_an_end() -> None:
    assert len(write_json(decode("[" * 3000 + "]" * 3000))) < 1_000_000


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), Decimal("NaN"), uuid.UUID(int=1), {7}])
def test_what_json_cannot_say_is_a_text(value: Any) -> None:
    assert json.loads(write_json([value])) == [str(value)]


TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/subscribers.py", line 7, in charge
    raise ValueError(f"{event.payload} was refused")
ValueError: {'zoe@example.org': 1234.50} was refused
and zoe@example.org got a mail

During handling of the above exception, another exception occurred:

  + Exception Group Traceback (most recent call last):
  |   File "/srv/shop/subscribers.py", line 9, in charge
  |     raise ExceptionGroup("zoe@example.org", [error])
"""


def test_people_who_may_not_see_payloads_see_where_it_was_raised_and_no_message(settings: Any) -> None:
    settings.PUBSUB = {}
    it = Redactor(everything=True)
    it.json("payload", '{"zoe@example.org": 1234.50}')
    assert it.text("'zoe@example.org'") == REDACTED
    assert it.text(TRACEBACK).splitlines() == [
        '  File "/srv/shop/subscribers.py", line 7, in charge',
        '  |   File "/srv/shop/subscribers.py", line 9, in charge',
    ]
