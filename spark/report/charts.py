"""Charts as SVG, drawn here: they are part of the page, and need no script."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

WIDTH = 720
LINE = 22
LABELS = 300
"""Of the width, for the names of bars."""
HIGH = 180
AXIS = 20
LONGEST = 44
"""Characters of a name; the whole one is its title."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An amount with a name."""

    label: str
    value: float
    unit: str = ""

    @property
    def said(self) -> str:
        return f"{self.value:,.3f}".rstrip("0").rstrip(".") + (f" {self.unit}" if self.unit else "")


def bars(amounts: Sequence[Bar], label: str) -> SafeString:
    """Amounts below one another, each with its name and its number.

    >>> "&lt;i&gt;" in bars([Bar(label="<i>", value=3)], "letters")
    True
    """
    if not amounts:
        return SafeString("")
    highest = max(amount.value for amount in amounts) or 1
    room = WIDTH - LABELS - 90
    drawn = format_html_join(
        "",
        '<g transform="translate(0 {})"><title>{}: {}</title><text x="{}" y="15" text-anchor="end">{}</text>'
        '<rect x="{}" y="3" width="{}" height="16"/><text x="{}" y="15">{}</text></g>',
        (
            (
                number * LINE,
                amount.label,
                amount.said,
                LABELS - 8,
                amount.label if len(amount.label) <= LONGEST else f"{amount.label[: LONGEST - 1]}…",
                LABELS,
                round(max(1.0, amount.value / highest * room), 1),
                round(LABELS + max(1.0, amount.value / highest * room) + 6, 1),
                amount.said,
            )
            for number, amount in enumerate(amounts)
        ),
    )
    return _svg(len(amounts) * LINE, label, drawn)


def course(values: Sequence[tuple[dt.datetime, float]], step: dt.timedelta, label: str) -> SafeString:
    """Amounts over time, a column for each period; an empty period has none.

    >>> noon = dt.datetime(2030, 1, 1, 12)
    >>> course([(noon, 1), (noon + dt.timedelta(hours=3), 2)], dt.timedelta(hours=1), "events").count("<rect")
    2
    """
    if not values:
        return SafeString("")
    begin, highest = values[0][0], max(value for _, value in values) or 1
    periods = round((values[-1][0] - begin) / step) + 1
    room = WIDTH / periods
    drawn = format_html_join(
        "",
        '<rect x="{}" y="{}" width="{}" height="{}"><title>{}: {}</title></rect>',
        (
            (
                round(round((at - begin) / step) * room, 2),
                round(HIGH - value / highest * (HIGH - AXIS), 1),
                round(max(0.5, min(room * 0.9, 60)), 2),
                round(value / highest * (HIGH - AXIS), 1),
                f"{at:%Y-%m-%d %H:%M}",
                f"{value:,.0f}",
            )
            for at, value in values
        ),
    )
    words = format_html(
        '<text x="0" y="12">{} {}</text><text x="0" y="{}">{}</text><text x="{}" y="{}" text-anchor="end">{}</text>',
        f"at most {highest:,.0f}",
        label,
        HIGH + 15,
        f"{begin:%Y-%m-%d %H:%M}",
        WIDTH,
        HIGH + 15,
        f"{values[-1][0]:%Y-%m-%d %H:%M}" if periods > 1 else "",
    )
    return _svg(HIGH + AXIS, label, SafeString(drawn + words))


def _svg(height: int, label: str, drawn: SafeString) -> SafeString:
    return format_html(
        '<svg viewBox="0 0 {} {}" width="{}" role="img" aria-label="{}">{}</svg>', WIDTH, height, WIDTH, label, drawn
    )
