"""From jsonb's text to Python, whatever is stored: numbers of any length, nesting of any depth."""

import json
import re
from decimal import Decimal
from typing import Any

LONGEST_INTEGER = 4300
"""Digits of the longest whole number that Python reads; PostgreSQL stores 131,072."""

TOKEN = re.compile(r'\s*(?:(?P<mark>[{}\[\],:])|(?P<text>"(?:[^"\\]|\\.)*")|(?P<rest>[^\s,:\[\]{}"]+))', re.DOTALL)

CONSTANTS = {"true": True, "false": False, "null": None}


class LongNumber(str):
    """A whole number that is too long for Python, as it was written."""

    __slots__ = ()


def decode(text: str) -> Any:
    """The value of a jsonb that PostgreSQL has written as text. Numbers keep their digits.

    >>> decode('{"total": 1.10, "paid": true}')
    {'total': Decimal('1.10'), 'paid': True}
    >>> decode("[" * 5000 + "]" * 5000) is not None
    True
    """
    try:
        return json.loads(text, parse_int=_integer, parse_float=Decimal)
    except RecursionError:
        return _decode_deep(text)


def _integer(text: str) -> int | LongNumber:
    return int(text) if len(text) <= LONGEST_INTEGER else LongNumber(text)


def _decode_deep(text: str) -> Any:
    """The same without recursion, but slower."""
    outside: list[Any] = []
    inside: Any = outside  # what the next value belongs to
    key: str | None = None
    stack: list[tuple[Any, str | None]] = []
    for token in TOKEN.finditer(text):
        value: Any
        match token["mark"]:
            case "," | ":":
                continue
            case "]" | "}":
                inside, key = stack.pop()
                continue
            case "[":
                value = []
            case "{":
                value = {}
            case _:
                value = _scalar(token)
        if isinstance(inside, list):
            inside.append(value)
        elif key is None:
            key = value
            continue
        else:
            inside[key] = value
            key = None
        if token["mark"]:
            stack.append((inside, key))
            inside, key = value, None
    return outside[0]


def _scalar(token: re.Match[str]) -> Any:
    if token["text"]:
        return json.loads(token["text"])
    rest = token["rest"]
    if rest in CONSTANTS:
        return CONSTANTS[rest]
    return _integer(rest) if rest.lstrip("-").isdecimal() else Decimal(rest)


def scalars(value: Any) -> set[Any]:
    """All strings and numbers in a value, and the keys of objects that are data, not names; without recursion.

    >>> sorted(scalars({"a": [1, 2, {"b": 2}], "c": None, "d": True}))
    [1, 2]
    >>> scalars({"zoe@example.org": None})
    {'zoe@example.org'}
    """
    found: set[Any] = set()
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend(value.values())
            found.update(key for key in value if not key.isidentifier())
        elif isinstance(value, list):
            stack.extend(value)
        elif value is not None and not isinstance(value, bool):
            found.add(value)
    return found
