"""What is wrong, in plain sentences, the worst first: for the admin's overview and for `pubsub_status`.

>>> from pubsub.observing.status import status
>>> find_problems(status("default"))
[]
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .status import GroupStatus, Hold, Status

STUCK, WARNING, NOTE = "stuck", "warning", "note"
"""It does not go on by itself; it may turn into that; somebody wanted it so."""

_ORDER = (STUCK, WARNING, NOTE)

NUMBERING_LATE_S = 10
"""A published message has its offset within milliseconds while anybody numbers."""

DELAYED_LATE_S = 30
NOT_MOVING_S = 60
BEHIND_S = 300
HELD_S = 300
WAL_KEPT = 1024**3


@dataclass(frozen=True, kw_only=True)
class Problem:
    severity: str
    code: str
    """What kind it is, for programs: it tells where to fix it."""
    text: str
    since: dt.datetime | None = None
    topic: str = ""
    group: str = ""
    offset: int | None = None
    pid: int | None = None


def find_problems(status: Status) -> list[Problem]:
    """All there is to say, the worst first, and the oldest first within that."""
    found = [
        *_of_numbering(status),
        *(problem for group in status.groups for problem in _of_group(status, group)),
        *_of_topics(status),
        *(problem for hold in status.holds for problem in _of_hold(hold)),
    ]
    return sorted(found, key=lambda problem: (_ORDER.index(problem.severity), problem.since or status.taken_at))


def duration(seconds: float) -> str:
    """A length of time as people say it.

    >>> duration(59.9), duration(150), duration(7260), duration(200_000)
    ('59 s', '2 min', '2 h 1 min', '2 days')
    """
    whole = int(max(0, seconds))
    if whole < 60:
        return _("%(n)s s") % {"n": whole}
    if whole < 3600:
        return _("%(n)s min") % {"n": whole // 60}
    if whole < 48 * 3600:
        hours, minutes = whole // 3600, whole % 3600 // 60
        said = _("%(n)s h") % {"n": hours}
        return said + " " + _("%(n)s min") % {"n": minutes} if minutes and hours < 24 else said
    return ngettext("%(n)s day", "%(n)s days", whole // 86400) % {"n": _number(whole // 86400)}


def _number(value: int) -> str:
    return number_format(value, force_grouping=True)


def _events(count: int, *, at_least: bool = False) -> str:
    said = ngettext("%(n)s event", "%(n)s events", count) % {"n": _number(count)}
    return _("at least %(events)s") % {"events": said} if at_least else said


def _of_numbering(status: Status) -> Iterator[Problem]:
    numbering = status.numbering
    if numbering.is_foreign:
        yield Problem(
            severity=STUCK,
            code="foreign",
            text=_(
                "This database was restored from a copy or moved into another server, and nothing is numbered until a "
                "consumer runs: the first one puts that right by itself, and publishers wait for it meanwhile."
            ),
        )
        return
    waiting_s = status.seconds_since(numbering.waiting_since)
    if waiting_s > NUMBERING_LATE_S:
        by = next((hold for hold in status.holds if hold.holds_numbering), None)
        if by:
            text = _("New messages have got no offsets for %(age)s: session %(who)s has locked the sequencer’s row.")
        elif numbering.leader_pid is None:
            text = _("New messages have got no offsets for %(age)s, and nobody hands them out: no consumer is running.")
        else:
            text = _("New messages have got no offsets for %(age)s, though session %(who)s should hand them out.")
        who = by.pid or by.name if by else numbering.leader_pid
        yield Problem(
            severity=STUCK,
            code="numbering",
            text=text % {"age": duration(waiting_s), "who": who},
            since=numbering.waiting_since,
            pid=by.pid if by else numbering.leader_pid,
        )
    overdue_s = status.seconds_since(numbering.overdue_since)
    if overdue_s > DELAYED_LATE_S:
        yield Problem(
            severity=STUCK,
            code="delayed",
            text=_("A delayed message has been due for %(age)s: no consumer is running, or it cannot keep up.")
            % {"age": duration(overdue_s)},
            since=numbering.overdue_since,
        )


def _of_group(status: Status, group: GroupStatus) -> Iterator[Problem]:
    lag = _events(group.lag)
    if group.missed:
        lost = sum(int(last) - int(first) + 1 for first, last in group.missed.values())
        yield _problem(
            group,
            WARNING,
            "missed",
            _("%(group)s lost up to %(lost)s of %(topic)s unread: they were dropped before it came to them."),
            group.status_changed_at,
            lost=_events(lost),
        )
    if group.status == "DEAD":
        yield _problem(
            group,
            STUCK,
            "dead",
            _("%(group)s on %(topic)s is dead: nobody has been heard of for it, and it keeps no messages any more."),
            group.status_changed_at,
        )
    elif group.status == "PAUSED":
        yield _problem(
            group,
            NOTE,
            "paused",
            ngettext(
                "%(group)s on %(topic)s is paused; %(lag)s waits for it.",
                "%(group)s on %(topic)s is paused; %(lag)s wait for it.",
                group.lag,
            )
            if group.lag
            else _("%(group)s on %(topic)s is paused."),
            group.status_changed_at,
            lag=lag,
        )
    elif group.status == "ACTIVE":
        yield from _of_active_group(status, group, lag)
    if group.dead:
        waiting = _events(group.dead, at_least=group.letters_bounded)
        text = _("%(group)s could not handle %(dead)s of %(topic)s; somebody has to replay or discard them.")
        if group.parked:
            text = _(
                "%(group)s could not handle %(dead)s of %(topic)s, and %(parked)s of the same keys wait behind them; "
                "somebody has to replay or discard them."
            )
        yield _problem(
            group,
            WARNING,
            "dead-letters",
            text,
            group.failed_since,
            dead=waiting,
            parked=_events(group.parked, at_least=group.letters_bounded),
        )


def _problem(
    group: GroupStatus,
    severity: str,
    code: str,
    text: str,
    since: dt.datetime | None,
    offset: int | None = None,
    **values: object,
) -> Problem:
    return Problem(
        severity=severity,
        code=code,
        text=text % {"group": group.group, "topic": group.topic, **values},
        since=since,
        topic=group.topic,
        group=group.group,
        offset=offset,
    )


def _of_active_group(status: Status, group: GroupStatus, lag: str) -> Iterator[Problem]:
    behind = duration(group.behind_s)
    stuck = [
        place
        for place in group.partitions
        if place.behind_s > NOT_MOVING_S and status.seconds_since(place.moved_at) > NOT_MOVING_S
    ]
    if group.lag and not group.members and group.behind_s > NOT_MOVING_S:
        yield _problem(
            group,
            STUCK,
            "no-members",
            _("Nobody works for %(group)s on %(topic)s: %(lag)s not handled, the first one for %(behind)s."),
            group.waiting_since,
            lag=lag,
            behind=behind,
        )
    elif stuck:
        oldest = max(stuck, key=lambda place: place.behind_s)
        text = ngettext(
            "%(group)s is stuck in partition %(partitions)s of %(topic)s for %(still)s, at offset %(at)s.",
            "%(group)s is stuck in partitions %(partitions)s of %(topic)s; longest for %(still)s, at offset %(at)s.",
            len(stuck),
        )
        yield _problem(
            group,
            STUCK,
            "not-moving",
            text,
            max(oldest.moved_at, oldest.waiting_since or oldest.moved_at),
            oldest.next_offset,
            partitions=_enumerated([place.partition for place in stuck]),
            still=duration(min(oldest.behind_s, status.seconds_since(oldest.moved_at))),
            at=_number(oldest.next_offset),
        )
    elif group.behind_s > BEHIND_S:
        yield _problem(
            group,
            WARNING,
            "behind",
            _("%(group)s is %(behind)s behind on %(topic)s, by %(lag)s; it works, but more slowly than is published."),
            group.waiting_since,
            behind=behind,
            lag=lag,
        )


def _enumerated(partitions: list[int], at_most: int = 5) -> str:
    said = ", ".join(map(str, partitions[:at_most]))
    return said if len(partitions) <= at_most else f"{said} …"


def _of_topics(status: Status) -> Iterator[Problem]:
    read = {group.topic for group in status.groups if group.status in ("ACTIVE", "PAUSED")}
    for topic in status.topics:
        if topic.zero_subscribers == "refuse" and topic.name not in read:
            yield Problem(
                severity=STUCK,
                code="refused",
                topic=topic.name,
                text=_("Publishing to %(topic)s is refused: it wants a subscription, and has none.")
                % {"topic": topic.name},
            )


def _of_hold(hold: Hold) -> Iterator[Problem]:
    if hold.kind == "slot":
        if (hold.bytes or 0) > WAL_KEPT:
            yield Problem(
                severity=WARNING,
                code="slot",
                text=_("Nobody reads replication slot %(name)s, which keeps %(size)s GB of WAL on disk.")
                % {"name": hold.name, "size": number_format((hold.bytes or 0) / WAL_KEPT, 1)},
            )
        return
    if (hold.age_s or 0) <= HELD_S:
        return
    values = {"who": hold.pid or hold.name, "name": hold.name, "age": duration(hold.age_s or 0)}
    if hold.kind == "prepared":
        text = _("Prepared transaction %(name)s has been open for %(age)s: commit it or roll it back.")
    elif hold.holds_retention:
        text = _("Session %(who)s has read the log in a transaction that is open for %(age)s: retention waits for it.")
    else:
        text = _("Session %(who)s has had a transaction open for %(age)s: VACUUM can free nothing younger than that.")
    yield Problem(severity=WARNING, code="held", text=text % values, since=hold.since, pid=hold.pid)
