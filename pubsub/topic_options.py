"""The options of a topic: one list for the settings, the commands and the admin."""

import datetime as dt
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .errors import InvalidTopic
from .suggest import hint, shown

NO_TIME = dt.timedelta(0)

DURATION = re.compile(r"(?:\d+[smhdw])+")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZES = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def duration(text: str) -> dt.timedelta:
    """A duration written as numbers with units, or a ValueError that says how one is written.

    >>> duration("1d12h")
    datetime.timedelta(days=1, seconds=43200)
    """
    parts = DURATION.fullmatch(text.strip().lower())
    if not parts:
        raise ValueError(
            _("expected a duration such as 90s, 15m, 12h, 7d, 2w or 1d12h, got %(text)s") % {"text": shortened(text)}
        )
    try:
        return dt.timedelta(seconds=sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+)([smhdw])", parts[0])))
    except (OverflowError, ValueError) as error:
        raise ValueError(_("%(text)s is too long") % {"text": shortened(text)}) from error


def size(text: str) -> int:
    """A number of bytes, with a unit or without, or a ValueError that says how one is written.

    >>> size("2GB"), size("64MiB"), size("500")
    (2000000000, 67108864, 500)
    """
    parts = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if not parts or parts[2] not in _SIZES or len(parts[1]) > 20 or int(parts[1]) < 1:
        raise ValueError(
            _("expected a number of bytes such as 500MB or 2GiB, got %(text)s") % {"text": shortened(text)}
        )
    return int(parts[1]) * _SIZES[parts[2]]


def shortened(text: str) -> str:
    """What was given, for an error.

    >>> shortened("9" * 1000)
    "'9999999999999999999999999999999999999…'"
    """
    return repr(text if len(text) <= 40 else text[:37] + "…")


def _whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**63


def _partitions(value: Any) -> bool:
    return _whole_number(value) and value < 2**31


def _duration(value: Any) -> bool:
    return isinstance(value, dt.timedelta) and value >= NO_TIME


def _limit(value: Any) -> bool:
    return value is None or (_duration(value) and value > NO_TIME)


OPTIONS: dict[str, tuple[Callable[[Any], bool], str | Promise]] = {
    "partitions": (_partitions, gettext_lazy("a whole number of at least 1")),
    "retention": (_duration, gettext_lazy('a timedelta that is not negative, or a text such as "7d" or "36h"')),
    "semantics": (("PUB_SUB", "QUEUE").__contains__, gettext_lazy('"PUB_SUB" or "QUEUE"')),
    "zero_subscribers": (("keep", "refuse").__contains__, gettext_lazy('"keep" or "refuse"')),
    "max_age": (_limit, gettext_lazy('a timedelta above zero, a text such as "7d" or "36h", or None')),
    "max_bytes": (
        lambda value: value is None or _whole_number(value),
        gettext_lazy('a whole number of at least 1, a text such as "500MB" or "2GiB", or None'),
    ),
}
"""Each option, how to recognise a valid value, and what to say about an invalid one."""

TEXTS: dict[str, Callable[[str], Any]] = {"retention": duration, "max_age": duration, "max_bytes": size}
"""What the texts mean that commands, and settings from the environment, have for values."""

RENAMED = {"total_partitions": "partitions"}
"""Former names of options, and of settings. They still work, and are reported as deprecated."""


def check_partitions(name: str, partitions: int, most: int) -> None:
    """Refuses more partitions than the settings allow: a group gets a cursor for each, while nothing is numbered.

    >>> check_partitions("orders.events", 5000, 4096)
    Traceback (most recent call last):
    pubsub.errors.InvalidTopic: partitions of topic "orders.events" must be 4,096 at most, not 5,000. …
    """
    if partitions > most:
        raise InvalidTopic(
            _(
                'partitions of topic "%(topic)s" must be %(most)s at most, not %(given)s. Each costs every group a '
                'cursor; PUBSUB["max_partitions"] allows more.'
            )
            % {"topic": name, "most": f"{most:,}", "given": f"{partitions:,}"}
        )


def column_of(option: str) -> str:
    """The column of `outbox_topics`, and so the field of its model, that holds an option."""
    return "total_partitions" if option == "partitions" else option


def with_new_names(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a topic by the names that they have now.

    >>> with_new_names("orders.events", {"total_partitions": 4})
    {'partitions': 4}
    """
    for old, new in RENAMED.items():
        if old in options and new in options:
            raise InvalidTopic(
                _(
                    'Topic "%(topic)s" has both "%(new)s" and "%(old)s", the former name of the same option; '
                    'remove "%(old)s".'
                )
                % {"topic": name, "new": new, "old": old}
            )
    return {RENAMED.get(option, option): value for option, value in options.items()}


def checked(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a topic, or an error that says what was expected.

    >>> checked("orders.events", {"partitions": 4})
    {'partitions': 4}
    >>> checked("orders.events", {"retention": "36h"})
    {'retention': datetime.timedelta(days=1, seconds=43200)}
    >>> checked("orders.events", {"partition": 4})
    Traceback (most recent call last):
    pubsub.errors.InvalidTopic: Topic "orders.events" has no option "partition". Did you mean "partitions"?
    """
    for old in RENAMED.keys() & options.keys():
        # The third frame is the one that called create_topic() or the like.
        warnings.warn(f'The option "{old}" of topics is now called "{RENAMED[old]}".', DeprecationWarning, stacklevel=3)
    options = with_new_names(name, options)
    for option, value in options.items():
        if option not in OPTIONS:
            raise InvalidTopic(
                _('Topic "%(topic)s" has no option "%(option)s". %(hint)s')
                % {"topic": name, "option": option, "hint": hint(option, OPTIONS)}
            )
        can_work, expected = OPTIONS[option]
        if option in TEXTS and isinstance(value, str):
            with suppress(ValueError):
                options[option] = TEXTS[option](value)
        if not can_work(options[option]):
            raise InvalidTopic(
                _('%(option)s of topic "%(topic)s" must be %(expected)s, not %(value)s.')
                % {"option": option, "topic": name, "expected": expected, "value": shown(value)}
            )
    return options
