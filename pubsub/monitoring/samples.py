"""Samples of topics and groups, for charts and rates.

One is written only where something has changed: each value holds until the next sample.
"""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connections, transaction

from pubsub.db.sql import load
from pubsub.db.transactions import run_uncompiled

AT_LEAST = dt.timedelta(seconds=25)
"""The least time between two samples of a topic or group: a little less than the period of maintenance."""

KEPT = dt.timedelta(days=2)

PRUNED_AT_ONCE = 5000


@dataclass(frozen=True, kw_only=True)
class Point:
    """What one sample says."""

    at: dt.datetime
    tip: int
    lag: int
    behind_s: float
    after_gap: bool = False
    """No worker was there before it: when things came to stand like this is not known."""


def take_samples(using: str, *, at_least: dt.timedelta | None = None) -> int:
    """Take samples where something has changed since the last ones, and these are old enough. Returns how many."""
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SET LOCAL jit = off")  # it looks expensive, and reads little
        cursor.execute(
            load("monitoring/take_samples"),
            {"at_least_s": (AT_LEAST if at_least is None else at_least).total_seconds()},
        )
        return int(cursor.rowcount)


def prune_samples(using: str) -> int:
    """Remove samples that are too old for any chart. Returns how many."""
    pruned, last = 0, PRUNED_AT_ONCE
    with connections[using].cursor() as cursor:
        while last == PRUNED_AT_ONCE:
            cursor.execute(load("monitoring/prune_samples"), {"limit": PRUNED_AT_ONCE, "older_s": KEPT.total_seconds()})
            last = int(cursor.rowcount)
            pruned += last
    return pruned


def series(using: str, since: dt.datetime, wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], list[Point]]:
    """The samples since a time, in order, by topic id and group; a topic's own are under the group "".

    The first one of each series may be older: it has the values at that time.

    >>> series("default", dt.datetime.now(dt.UTC), [(1, "")])
    {}
    """
    found: dict[tuple[int, str], list[Point]] = {}
    keys = list(wanted)
    parameters = {
        "since": since,
        "topic_ids": [topic_id for topic_id, _group in keys],
        "groups": [group for _topic_id, group in keys],
    }
    _, rows = run_uncompiled(using, load("monitoring/sample_series"), parameters)
    for topic_id, group, at, tip, lag, behind_s, after_gap in rows:
        point = Point(at=at, tip=tip, lag=lag, behind_s=behind_s, after_gap=after_gap)
        found.setdefault((topic_id, group), []).append(point)
    return found
