"""What samples say of the last hours, as charts."""

import datetime as dt
import itertools
from collections.abc import Sequence

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from pubsub.charts import sparkline
from pubsub.monitoring.facts import GroupStatus, TopicStatus
from pubsub.monitoring.samples import Point
from pubsub.monitoring.words import rate

from .formats import number

HOLDS = dt.timedelta(minutes=1)
"""For how long after a sample things stood like that, even where no worker was left: one is due twice a minute."""

Course = list[tuple[dt.datetime, float | None]]


def lag_chart(group: GroupStatus, samples: Sequence[Point], start: dt.datetime, end: dt.datetime) -> SafeString:
    tip = max((point.tip for point in samples), default=0)
    values = lags([*samples, _now(samples, end, tip, group.lag)])
    most = number(max(int(value) for _at, value in values if value is not None))
    label = _("Lag in the last hour: %(now)s events now, %(most)s at most.") % {"now": number(group.lag), "most": most}
    return sparkline(values, start, end, label, most)


def rate_chart(topic: TopicStatus, samples: Sequence[Point], start: dt.datetime, end: dt.datetime) -> SafeString:
    values = rates([*samples, _now(samples, end, topic.tip, 0)], start)
    most = rate(max((value for _at, value in values if value is not None), default=0))
    label = _("Events per second in the last hour, %(most)s at most.") % {"most": most}
    return sparkline(values, start, end, label, most)


def _now(samples: Sequence[Point], end: dt.datetime, tip: int, lag: int) -> Point:
    """How things stand. What has changed for long and was not sampled has changed while no worker was there."""
    last = samples[-1] if samples else None
    late = last is not None and end - last.at > HOLDS and (last.lag != lag if lag or last.lag else last.tip != tip)
    return Point(at=end, tip=tip, lag=lag, behind_s=0, after_gap=late)


def _is_gap(before: Point, after: Point) -> bool:
    return after.after_gap and after.at - before.at > HOLDS


def lags(samples: Sequence[Point]) -> Course:
    """Lags, each from a time on; None where none is known."""
    course: Course = []
    for before, after in itertools.pairwise(samples):
        course.append((before.at, float(before.lag)))
        if _is_gap(before, after):
            course.append((before.at + HOLDS, None))
    return [*course, (samples[-1].at, float(samples[-1].lag))]


def rates(samples: Sequence[Point], start: dt.datetime) -> Course:
    """Events per second between samples. Nothing is written while nothing moves, so a long time between two of them
    means that what moved did so at its end; over a gap, it is not known when."""
    course: Course = []
    for before, after in itertools.pairwise(samples):
        if _is_gap(before, after):
            course.append((before.at, None))
            continue
        since = max(before.at, after.at - dt.timedelta(minutes=1), start)
        seconds = (after.at - since).total_seconds()
        if since > before.at:
            course.append((before.at, 0.0))
        if seconds > 0:
            course.append((since, (after.tip - before.tip) / seconds))
    return course
