"""What a topic can be told: one list for the settings, the command and the admin."""

import datetime as dt
import difflib
from collections.abc import Callable, Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pubsub.errors import InvalidTopic

NO_TIME = dt.timedelta(0)


def _whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**63


def _partitions(value: Any) -> bool:
    return _whole_number(value) and value < 2**31


def _duration(value: Any) -> bool:
    return isinstance(value, dt.timedelta) and value >= NO_TIME


def _limit(value: Any) -> bool:
    return value is None or (_duration(value) and value > NO_TIME)


OPTIONS: dict[str, tuple[Callable[[Any], bool], str | Promise]] = {
    "total_partitions": (_partitions, gettext_lazy("a whole number of at least 1")),
    "retention": (_duration, gettext_lazy("a timedelta that is not negative, such as timedelta(days=7)")),
    "semantics": (("PUB_SUB", "QUEUE").__contains__, gettext_lazy('"PUB_SUB" or "QUEUE"')),
    "zero_subscribers": (("keep", "refuse").__contains__, gettext_lazy('"keep" or "refuse"')),
    "max_age": (_limit, gettext_lazy("a timedelta of more than nothing, or None")),
    "max_bytes": (
        lambda value: value is None or _whole_number(value),
        gettext_lazy("a whole number of at least 1, or None"),
    ),
}
"""Each option, how to tell a value that can work, and what to say about one that cannot."""


def checked(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a topic, or an error that says what was expected.

    >>> checked("orders.events", {"total_partitions": 4})
    {'total_partitions': 4}
    >>> checked("orders.events", {"partitions": 4})
    Traceback (most recent call last):
    pubsub.errors.InvalidTopic: Topic "orders.events" has no option "partitions"; did you mean "total_partitions"?
    """
    for option, value in options.items():
        if option not in OPTIONS:
            nearest = difflib.get_close_matches(str(option), OPTIONS, n=1)
            if nearest:
                hint = _('did you mean "%(nearest)s"?') % {"nearest": nearest[0]}
            else:
                hint = _("it may have %(options)s.") % {"options": ", ".join(OPTIONS)}
            raise InvalidTopic(
                _('Topic "%(topic)s" has no option "%(option)s"; %(hint)s')
                % {"topic": name, "option": option, "hint": hint}
            )
        can_work, expected = OPTIONS[option]
        if not can_work(value):
            raise InvalidTopic(
                _('%(option)s of topic "%(topic)s" must be %(expected)s, not %(value)r.')
                % {"option": option, "topic": name, "expected": expected, "value": value}
            )
    return dict(options)
