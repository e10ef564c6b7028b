"""Numbers as the admin's pages show them: `{% load pubsub %}`."""

from django import template
from django.utils.formats import number_format

from pubsub.monitoring import problems

register = template.Library()


@register.filter
def thousands(value: int) -> str:
    """The number with the thousands apart, as the reader's language does it."""
    return number_format(value, force_grouping=True)


@register.filter
def rate(value: float) -> str:
    """A rate with as many digits as mean something.

    >>> rate(0), rate(0.123), rate(12.34), rate(1234.5)
    ('0', '0.12', '12.3', '1,234')
    """
    digits = 0 if value == 0 or value >= 100 else 1 if value >= 10 else 2
    return number_format(value, digits, force_grouping=True)


@register.filter
def duration(seconds: float) -> str:
    return problems.duration(seconds)
