"""The way out: what is shown of an event to people, and sent to programs outside.

What ``PUBSUB`` redacts is taken out, unless the caller asks for it ``raw``. No control character of a publisher reaches
a terminal or a log. What Python cannot hold is replaced by an explanation, and nothing fails.
"""

import json
from collections.abc import Mapping
from typing import Any

from pubsub.errors import UnreadableEvent
from pubsub.events import Entry, Event, native

from .redact import Redactor
from .write import CONTROL, escaped, write_line

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def visible(text: str, *, lines: bool = False) -> str:
    r"""A text as a terminal or a log may show it, with its control characters spelled out; `lines` may stay lines.

    >>> visible("7\x1b[2J\n8 paid")
    '7\\x1b[2J\\n8 paid'
    """
    if text.isprintable():
        return text
    return CONTROL.sub(lambda found: found[0] if lines and found[0] in "\n\t" else repr(found[0])[1:-1], text)


def readable(entry: Entry, topic: str, partition: int) -> Event:
    """The event for a reader without dead letters: in place of what Python cannot hold, ``{"unreadable": why}``."""
    try:
        return entry.as_event(topic, partition)
    except UnreadableEvent:
        entry = entry._replace(payload=_or_why(entry.payload), metadata=_or_why(entry.metadata))
        return entry.as_event(topic, partition)


def _or_why(text: str) -> str:
    try:
        native(text)
    except UnreadableEvent as error:
        return write_line({"unreadable": str(error)})
    return text


def visible_facts(event: Event, *, raw: bool = False) -> dict[str, Any]:
    """What :meth:`Event.as_json` says, as far as it may be shown. Numbers may be decimals: `json_line` writes them."""
    facts = event.as_json()
    redactor = Redactor(raw=raw)
    if not redactor.shows_all:
        for field in ("payload", "metadata"):
            facts[field] = redactor.json(field, write_line(facts[field]))
    return facts


def visible_json(event: Event, *, raw: bool = False, **more: Any) -> str:
    """The same as JSON on one line, with `more` facts."""
    return json_line(visible_facts(event, raw=raw) | more)


def json_line(facts: Mapping[str, Any]) -> str:
    """Facts as JSON on one line, for a terminal or for the wire.

    >>> json_line({"type": "paid"})
    '{"type":"paid"}'
    """
    try:
        return escaped(_encode(facts))
    except (TypeError, ValueError, RecursionError):
        # Decimals; what JSON cannot say; and the stack may be less deep here than where it was decoded.
        return write_line(facts)
