"""Numbers, and the texts of publishers, as the admin's pages show them: `{% load pubsub %}`."""

from django import template
from django.utils.formats import number_format

from pubsub.monitoring import words
from pubsub.payloads.visible import visible

register = template.Library()

register.filter("rate", words.rate)
register.filter("duration", words.duration)
register.filter("visible", visible)


@register.filter
def thousands(value: int) -> str:
    """The number with the thousands apart, as the reader's language does it."""
    return number_format(value, force_grouping=True)
