"""What PostgreSQL stores as jsonb can be read, however long or deep."""

import json
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from pubsub.payloads import decode as module
from pubsub.payloads.decode import decode


def stored(text: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb::text", [text])
        return str(cursor.fetchone()[0])


VALUES: list[tuple[str, Any]] = [
    ('{"a": [1, -2.50, true, false, null, {"b": "c"}], "d": {}}', None),
    (r'["quote \" and backslash \\ and ümlaut and 😀", ""]', None),
    ('{"": {"": []}}', None),
    ("[[], {}, [[]]]", None),
    ('"alone"', "alone"),
    ("1.10", Decimal("1.10")),
    ("1e-5", Decimal("0.00001")),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_both_ways_of_decoding_agree(text: str, expected: Any) -> None:
    text = stored(text)
    value = decode(text)
    assert value == module._decode_deep(text)
    assert value == (json.loads(text, parse_float=Decimal) if expected is None else expected)


@pytest.mark.django_db
def test_a_number_that_python_cannot_read_keeps_its_digits() -> None:
    number = "1" * 5000
    assert decode(stored(f'{{"n": {number}}}')) == {"n": number}
    assert isinstance(decode(number), module.LongNumber)
    assert decode(f"-{number}") == f"-{number}"


@pytest.mark.django_db
def test_depth_is_no_limit() -> None:
    depth = 3000
    value = decode(stored("[" * depth + "7" + "]" * depth))
    assert module.scalars(value) == {7}
    for _ in range(depth):
        (value,) = value
    assert value == 7
