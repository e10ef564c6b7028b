"""JSON is written as Django's encoder writes it, to the character, or refused where that refuses."""

import datetime as dt
import decimal
import json
import uuid
from typing import Any

import pytest
from django.core.serializers.json import DjangoJSONEncoder
from django.utils.translation import gettext_lazy
from hypothesis import example, given
from hypothesis import strategies as st

from pubsub.errors import InvalidEvent
from pubsub.publishing import encode
from pubsub.publishing.encode import to_json

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.decimals()
    | st.uuids()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.timedeltas()
    | st.binary(max_size=2)
)
KEYS = st.text(max_size=4) | st.integers() | st.floats() | st.booleans() | st.none() | st.dates()
VALUES = st.recursive(
    LEAVES, lambda each: st.lists(each, max_size=4) | st.tuples(each) | st.dictionaries(KEYS, each, max_size=4)
)


def by_django(value: Any) -> str | None:
    try:
        return json.dumps(value, cls=DjangoJSONEncoder, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError):
        return None


@given(value=VALUES)
@example(value={"a": [1.5, 1e16, 1e-7, -0.0, 10**30], "ü": gettext_lazy("yes")})
@example(value=[decimal.Decimal("1.10"), uuid.UUID(int=1), dt.timedelta(days=1), dt.date(2026, 1, 1)])
def test_the_text_is_djangos_or_the_value_is_refused(value: Any) -> None:
    expected = by_django(value)
    try:
        text = to_json("payload", value)
    except InvalidEvent:
        has_odd_text = expected is not None and ("\\u0000" in expected or not _is_utf8(expected))
        assert expected is None or has_odd_text
    else:
        assert text == expected


def test_without_the_quick_encoder_the_text_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"a": [1.5, None, True, dt.date(2026, 1, 1)]}
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    assert encode._make_encode()(value) == to_json("payload", value) == by_django(value)


def test_what_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append({"again": endless})
    with pytest.raises(InvalidEvent, match="contains itself"):
        to_json("payload", endless)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
