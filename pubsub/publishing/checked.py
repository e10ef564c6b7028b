"""An event as it is published: checked when it is, so that the commit cannot fail of it."""

import datetime as dt
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.db import models
from django.utils.translation import gettext as _

from pubsub.errors import InvalidEvent
from pubsub.events import EARLIEST, LATEST, LONGEST_TEXT
from pubsub.suggest import hint, shown

from .encode import check_text, to_json

COLUMNS = ("topic_id", "type", "key", "host_id", "user_id", "to_group", "payload", "metadata")

_OPTIONS = ("payload", "type", "key", "host_id", "user_id", "metadata", "deliver_at", "dedup_key", "to_group")
_KNOWN_OPTIONS = frozenset(_OPTIONS)

LONGEST_DEDUP_KEY = 1000
"""In bytes, as an index holds them."""

WIDEST_ZONE = dt.timedelta(hours=16)
"""From here on PostgreSQL knows no time zone."""


class Checked(NamedTuple):
    """A valid event, as it will be stored."""

    row: tuple[Any, ...]
    """The values of COLUMNS."""
    deliver_at: dt.datetime | None
    dedup_key: str | None

    @property
    def is_plain(self) -> bool:
        """Whether all there is to do is to store it."""
        return self.deliver_at is None and self.dedup_key is None

    @property
    def size(self) -> int:
        """Characters of JSON."""
        return len(self.row[-2]) + len(self.row[-1])


def checked(
    topic_number: int,
    payload: Any,
    type: str = "",
    key: Any = None,
    host_id: Any = None,
    user_id: Any = None,
    metadata: Mapping[str, Any] | None = None,
    deliver_at: dt.datetime | None = None,
    dedup_key: Any = None,
    to_group: Any = None,
) -> Checked:
    if not isinstance(type, str):
        raise InvalidEvent(_("type must be a string such as 'order.created', not %(value)s.") % {"value": shown(type)})
    if metadata is not None and not isinstance(metadata, dict):
        if not isinstance(metadata, Mapping):
            raise InvalidEvent(_("metadata must be a mapping, not %(value)s.") % {"value": shown(metadata)})
        metadata = dict(metadata)
    if deliver_at is not None:
        deliver_at = _in_utc(deliver_at)
    to_group = _text("to_group", to_group)
    if to_group == "":
        raise InvalidEvent(_("to_group must be the name of a group, not '': no group would get the event."))
    dedup_key = _text("dedup_key", dedup_key, LONGEST_DEDUP_KEY) or None
    row = (
        topic_number,
        _short("type", type) if type else "",
        _text("key", key),
        _text("host_id", host_id),
        _text("user_id", user_id),
        to_group,
        to_json("payload", payload),
        to_json("metadata", metadata) if metadata else "{}",
    )
    return Checked(row, deliver_at, dedup_key)


def _text(field: str, value: Any, limit: int = LONGEST_TEXT) -> str | None:
    """Keys and ids are stored as text: in one system they are numbers, in another UUIDs."""
    if value is None:
        return None
    match value:
        case str():
            return _short(field, str.__str__(value), limit)
        case uuid.UUID():
            return str(value)
        case int() if not isinstance(value, bool):
            try:
                return _short(field, int.__repr__(value), limit)
            except ValueError as error:  # Python writes no number of more than 4,300 digits
                raise InvalidEvent(
                    _("%(field)s is too long a number: %(error)s. Use a digest, such as its SHA-256.")
                    % {"field": field, "error": error}
                ) from error
        case models.Model():
            raise InvalidEvent(
                _("%(field)s must be a string, a whole number or a UUID, not an object of %(model)s: give its id.")
                % {"field": field, "model": type(value).__name__}
            )
    raise InvalidEvent(
        _("%(field)s must be a string, a whole number or a UUID, not %(value)s.")
        % {"field": field, "value": shown(value)}
    )


def _in_utc(value: Any) -> dt.datetime:
    """PostgreSQL does not read every zone that Python has, such as one that is off by a microsecond."""
    zone = value.utcoffset() if isinstance(value, dt.datetime) else None
    if zone is None:
        raise InvalidEvent(
            _(
                "deliver_at must be a datetime with a time zone, such as timezone.now() + timedelta(hours=1), "
                "not %(value)s."
            )
            % {"value": shown(value)}
        )
    if abs(zone) >= WIDEST_ZONE:
        raise InvalidEvent(
            _("deliver_at is %(value)s, whose time zone is %(zone)s from UTC; less than 16 hours are possible.")
            % {"value": value.isoformat(), "zone": zone}
        )
    if not EARLIEST <= value < LATEST:
        raise InvalidEvent(
            _("deliver_at is %(value)s; it must lie in the years 1 to 9999.") % {"value": value.isoformat()}
        )
    in_utc: dt.datetime = value.astimezone(dt.UTC)
    return in_utc


def _short(field: str, text: str, limit: int = LONGEST_TEXT) -> str:
    if text.isascii() and "\x00" not in text and len(text) <= limit:
        return text  # nearly always, and the cheapest way to know
    check_text(field, text)
    if len(text) * 4 > limit and len(text.encode()) > limit:
        raise InvalidEvent(
            _("%(field)s has %(size)s bytes; at most %(limit)s are allowed. Use a digest, such as its SHA-256.")
            % {"field": field, "size": f"{len(text.encode()):,}", "limit": f"{limit:,}"}
        )
    return text


def check_options(event: Any) -> None:
    if type(event) is dict and "payload" in event and event.keys() <= _KNOWN_OPTIONS:
        return  # nearly always, and the cheapest way to know
    if not isinstance(event, Mapping):
        raise InvalidEvent(
            _("expected a mapping such as {'payload': …, 'type': …}, not %(event)s.") % {"event": shown(event)}
        )
    if "payload" not in event:
        raise InvalidEvent(_("payload is missing."))
    if not event.keys() <= _KNOWN_OPTIONS:
        unknown = min(map(str, event.keys() - _KNOWN_OPTIONS))
        raise InvalidEvent(
            _('there is no option "%(option)s". %(hint)s') % {"option": unknown, "hint": hint(unknown, _OPTIONS)}
        )
