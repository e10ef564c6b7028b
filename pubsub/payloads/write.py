"""From decoded values to JSON as people read it. Numbers keep their digits, and depth is no limit."""

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from .decode import LongNumber

INDENT = "  "

WIDEST = 64 * INDENT
"""The indentation of this and every deeper level: else a text of some kB, nested deep enough, becomes many MB."""

BRACKETS = {True: ("{", "}"), False: ("[", "]")}

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that move a cursor, begin a line, colour, retitle or turn a text round instead of being shown; and halves
of characters, which nothing can write."""


def write_json(value: Any) -> str:
    """A decoded value as indented text, for editing and for downloads; all digits, any depth.

    >>> from decimal import Decimal
    >>> print(write_json({"total": Decimal("1.10"), "items": []}))
    {
      "total": 1.10,
      "items": []
    }
    """
    return "".join(_pieces(value, indented=True))


def write_line(value: Any, at_most: int | None = None) -> str:
    """The same on one line, as PostgreSQL writes it; of a long one the beginning, and "…".

    >>> write_line({"a": [1, None]}), write_line([1, 2, 3], at_most=5)
    ('{"a": [1, null]}', '[1, …')
    """
    if at_most is None:
        return "".join(_pieces(value, indented=False))
    written: list[str] = []
    length = 0
    for piece in _pieces(value, indented=False):
        written.append(piece)
        length += len(piece)
        if length > at_most:
            return "".join(written)[: max(0, at_most - 1)] + "…"
    return "".join(written)


def _pieces(value: Any, *, indented: bool) -> Iterator[str]:
    # What remains to be written, the next item last: texts as they are, and values with their indentation.
    stack: list[str | tuple[Any, str]] = [(value, "")]
    while stack:
        it = stack.pop()
        if isinstance(it, str):
            yield it
            continue
        value, indent = it
        if not isinstance(value, dict | list | tuple) or not value:
            yield literal(value)
            continue
        opening, closing = BRACKETS[isinstance(value, dict)]
        inner = indent + INDENT if len(indent) < len(WIDEST) else indent
        before, between, after = ("", ", ", "") if not indented else (f"\n{inner}", f",\n{inner}", f"\n{indent}")
        parts: list[str | tuple[Any, str]] = [opening]
        pairs = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        for index, (key, item) in enumerate(pairs):
            name = "" if key is None else f"{quoted(str(key))}: "
            parts += [f"{between if index else before}{name}", (item, inner)]
        parts.append(f"{after}{closing}")
        stack.extend(reversed(parts))


def quoted(text: str) -> str:
    r"""A text as JSON, without a character that a terminal obeys.

    >>> print(quoted("größer\x9b2J"))
    "größer\u009b2J"
    """
    return escaped(json.dumps(text, ensure_ascii=False))


def escaped(text: str) -> str:
    """JSON in which no control character is left as it is. They can only stand in its strings."""
    if text.isascii() and "\x7f" not in text:  # nearly always: JSON itself escapes the other ones
        return text
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}" if found[0] != "\n" else "\n", text)


def literal(value: Any) -> str:
    """A value that fits on one line, as JSON. What JSON cannot express, such as an infinite float, is a text."""
    match value:
        case dict():
            return "{}"
        case list() | tuple():
            return "[]"
        case bool() | None:
            return json.dumps(value)
        case LongNumber():
            return str.__str__(value)
        case Decimal() if value.is_finite():
            return f"{value:f}"
        case int():
            return int.__repr__(value)
        case float() if math.isfinite(value):
            return float.__repr__(value)
    return quoted(str(value))
