"""Values as the pages show them. What publishers send is hostile until escaped: HTML is made by format_html alone."""

from typing import Any

from django.utils.formats import number_format
from django.utils.html import format_html

from pubsub.payloads.write import write_json

NOTHING = "–"


def number(value: int) -> str:
    """The number with the thousands apart, as the reader's language does it."""
    return number_format(value, force_grouping=True)


def pre(text: str) -> str:
    """Text as it is, line by line."""
    return format_html('<pre class="pubsub-text" tabindex="0">{}</pre>', text)


def pretty_json(value: Any) -> str:
    """JSON as people like to read it.

    >>> pretty_json("<b>")
    '<pre class="pubsub-text" tabindex="0">&quot;&lt;b&gt;&quot;</pre>'
    """
    return pre(write_json(value))
