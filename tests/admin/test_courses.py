"""Charts of samples: a value holds until the next one, and what is not known is a gap."""

import datetime as dt

from pubsub.admin.courses import lag_chart, lags, rates
from pubsub.charts import sparkline
from pubsub.monitoring.samples import Point
from tests.monitoring.test_problems import cursor, group

NOON = dt.datetime(2030, 1, 1, 12, tzinfo=dt.UTC)


def at(minutes, lag=0, tip=0, after_gap=False):
    return Point(at=NOON + dt.timedelta(minutes=minutes), tip=tip, lag=lag, behind_s=0, after_gap=after_gap)


def shown(course):
    return [((moment - NOON).total_seconds() / 60, value) for moment, value in course]


def test_a_lag_holds_until_the_next_sample_and_is_not_known_over_a_gap():
    assert shown(lags([at(0, 4), at(20, 9)])) == [(0, 4), (20, 9)]
    assert shown(lags([at(0, 4), at(20, 9, after_gap=True)])) == [(0, 4), (1, None), (20, 9)]
    assert shown(lags([at(0, 4), at(0.5, 9, after_gap=True)])) == [(0, 4), (0.5, 9)]


def test_what_was_published_in_a_gap_has_no_rate():
    assert shown(rates([at(0), at(10, tip=120)], NOON)) == [(0, 0), (9, 2)]
    assert shown(rates([at(0), at(10, tip=120, after_gap=True)], NOON)) == [(0, None)]


def test_a_gap_is_drawn_as_one():
    hour = NOON + dt.timedelta(hours=1)
    drawn = sparkline(
        [(NOON, 4), (NOON + dt.timedelta(minutes=15), None), (NOON + dt.timedelta(minutes=45), 2)], NOON, hour, ""
    )
    assert drawn.count("<polyline") == 2
    assert 'points="0,2 40,2"' in drawn
    assert 'points="120,18 160,18"' in drawn


def test_the_highest_value_is_written_beside_the_line():
    chart = lag_chart(group(cursor(lag=5)), [at(0, 1200)], NOON, NOON + dt.timedelta(minutes=30))
    assert ">1,200</small>" in chart
    assert "5 events now, 1,200 at most" in chart
    assert chart.count("<polyline") == 2, "since then no worker has seen it change"
