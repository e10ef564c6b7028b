"""How topics and groups come along from minute to minute: samples, for charts and rates.

One is written only where something has changed, so whoever reads them goes on with the last value until the next one.
"""

import datetime as dt
from dataclasses import dataclass

from django.db import connections, transaction

from pubsub.sql import load
from pubsub.transactions import run_uncompiled

AT_LEAST = dt.timedelta(seconds=25)
"""Between two samples of a topic or group; a little less than the housekeeper's period, which is the real one."""

KEPT = dt.timedelta(days=2)

PRUNED_AT_ONCE = 5000


@dataclass(frozen=True, kw_only=True)
class Point:
    at: dt.datetime
    tip: int
    lag: int
    behind_s: float


def take_samples(using: str) -> int:
    """Notes what has changed since the last time. Returns how many samples that are."""
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SET LOCAL jit = off")  # it looks expensive, and reads little
        cursor.execute(load("take_samples"), {"at_least_s": AT_LEAST.total_seconds()})
        return int(cursor.rowcount)


def prune_samples(using: str) -> int:
    """Removes what is too old for any chart. Returns how many samples that were."""
    pruned, last = 0, PRUNED_AT_ONCE
    with connections[using].cursor() as cursor:
        while last == PRUNED_AT_ONCE:
            cursor.execute(load("prune_samples"), {"limit": PRUNED_AT_ONCE, "older_s": KEPT.total_seconds()})
            last = int(cursor.rowcount)
            pruned += last
    return pruned


def courses(using: str, since: dt.datetime) -> dict[tuple[int, str], list[Point]]:
    """The samples since a time, in order, by topic id and group; the topic's own stand under the group "".

    The first one of each may be older: it tells how things stood at that time.

    >>> courses("default", dt.datetime.now(dt.UTC))
    {}
    """
    found: dict[tuple[int, str], list[Point]] = {}
    _, rows = run_uncompiled(using, load("sample_courses"), {"since": since})
    for topic_id, group, at, tip, lag, behind_s in rows:
        found.setdefault((topic_id, group), []).append(Point(at=at, tip=tip, lag=lag, behind_s=behind_s))
    return found
