"""What is wrong where a group's handler fails."""

import datetime as dt
from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .facts import GroupStatus, RecentFailures, Stop, SystemStatus
from .problem import Problem
from .words import at_least, class_name, duration, enumerated, events, number

FAILING_SHARE = 0.9
"""Of the newest events: a handler that fails on so many fails on everything, and trying again will not help."""

FAILING_TRANSACTIONS = 3
"""A single transaction may have many events, and fails as one."""

FAILING_EVENTS = 5


def problem_of(
    group: GroupStatus, code: str, text: str, since: dt.datetime | None, offset: int | None = None, **values: object
) -> Problem:
    """A problem of a group; its text names the group and the topic."""
    return Problem(
        code=code,
        text=text % {"group": group.group, "topic": group.topic, **values},
        since=since,
        topic=group.topic,
        group=group.group,
        offset=offset,
    )


def problems_of_failures(status: SystemStatus, group: GroupStatus) -> Iterator[Problem]:
    is_active = group.status == "ACTIVE"
    if is_active and group.recent_failures and _fails_on_everything(group.recent_failures):
        yield _failing(status, group, group.recent_failures)
    if is_active and group.stop:
        yield _stopped(status, group, group.stop)
    elif group.dead:
        yield _dead_letters(status, group)


def _fails_on_everything(recent: RecentFailures) -> bool:
    return (
        recent.newest_failed >= max(FAILING_EVENTS, FAILING_SHARE * recent.newest)
        and recent.transactions >= FAILING_TRANSACTIONS
    )


def _failing(status: SystemStatus, group: GroupStatus, recent: RecentFailures) -> Problem:
    if recent.in_a_row >= recent.newest_failed:
        text = _("%(group)s (%(topic)s) has been failing for %(age)s, on all of its last %(failed)s: %(exception)s.")
        failed = recent.in_a_row
    else:
        text = _(
            "%(group)s (%(topic)s) has been failing for %(age)s, on %(failed)s of its last %(newest)s: %(exception)s."
        )
        failed = recent.newest_failed
    return problem_of(
        group,
        "failing",
        text,
        recent.since,
        age=duration(status.seconds_since(recent.since)),
        failed=events(failed) if failed == recent.in_a_row else number(failed),
        newest=events(recent.newest),
        exception=class_name(recent.exception),
    )


def _stopped(status: SystemStatus, group: GroupStatus, stop: Stop) -> Problem:
    """With on_failure="stop" all that is behind the failed event waits for it: the failed one is what to look at."""
    if stop.until is None:
        text = ngettext(
            "%(group)s (%(topic)s) has stopped in partition %(partitions)s behind failed event %(at)s (%(exception)s): "
            "replay or discard it.",
            "%(group)s (%(topic)s) has stopped in partitions %(partitions)s behind failed events, the first one %(at)s "
            "(%(exception)s): replay or discard them.",
            len(stop.partitions),
        )
    else:
        text = ngettext(
            "%(group)s (%(topic)s) waits in partition %(partitions)s for the next attempt at failed event %(at)s "
            "(%(exception)s), in %(wait)s.",
            "%(group)s (%(topic)s) waits in partitions %(partitions)s for the next attempt at failed events, the first "
            "one %(at)s (%(exception)s), in %(wait)s.",
            len(stop.partitions),
        )
    return problem_of(
        group,
        "stopped" if stop.until is None else "waits-for-retry",
        text,
        stop.since,
        stop.offset,
        partitions=enumerated(stop.partitions),
        at=number(stop.offset),
        exception=class_name(stop.exception),
        wait=duration((stop.until - status.taken_at).total_seconds()) if stop.until else "",
    )


def _dead_letters(status: SystemStatus, group: GroupStatus) -> Problem:
    text = ngettext(
        "%(dead)s dead letter in %(group)s (%(topic)s)%(facts)s: replay or discard it.",
        "%(dead)s dead letters in %(group)s (%(topic)s)%(facts)s: replay or discard them.",
        group.dead,
    )
    if group.parked:
        text = ngettext(
            "%(dead)s dead letter in %(group)s (%(topic)s)%(facts)s, with %(parked)s parked behind it: "
            "replay or discard it.",
            "%(dead)s dead letters in %(group)s (%(topic)s)%(facts)s, with %(parked)s parked behind "
            "them: replay or discard them.",
            group.dead,
        )
    bounded = group.letters_bounded
    return problem_of(
        group,
        "dead-letters",
        text,
        group.failed_since,
        dead=at_least(number(group.dead), bounded),
        parked=at_least(events(group.parked), bounded),
        facts=_facts_of_letters(status, group),
    )


def _facts_of_letters(status: SystemStatus, group: GroupStatus) -> str:
    """Which exception most of them have, and how new the newest is."""
    if not group.exception:
        return ""
    if group.with_exception == group.dead:
        text = _(", %(exception)s") if group.dead == 1 else _(", all %(exception)s")
    else:
        text = _(", %(n)s of them %(exception)s")
    if group.failed_last and group.dead > 1:
        text += _(", the newest %(age)s old")
    return text % {
        "n": number(group.with_exception),
        "exception": class_name(group.exception),
        "age": duration(status.seconds_since(group.failed_last)),
    }
