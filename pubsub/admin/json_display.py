"""JSON as people like to read it: in order, collapsible, with every digit, harmless whatever is in it.

It is HTML alone: ``<details>`` opens and closes without a script, and so by keyboard too and under any policy. What is
too much for a page is left out, with a note and a link to all of it as plain text.
"""

from dataclasses import dataclass, field
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from pubsub.payloads.write import BRACKETS, literal, quoted

from .formats import number

LINES_SHOWN = 1000
"""Values on a page, at most."""

ITEMS_SHOWN = 100
"""Values of one list or object, at most."""

CHARACTERS_SHOWN = 2000
"""Of one text, or digits of one number, at most."""

DEEPEST_SHOWN = 40
"""Levels; browsers themselves give up at some hundreds."""

OPEN_LINES = 60
"""A value of so many lines is shown open as a whole; of a larger one the first two levels are."""


def show_json(value: Any, whole: str = "") -> SafeString:
    """A decoded value, as HTML. `whole` is the address of the full text, if there is one.

    >>> show_json({"name": "<b>"})
    '<div class="pubsub-json"><details open><summary>...&quot;&lt;b&gt;&quot;...</details></div>'
    """
    display = _Display(is_small=_has_at_most(OPEN_LINES, value))
    shown = display.render(value)
    note: str | SafeString = ""
    if display.left_out and whole:
        note = format_html('<p class="pubsub-json-more"><a href="{}">{}</a></p>', whole, _("Show all as plain text"))
    elif display.left_out:
        note = format_html('<p class="pubsub-json-more">{}</p>', _("Too large to show in full."))
    return format_html('<div class="pubsub-json">{}</div>{}', shown, note)


def _has_at_most(limit: int, value: Any) -> bool:
    stack, count = [value], 0
    while stack:
        it = stack.pop()
        count += 1
        if isinstance(it, dict | list):
            count += len(it)
            if count > limit:
                return False
            stack.extend(it.values() if isinstance(it, dict) else it)
    return count <= limit


@dataclass
class _Display:
    is_small: bool
    lines: int = 0
    left_out: bool = field(default=False)

    def render(self, value: Any, name: str = "", after: str = "", depth: int = 0) -> SafeString:
        self.lines += 1
        if not isinstance(value, dict | list) or not value:
            return self._line(name, self._scalar(value), after)
        count = len(value)
        if isinstance(value, dict):
            size = ngettext("%(n)s key", "%(n)s keys", count) % {"n": number(count)}
        else:
            size = ngettext("%(n)s item", "%(n)s items", count) % {"n": number(count)}
        opening, closing = BRACKETS[isinstance(value, dict)]
        if depth >= DEEPEST_SHOWN or self.lines >= LINES_SHOWN:
            self.left_out = True
            left = format_html('{} <em class="pubsub-json-size">{}</em> {}', f"{opening}…", size, closing)
            return self._line(name, left, after)
        return format_html(
            '<details{}><summary>{}{}<span class="pubsub-json-size"> {} {}{}</span></summary><ul>{}</ul>'
            '<span class="pubsub-json-end">{}{}</span></details>',
            mark_safe(" open") if self.is_small or depth < 2 else "",
            self._name(name),
            opening,
            size,
            closing,
            after,
            self._children(value, depth),
            closing,
            after,
        )

    def _children(self, value: Any, depth: int) -> SafeString:
        pairs = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        items: list[SafeString] = []
        for nth, (key, item) in enumerate(pairs, start=1):
            if nth > ITEMS_SHOWN or (self.lines >= LINES_SHOWN and nth > 1):
                self.left_out = True
                rest = len(value) - nth + 1
                more = ngettext("… and %(n)s more", "… and %(n)s more", rest) % {"n": number(rest)}
                items.append(format_html('<em class="pubsub-json-size">{}</em>', more))
                break
            after = "," if nth < len(value) else ""
            items.append(self.render(item, "" if key is None else quoted(key), after, depth + 1))
        return format_html_join("", "<li>{}</li>", ((item,) for item in items))

    def _scalar(self, value: Any) -> SafeString:
        kind = "text" if type(value) is str else "word" if value is None or isinstance(value, bool) else "number"
        written = literal(value)
        if len(written) <= CHARACTERS_SHOWN:
            return format_html('<span class="pubsub-json-{}">{}</span>', kind, written)
        self.left_out = True
        rest = len(written) - CHARACTERS_SHOWN
        more = ngettext("… and %(n)s more character", "… and %(n)s more characters", rest) % {"n": number(rest)}
        return format_html(
            '<span class="pubsub-json-{}">{}</span><em class="pubsub-json-size">{}</em>',
            kind,
            written[:CHARACTERS_SHOWN],
            more,
        )

    def _line(self, name: str, shown: SafeString, after: str) -> SafeString:
        return format_html("{}{}{}", self._name(name), shown, after)

    def _name(self, name: str) -> SafeString:
        if not name:
            return SafeString("")
        short = name
        if len(name) > CHARACTERS_SHOWN:
            self.left_out = True
            short = f"{name[:CHARACTERS_SHOWN]}…"
        return format_html('<span class="pubsub-json-key">{}</span>: ', short)
