"""What a client of a stream asks for: where to begin, and which events. It may ask for little at a time."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from django.http import HttpRequest

from pubsub.errors import CannotResume, InvalidSubscription
from pubsub.payloads.redact import Redactor
from pubsub.subscriptions.filter_paths import paths_compared
from pubsub.subscriptions.filters import compile
from pubsub.topics.names import is_pattern

from .scan import Item, Tip
from .start import Offset, Position, Start

LONGEST_WHERE = 10_000
"""Characters of a filter in a request."""

MOST_COMPARED = 200
"""Parameters of such a filter: the values that it compares, and the paths to them."""


class StreamId:
    """The id of an event in a stream, as text: the offset in the one topic, or the position in the log of all, and the
    event's mark, by which the log is recognised."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topic = None if len(topics) > 1 or is_pattern(topics[0]) else topics[0]

    def behind(self, item: Item) -> str:
        return self._text(item.offset if self.topic else item.position, item.mark)

    def at(self, tip: Tip) -> str:
        if self.topic:
            return self._text(tip.offsets.get(self.topic, 1) - 1, tip.marks.get(self.topic, ""))
        return self._text(tip.position - 1, tip.mark)

    def _text(self, number: int, mark: str) -> str:
        return f"{'' if self.topic else '@'}{number}{'-' if mark else ''}{mark}"

    def start_behind(self, text: str) -> Start:
        found = re.fullmatch(r"(@?)([0-9]{1,18})(?:-([0-9a-f]{8}))?", text)
        if not found or bool(self.topic) == bool(found[1]):
            raise CannotResume(f"{text!r} is not an id of this stream.")
        return (Offset if self.topic else Position)(int(found[2]) + 1, found[3] or "")


def start_of(request: HttpRequest, topics: Sequence[str]) -> Start:
    last = request.headers.get("Last-Event-ID") or request.GET.get("last_event_id")
    if last:
        return StreamId(topics).start_behind(last)
    start = request.GET.get("start", "latest")
    if start.isdecimal() and len(start) <= 18:
        return int(start)
    if start in ("earliest", "latest"):
        return cast(Start, start)
    raise InvalidSubscription(f"start must be 'latest', 'earliest' or an offset of at least 1, not {start!r}.")


def where_of(request: HttpRequest, allowed: Mapping[str, Any] | bool, *, raw: bool) -> Mapping[str, Any]:
    """The filter that the client asks for, within the one that it is limited to. Unless the stream is `raw`, it must
    not compare what is redacted: what matches would tell it."""
    text = request.GET.get("where") or "{}"
    if len(text) > LONGEST_WHERE:
        raise InvalidSubscription(f"where has {len(text):,} characters; at most {LONGEST_WHERE:,} are allowed here.")
    try:
        asked = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSubscription(f"where must be a filter as JSON: {error}.") from error
    if not isinstance(asked, dict):
        raise InvalidSubscription('where must be a filter as JSON, such as {"type": "order.created"}.')
    wanted = compile(asked)
    if (compared := len(wanted.parameters)) > MOST_COMPARED:
        raise InvalidSubscription(
            f"where compares too much: {compared} values and paths; at most {MOST_COMPARED} are allowed here. A list, "
            f'as in {{"key__in": […]}}, is one.'
        )
    redactor = Redactor(raw=raw)
    for name, path in paths_compared(json.loads(wanted.text)):
        if redactor.hides(path):
            raise InvalidSubscription(f'where["{name}"] compares what is redacted here; leave it out.')
    both = [where for where in (asked, allowed) if isinstance(where, Mapping) and where]
    return {"all": both} if both else {}
