"""Amounts and lengths of time, for sentences."""

from collections.abc import Sequence

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext


def duration(seconds: float) -> str:
    """A length of time, for people.

    >>> duration(59.9), duration(150), duration(7260), duration(200_000)
    ('59 s', '2 min', '2 h 1 min', '2 days')
    """
    whole = int(max(0, seconds))
    if whole < 60:
        return _("%(n)s s") % {"n": whole}
    if whole < 3600:
        return _("%(n)s min") % {"n": whole // 60}
    if whole < 48 * 3600:
        hours, minutes = whole // 3600, whole % 3600 // 60
        text = _("%(n)s h") % {"n": hours}
        return text + " " + _("%(n)s min") % {"n": minutes} if minutes and hours < 24 else text
    return ngettext("%(n)s day", "%(n)s days", whole // 86400) % {"n": number(whole // 86400)}


def number(value: int) -> str:
    return number_format(value, force_grouping=True)


def rate(value: float) -> str:
    """A rate with as many digits as mean something.

    >>> rate(0), rate(0.123), rate(12.34), rate(1234.5)
    ('0', '0.12', '12.3', '1,234')
    """
    digits = 0 if value == 0 or value >= 100 else 1 if value >= 10 else 2
    return number_format(value, digits, force_grouping=True)


def events(count: int) -> str:
    return ngettext("%(n)s event", "%(n)s events", count) % {"n": number(count)}


def at_least(amount: str, bounded: bool) -> str:
    return _("at least %(amount)s") % {"amount": amount} if bounded else amount


def enumerated(names: Sequence[object], at_most: int = 5) -> str:
    """The first few of many.

    >>> enumerated([0, 3]), enumerated(range(9))
    ('0, 3', '0, 1, 2, 3, 4 …')
    """
    shown = ", ".join(map(str, names[:at_most]))
    return shown if len(names) <= at_most else f"{shown} …"


def class_name(dotted: str) -> str:
    """An exception's class without its module.

    >>> class_name("smtplib.SMTPException"), class_name("")
    ('SMTPException', 'an exception')
    """
    return dotted.rpartition(".")[2] or _("an exception")
