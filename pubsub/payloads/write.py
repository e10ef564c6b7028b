"""From decoded values to JSON as people read it. Numbers keep their digits, and depth is no limit."""

import json
from decimal import Decimal
from typing import Any

INDENT = "  "

BRACKETS = {True: ("{", "}"), False: ("[", "]")}


def write_json(value: Any) -> str:
    """A decoded value as indented text, for editing and for downloads; all digits, any depth.

    >>> from decimal import Decimal
    >>> print(write_json({"total": Decimal("1.10"), "items": []}))
    {
      "total": 1.10,
      "items": []
    }
    """
    written: list[str] = []
    # What remains to be written, the next item last: texts as they are, and values with their indentation.
    stack: list[str | tuple[Any, str]] = [(value, "")]
    while stack:
        it = stack.pop()
        if isinstance(it, str):
            written.append(it)
            continue
        value, indent = it
        if not isinstance(value, dict | list) or not value:
            written.append(literal(value))
            continue
        opening, closing = BRACKETS[isinstance(value, dict)]
        inner = indent + INDENT
        parts: list[str | tuple[Any, str]] = [opening]
        pairs = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        for index, (key, item) in enumerate(pairs):
            name = "" if key is None else f"{quoted(key)}: "
            parts += [f"{',' if index else ''}\n{inner}{name}", (item, inner)]
        parts.append(f"\n{indent}{closing}")
        stack.extend(reversed(parts))
    return "".join(written)


def quoted(text: str) -> str:
    """A text as JSON."""
    return json.dumps(text, ensure_ascii=False)


def literal(value: Any) -> str:
    """A value that fits on one line, as JSON."""
    match value:
        case dict():
            return "{}"
        case list():
            return "[]"
        case bool() | None:
            return json.dumps(value)
        case Decimal():
            return f"{value:f}"
        case str() if type(value) is str:
            return quoted(value)
    return str(value)  # whole numbers, the long ones too
