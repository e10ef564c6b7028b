"""Small charts as SVG, made here: no script, nothing to load, drawn in the colours of the page."""

import datetime as dt
from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

WIDTH, HEIGHT = 160, 36
MARGIN = 2

Values = Sequence[tuple[dt.datetime, float]]


def course(values: Values, start: dt.datetime, end: dt.datetime, label: str, *, rising: bool = False) -> SafeString:
    """How something came along from `start` to `end`; `label` says the same in words.

    A value holds until the next one, unless it rises from one to the next.

    >>> noon = dt.datetime(2030, 1, 1, 12)
    >>> hour = dt.timedelta(hours=1)
    >>> course([(noon, 0), (noon + hour / 2, 5)], noon, noon + hour, "0, then 5")
    '<svg class="pubsub-chart" ...<title>0, then 5</title>...<polyline points="0,34 80,34 80,2 160,2"/></svg>'
    """
    points = _points(values, start, end, rising)
    if not points:
        return _svg(label, SafeString(""))
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    area = f"{points[0][0]:g},{HEIGHT - MARGIN} {line} {points[-1][0]:g},{HEIGHT - MARGIN}"
    return _svg(label, format_html('<polygon points="{}"/><polyline points="{}"/>', area, line))


def bars(values: Sequence[float], label: str) -> SafeString:
    """Amounts side by side.

    >>> bars([1, 2], "1, 2")
    '<svg class="pubsub-chart" ...<rect x="1" y="18" width="78" height="16"/><rect x="81" ...</svg>'
    """
    highest = max(values, default=0) or 1
    room = WIDTH / max(1, len(values))
    gap = min(1.0, room / 5)
    drawn = format_html_join(
        "",
        '<rect x="{}" y="{}" width="{}" height="{}"/>',
        (
            (
                f"{place * room + gap:g}",
                f"{_y(value, highest):g}",
                f"{room - 2 * gap:g}",
                f"{_height(value, highest):g}",
            )
            for place, value in enumerate(values)
        ),
    )
    return _svg(label, drawn)


def _points(values: Values, start: dt.datetime, end: dt.datetime, rising: bool) -> list[tuple[float, float]]:
    highest = max((value for _, value in values), default=0) or 1
    span = (end - start).total_seconds()
    points: list[tuple[float, float]] = []
    for at, value in values:
        x = round(min(max((at - start).total_seconds() / span, 0), 1) * WIDTH, 1)
        y = _y(value, highest)
        if points and not rising:
            points.append((x, points[-1][1]))
        points.append((x, y))
    if points:
        points.append((WIDTH, points[-1][1]))
    return [point for place, point in enumerate(points) if place == 0 or point != points[place - 1]]


def _y(value: float, highest: float) -> float:
    return round(HEIGHT - MARGIN - _height(value, highest), 1)


def _height(value: float, highest: float) -> float:
    return round(max(0.0, value) / highest * (HEIGHT - 2 * MARGIN), 1)


def _svg(label: str, drawn: SafeString) -> SafeString:
    return format_html(
        '<svg class="pubsub-chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        "<title>{}</title>{}</svg>",
        WIDTH,
        HEIGHT,
        label,
        label,
        drawn,
    )
