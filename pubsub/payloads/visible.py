"""The way out: what is shown of an event to people, and sent to programs outside.

What ``PUBSUB`` redacts is taken out, unless the caller asks for it ``raw``. No control character of a publisher reaches
a terminal or a log. What Python cannot hold has something in its place, and nothing fails.
"""

from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from pubsub.errors import UnreadableEvent
from pubsub.events import Entry, Event, native

from .redact import Redactor
from .write import CONTROL, escaped, write_line

_encode = DjangoJSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


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
    """What :meth:`Event.as_json` says, as far as it may be shown. Numbers may be decimals, which `write_line` takes."""
    return _facts(event, Redactor(raw=raw))


def visible_json(event: Event, *, raw: bool = False, **more: Any) -> str:
    """The same as JSON on one line, with `more` facts, for streams, webhooks and terminals."""
    redactor = Redactor(raw=raw)
    facts = _facts(event, redactor) | more
    if redactor.shows_all:
        try:
            return escaped(_encode(facts))
        except RecursionError:
            pass  # the stack was less deep where it was decoded
    return write_line(facts)


def _facts(event: Event, redactor: Redactor) -> dict[str, Any]:
    facts = event.as_json()
    if not redactor.shows_all:
        for field in ("payload", "metadata"):
            facts[field] = redactor.json(field, write_line(facts[field]))
    return facts
