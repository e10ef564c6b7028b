"""Values as the pages show them. What publishers send is hostile until escaped: HTML is made by format_html alone."""

import json
from typing import Any

from django.core.paginator import Paginator
from django.core.serializers.json import DjangoJSONEncoder
from django.utils.formats import number_format
from django.utils.functional import cached_property
from django.utils.html import format_html

COUNT_LIMIT = 10_000
"""Rows of a large table that a list counts, and pages through, at most. Counting them all reads them all."""


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
    return pre(json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2))


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Pages through the first rows of a large table and counts no further; `is_bounded` says that there are more."""

    @cached_property
    def _found(self) -> int:
        return int(self.object_list[: COUNT_LIMIT + 1].count())  # type: ignore[attr-defined]

    @cached_property
    def count(self) -> int:
        return min(self._found, COUNT_LIMIT)

    @property
    def is_bounded(self) -> bool:
        return self._found > COUNT_LIMIT
