"""From Python to jsonb, or to an error that names the path."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from pubsub.conf import conf
from pubsub.errors import InvalidEvent
from pubsub.suggest import shown

_encode_text = json.JSONEncoder(ensure_ascii=False).encode
_encoder = DjangoJSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _make_encode() -> Callable[[Any], str]:
    """What `_encoder.encode` does. That prepares itself again for each value, which takes as long as a small value."""
    make_pieces: Any = getattr(json.encoder, "c_make_encoder", None)
    if make_pieces is None:  # Python has no such thing in public
        return _encoder.encode
    # Without markers it is the depth that ends a value which contains itself. Threads would have shared them.
    pieces = make_pieces(None, _encoder.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    return lambda value: "".join(pieces(value, 0))


_encode = _make_encode()

DEEPEST = 200
"""How deep lists and objects may be nested. Python and PostgreSQL read about a thousand levels."""


def to_json(field: str, value: Any) -> str:
    r"""The value as JSON that PostgreSQL can store.

    >>> to_json("payload", {"total": 3})
    '{"total":3}'
    >>> to_json("payload", {"items": [{"name": "nul \x00"}]})
    Traceback (most recent call last):
    pubsub.errors.InvalidEvent: payload["items"][0]["name"] contains the character \u0000, …
    """
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(
            _find_fault(field, value)
            or _("%(path)s cannot be written as JSON: %(error)s.") % {"path": field, "error": error}
        ) from error
    # Looking for one character first takes a tenth of the time, and most payloads have neither.
    nested = text.count("{") + (text.count("[") if "[" in text else 0)
    if ("\\" in text and "\\u0000" in text) or not text.isascii() or nested > DEEPEST:
        # Rare enough to look closely: the escape may also be a literal backslash.
        fault = _find_fault(field, value)
        if fault:
            raise InvalidEvent(fault)
    limit = conf().max_payload_bytes
    if len(text) * 4 > limit and len(text.encode()) > limit:
        raise InvalidEvent(
            _(
                "%(path)s has %(size)s bytes as JSON; at most %(limit)s are allowed. Store it elsewhere and publish a "
                'reference, or raise PUBSUB["max_payload_bytes"].'
            )
            % {"path": field, "size": f"{len(text.encode()):,}", "limit": f"{limit:,}"}
        )
    return text


def as_json(event_id: Any, row: Sequence[Any]) -> str:
    """An event as `pubsub_publish_v1` takes it: its id, and the values of COLUMNS.

    >>> text = as_json("e-1", (1, "order.created", "k", None, None, None, "[1]", "{}"))
    >>> {name: value for name, value in json.loads(text).items() if value}
    {'event_id': 'e-1', 'topic_id': 1, 'type': 'order.created', 'key': 'k', 'payload': [1]}
    """
    topic_id, *texts, payload, metadata = row
    type, key, host_id, user_id, to_group = ("null" if text is None else _encode_text(text) for text in texts)
    return (
        f'{{"event_id":"{event_id}","topic_id":{topic_id},"type":{type},"key":{key},"host_id":{host_id},'
        f'"user_id":{user_id},"to_group":{to_group},"payload":{payload},"metadata":{metadata}}}'
    )


def check_text(field: str, value: str) -> str:
    """A text that PostgreSQL can store, or an error that names the field."""
    fault = _fault_of_text(field, value)
    if fault:
        raise InvalidEvent(fault)
    return value


def _fault_of_text(path: str, text: str) -> str | None:
    if "\x00" in text:
        return _("%(path)s contains the character \\u0000, which PostgreSQL cannot store; remove it.") % {"path": path}
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return _("%(path)s contains half of a surrogate pair, which is not a character; repair or remove it.") % {
                "path": path
            }
    return None


def _find_fault(path: str, value: Any, depth: int = 0) -> str | None:
    if depth > DEEPEST:
        return _("payload or metadata is nested more than %(n)s levels deep, or contains itself.") % {"n": DEEPEST}
    match value:
        case str():
            return _fault_of_text(path, value)
        case Promise():
            return _fault_of_text(path, str(value))
        case float() if not math.isfinite(value):
            return _("%(path)s is %(value)s, which JSON cannot express; send null or a string.") % {
                "path": path,
                "value": value,
            }
        case dict():
            for key, item in value.items():
                if not isinstance(key, str | int | float | bool | None):
                    return _("%(path)s has a key of type %(type)s (%(key)s); keys must be strings.") % {
                        "path": path,
                        "type": type(key).__name__,
                        "key": shown(key),
                    }
                name = key if isinstance(key, str) else shown(key)
                if _fault_of_text(path, name):  # asked first: no text is made for a key without fault
                    return _fault_of_text(_("a key of %(path)s") % {"path": path}, name)
                if fault := _find_fault(f'{path}["{name}"]', item, depth + 1):
                    return fault
            return None
        case list() | tuple():
            for index, item in enumerate(value):
                if fault := _find_fault(f"{path}[{index}]", item, depth + 1):
                    return fault
            return None
    try:
        _encode(value)
    except (TypeError, ValueError) as error:
        return _("%(path)s is of type %(type)s, which cannot be written as JSON: %(error)s.") % {
            "path": path,
            "type": type(value).__name__,
            "error": error,
        }
    return None
