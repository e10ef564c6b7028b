"""Charts as SVG, drawn here: part of the page, in its colours, without a script or anything to load.

The admin shows small ones beside figures; a report has them as wide as its page, with names and numbers.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

SMALL_WIDTH, SMALL_HEIGHT = 160, 36
MARGIN = 2
BOTTOM = SMALL_HEIGHT - MARGIN

WIDTH = 720
LINE = 22
LABELS = 300
"""Of the width, for the names of bars."""
HIGH = 180
AXIS = 20
LONGEST = 44
"""Characters of a name; the whole one is its title."""

Values = Sequence[tuple[dt.datetime, float | None]]
"""Amounts, each from a time on; None where it is not known from then on."""


def sparkline(values: Values, start: dt.datetime, end: dt.datetime, label: str, top: str = "") -> SafeString:
    """A small line of an amount from `start` to `end`; `label` says the same in words, `top` what its height is.

    A value holds until the next one; where it is None, there is a gap.

    >>> noon = dt.datetime(2030, 1, 1, 12)
    >>> hour = dt.timedelta(hours=1)
    >>> sparkline([(noon, 0), (noon + hour / 2, 5)], noon, noon + hour, "0, then 5")
    '<svg class="pubsub-chart" ...<title>0, then 5</title>...<polyline points="0,34 80,34 80,2 160,2"/></svg>'
    """
    lines = _lines(values, start, end)
    drawn = format_html_join(
        "",
        '<polygon points="{}"/><polyline points="{}"/>',
        ((f"{line[0][0]:g},{BOTTOM} {_path(line)} {line[-1][0]:g},{BOTTOM}", _path(line)) for line in lines),
    )
    chart = _small_svg(label, drawn)
    if not top:
        return chart
    return format_html('<span class="pubsub-spark">{}<small aria-hidden="true">{}</small></span>', chart, top)


def small_bars(values: Sequence[float], label: str) -> SafeString:
    """A small drawing of amounts side by side; `label` says the same in words.

    >>> small_bars([1, 2], "1, 2")
    '<svg class="pubsub-chart" ...<rect x="1" y="18" width="78" height="16"/><rect x="81" ...</svg>'
    """
    highest = max(values, default=0) or 1
    room = SMALL_WIDTH / max(1, len(values))
    gap = min(1.0, room / 5)
    drawn = format_html_join(
        "",
        '<rect x="{}" y="{}" width="{}" height="{}"/>',
        (
            (
                f"{n * room + gap:g}",
                f"{_y(value, highest):g}",
                f"{room - 2 * gap:g}",
                f"{_height(value, highest):g}",
            )
            for n, value in enumerate(values)
        ),
    )
    return _small_svg(label, drawn)


Line = list[tuple[float, float]]


def _path(line: Line) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in line)


def _lines(values: Values, start: dt.datetime, end: dt.datetime) -> list[Line]:
    """The steps of each part without a gap."""
    highest = max((value for _, value in values if value is not None), default=0) or 1
    span = (end - start).total_seconds()
    lines: list[Line] = [[]]
    for at, value in [*values, (end, None)]:
        x = round(min(max((at - start).total_seconds() / span, 0), 1) * SMALL_WIDTH, 1)
        if lines[-1]:
            lines[-1].append((x, lines[-1][-1][1]))
        if value is None:
            lines.append([])
        else:
            lines[-1].append((x, _y(value, highest)))
    return [
        [point for n, point in enumerate(line) if n == 0 or point != line[n - 1]] for line in lines if len(line) > 1
    ]


def _y(value: float, highest: float) -> float:
    return round(SMALL_HEIGHT - MARGIN - _height(value, highest), 1)


def _height(value: float, highest: float) -> float:
    return round(max(0.0, value) / highest * (SMALL_HEIGHT - 2 * MARGIN), 1)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An amount with a name."""

    label: str
    value: float
    unit: str = ""

    @property
    def text(self) -> str:
        return f"{self.value:,.3f}".rstrip("0").rstrip(".") + (f" {self.unit}" if self.unit else "")


def named_bars(amounts: Sequence[Bar], label: str) -> SafeString:
    """Amounts below one another, each with its name and its number.

    >>> "&lt;i&gt;" in named_bars([Bar(label="<i>", value=3)], "letters")
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
                amount.text,
                LABELS - 8,
                amount.label if len(amount.label) <= LONGEST else f"{amount.label[: LONGEST - 1]}…",
                LABELS,
                round(max(1.0, amount.value / highest * room), 1),
                round(LABELS + max(1.0, amount.value / highest * room) + 6, 1),
                amount.text,
            )
            for number, amount in enumerate(amounts)
        ),
    )
    return _large_svg(len(amounts) * LINE, label, drawn)


def time_bars(values: Sequence[tuple[dt.datetime, float]], step: dt.timedelta, label: str) -> SafeString:
    """Amounts over time, a column for each period; an empty period has none.

    >>> noon = dt.datetime(2030, 1, 1, 12)
    >>> time_bars([(noon, 1), (noon + dt.timedelta(hours=3), 2)], dt.timedelta(hours=1), "events").count("<rect")
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
    return _large_svg(HIGH + AXIS, label, SafeString(drawn + words))


def _small_svg(label: str, drawn: SafeString) -> SafeString:
    return _svg(
        SMALL_WIDTH,
        SMALL_HEIGHT,
        SafeString(' class="pubsub-chart" preserveAspectRatio="none"'),
        label,
        format_html("<title>{}</title>{}", label, drawn),
    )


def _large_svg(height: int, label: str, drawn: SafeString) -> SafeString:
    return _svg(WIDTH, height, format_html(' width="{}"', WIDTH), label, drawn)


def _svg(width: int, height: int, attributes: SafeString, label: str, drawn: SafeString) -> SafeString:
    return format_html(
        '<svg{} viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>', attributes, width, height, label, drawn
    )
