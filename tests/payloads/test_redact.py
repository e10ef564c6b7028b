"""What is sensitive is taken out of what people see, wherever an event is shown."""

import json
from typing import Any

import pytest

from pubsub.checks import check_settings
from pubsub.payloads.redact import MOST_SEARCHED, REDACTED, Redactor

ORDER = {
    "id": 7,
    "customer": {"name": "Zoë", "email": "zoe@example.org", "password": "s3cret!"},
    "items": [{"card": "4111-1111", "n": 1}, {"card": "4222-2222", "n": 2}],
}


def redactor(settings: Any, *paths: str, hook: str = "") -> Redactor:
    settings.PUBSUB = {"redact_paths": list(paths), "redact": hook}
    return Redactor()


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("id", ["7"]),
        ("customer.email", ["zoe@example.org"]),
        ("customer", ["Zoë", "zoe@example.org", "s3cret!"]),
        ("items.*.card", ["4111-1111", "4222-2222"]),
        ("items.1.card", ["4222-2222"]),
        ("**.card", ["4111-1111", "4222-2222"]),
        ("**.password", ["s3cret!"]),
        ("**.customer.password", ["s3cret!"]),
        ("*.email", ["zoe@example.org"]),
        ("**", ["7", "Zoë", "zoe@example.org", "s3cret!", "4111-1111", "4222-2222"]),
        ("nothing.here", []),
        ("id.deeper", []),
    ],
)
def test_paths(settings: Any, path: str, gone: list[str]) -> None:
    it = redactor(settings, path)
    shown = json.dumps(it.json("payload", json.dumps(ORDER)), ensure_ascii=False)
    everything = ["7", "Zoë", "zoe@example.org", "s3cret!", "4111-1111", "4222-2222"]
    assert [value for value in everything if value not in shown] == gone
    assert (REDACTED in shown) == bool(gone)


@pytest.mark.parametrize(
    ("hidden", "path", "hides"),
    [
        ("customer.email", "customer.email", True),
        ("customer.email", "customer.email.domain", True),
        ("customer.email", "customer", False),
        ("customer.email", "customer.name", False),
        ("**.password", "total", False),
        ("**.password", "a.0.password", True),
        ("**", "total", True),
        ("items.*.card", "items.-1.card", True),
        ("items.0.card", "items.-2.card", True),
        ("items.0.card", "items.00.card", True),
        ("items.0.card", "items.a.card", False),
    ],
)
def test_which_paths_lead_to_what_is_hidden(settings: Any, hidden: str, path: str, hides: bool) -> None:
    assert redactor(settings, hidden).hides(path.split(".")) == hides
    assert not Redactor(raw=True).hides(path.split("."))


def test_a_function_may_hide_whatever_stands_at_a_path(settings: Any) -> None:
    assert redactor(settings, hook=f"{__name__}.hook").hides(["total"])


def test_texts_that_quote_hidden_values(settings: Any) -> None:
    secrets = {"secret": "Zoë's key", "quoted": 'a"b\\c\n'}
    it = redactor(settings, "secret", "pin", "quoted")
    it.json("payload", json.dumps({**secrets, "pin": 123, "open": "visible"}))
    shown = it.text(f"{secrets} {json.dumps(secrets)} {secrets['quoted']} pin 123, line 1234, visible")
    assert "key" not in shown
    assert "b\\" not in shown
    assert shown.endswith("pin [redacted], line 1234, visible")


def test_numbers_are_found_however_they_are_written_and_keys_that_are_data(settings: Any) -> None:
    it = redactor(settings, "sums", "customers")
    it.json(
        "payload", '{"sums": [1234.50, 10000000000000000000000, 0.0000001, 70], "customers": {"zoe@example.org": {}}}'
    )
    shown = it.text("1234.50 1234.5 1e+22 10000000000000000000000 1e-07 0.0000001 70.0 70 KeyError: 'zoe@example.org'")
    assert shown == " ".join([REDACTED] * 8) + f" KeyError: '{REDACTED}'"


def test_texts_that_quote_a_long_value_in_part(settings: Any) -> None:
    it = redactor(settings, "letter")
    letter = "Dear Zoë, this is the first line\nand my card is 4111-1111-1111-1111"
    it.json("payload", json.dumps({"letter": letter}))
    texts = [
        f"cannot send '{letter[:25]}…'",
        f"cannot send '…{letter[-20:]}' at all",
        f"input_value={letter[:20]!r}...{letter[-19:]!r}, type=str",
        "  | " + letter.replace("\n", "\n  | ") + " refused",
    ]
    for text in texts:
        shown = it.text(text)
        assert not any(part in shown for part in ("Zoë", "first", "4111", "card")), shown
    assert it.text(texts[0]) == f"cannot send '{REDACTED}…'"
    assert it.text(texts[1]) == f"cannot send '…{REDACTED}' at all"


def test_a_text_that_cannot_be_searched_is_not_shown(settings: Any) -> None:
    it = redactor(settings, "**")
    it.json("payload", json.dumps(list(range(MOST_SEARCHED + 1))))
    assert it.text("harmless") == REDACTED


def test_users_who_may_not_see_payloads_see_nothing_of_them(settings: Any) -> None:
    settings.PUBSUB = {}
    it = Redactor(everything=True)
    assert it.json("payload", '{"a": "hidden away"}') == REDACTED
    assert it.text("cannot handle hidden away") == REDACTED


def hook(field: str, value: Any) -> Any:
    if field == "exception":
        return value.replace("10.0.0.1", "a host")
    return {**value, "card": "…" + value["card"][-4:]}


def failing_hook(field: str, value: Any) -> Any:
    raise KeyError(f"{field} {value}")


def test_a_function_hides_what_paths_cannot_express(settings: Any) -> None:
    it = redactor(settings, "email", hook=f"{__name__}.hook")
    shown = it.json("payload", '{"card": "4111-1111", "email": "zoe@example.org"}')
    assert shown == {"card": "…1111", "email": REDACTED}
    assert it.text("10.0.0.1 refused 4111-1111 of zoe@example.org") == "a host refused [redacted] of [redacted]"


def test_a_value_on_which_the_function_fails_is_hidden(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    it = redactor(settings, hook=f"{__name__}.failing_hook")
    assert it.json("payload", '{"card": "4111-1111"}') == REDACTED
    assert it.text("4111-1111") == REDACTED
    assert "PUBSUB['redact'] failed on a payload (KeyError)" in caplog.text
    assert "in failing_hook" in caplog.text
    assert "4111-1111" not in caplog.text


@pytest.mark.parametrize(
    ("given", "error"),
    [({"redact_paths": "email"}, "E002"), ({"redact_paths": ["a..b"]}, "E002"), ({"redact": "no.such"}, "E004")],
)
def test_settings_that_cannot_work_are_reported(settings: Any, given: dict[str, Any], error: str) -> None:
    settings.PUBSUB = given
    assert [found.id for found in check_settings()] == [f"pubsub.{error}"]
