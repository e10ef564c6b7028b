"""Problems in plain sentences, the worst first: for the admin's overview and for `pubsub_status`.

>>> from pubsub.monitoring.status import status
>>> find_problems(status("default"))
[]
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .status import XIDS_LIMIT, Blocker, GroupStatus, SystemStatus

STUCK, WARNING, NOTE = "stuck", "warning", "note"
"""It does not resolve itself; it may come to that; it was asked for."""

_ORDER = (STUCK, WARNING, NOTE)

UNNUMBERED_S = 10
"""While a consumer runs, a published message has its offset within milliseconds."""

DELAYED_LATE_S = 30
NOT_MOVING_S = 60
BEHIND_S = 300
LONG_TRANSACTION_S = 300
WAL_KEPT = 1024**3


@dataclass(frozen=True, kw_only=True)
class Problem:
    severity: str
    code: str
    """Which kind of problem it is, for programs that know how to solve it."""
    text: str
    since: dt.datetime | None = None
    topic: str = ""
    group: str = ""
    offset: int | None = None
    pid: int | None = None


def find_problems(status: SystemStatus) -> list[Problem]:
    """All problems, the worst first; among equals, the oldest first."""
    found = [
        *_of_sequencer(status),
        *(problem for group in status.groups for problem in _of_group(status, group)),
        *_of_topics(status),
        *(problem for blocker in status.blockers for problem in _of_blocker(blocker)),
    ]
    return sorted(found, key=lambda problem: (_ORDER.index(problem.severity), problem.since or status.taken_at))


def duration(seconds: float) -> str:
    """A length of time, for people.

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
        text = _("%(n)s h") % {"n": hours}
        return text + " " + _("%(n)s min") % {"n": minutes} if minutes and hours < 24 else text
    return ngettext("%(n)s day", "%(n)s days", whole // 86400) % {"n": _number(whole // 86400)}


def _number(value: int) -> str:
    return number_format(value, force_grouping=True)


def _events(count: int) -> str:
    return ngettext("%(n)s event", "%(n)s events", count) % {"n": _number(count)}


def _at_least(amount: str, bounded: bool) -> str:
    return _("at least %(amount)s") % {"amount": amount} if bounded else amount


def _of_sequencer(status: SystemStatus) -> Iterator[Problem]:
    sequencer = status.sequencer
    if sequencer.is_foreign:
        yield Problem(
            severity=STUCK,
            code="foreign",
            text=_(
                "This database was restored from a copy or moved to another server, and nothing is numbered until a "
                "consumer runs: the first one repairs this by itself, while publishers wait."
            ),
        )
        return
    waiting_s = status.seconds_since(sequencer.waiting_since)
    if waiting_s > UNNUMBERED_S:
        by = next((blocker for blocker in status.blockers if blocker.blocks_sequencer), None)
        if by:
            text = _(
                "Nothing published in the last %(age)s has been numbered: session %(who)s has locked the sequencer’s "
                "row."
            )
        elif sequencer.leader_pid is None:
            text = _("Nothing published in the last %(age)s has been numbered: no consumer is running.")
        else:
            text = _(
                "Nothing published in the last %(age)s has been numbered, though session %(who)s runs the sequencer."
            )
        who = by.pid or by.name if by else sequencer.leader_pid
        yield Problem(
            severity=STUCK,
            code="sequencer",
            text=text % {"age": duration(waiting_s), "who": who},
            since=sequencer.waiting_since,
            pid=by.pid if by else sequencer.leader_pid,
        )
    if count := sequencer.xids_to_come:
        yield Problem(
            severity=WARNING,
            code="xids-to-come",
            text=ngettext(
                "%(events)s waits for a transaction id that is still to come here, as copies from another server have.",
                "%(events)s wait for transaction ids that are still to come here, as copies from another server have.",
                count,
            )
            % {"events": _at_least(_events(count), count >= XIDS_LIMIT)},
        )
    if sequencer.overflowing:
        yield Problem(
            severity=WARNING,
            code="default-segment",
            text=_(
                "%(tables)s: rows in the default segment, which retention cannot drop. run_cleanup makes a segment of "
                "them, unless an id lies far ahead of the others: delete that row."
            )
            % {"tables": ", ".join(sequencer.overflowing)},
        )
    overdue_s = status.seconds_since(sequencer.overdue_since)
    if overdue_s > DELAYED_LATE_S:
        yield Problem(
            severity=STUCK,
            code="delayed",
            text=_("A delayed event has been due for %(age)s: no consumer is running, or it cannot keep up.")
            % {"age": duration(overdue_s)},
            since=sequencer.overdue_since,
        )


def _of_group(status: SystemStatus, group: GroupStatus) -> Iterator[Problem]:
    if group.missed:
        lost = sum(int(last) - int(first) + 1 for first, last in group.missed.values())
        yield _problem(
            group,
            WARNING,
            "missed",
            _("%(group)s (%(topic)s) missed up to %(lost)s: retention dropped them before they were read."),
            group.status_changed_at,
            lost=_events(lost),
        )
    if group.status == "DEAD":
        yield _of_dead_group(status, group)
    elif group.status == "PAUSED":
        yield _problem(
            group,
            NOTE,
            "paused",
            ngettext(
                "%(group)s (%(topic)s) is paused; %(lag)s is waiting.",
                "%(group)s (%(topic)s) is paused; %(lag)s are waiting.",
                group.lag,
            )
            if group.lag
            else _("%(group)s (%(topic)s) is paused."),
            group.status_changed_at,
            lag=_events(group.lag),
        )
    elif group.status == "ACTIVE":
        yield from _of_active_group(status, group)
    if group.dead:
        yield _of_dead_letters(group)


def _of_dead_group(status: SystemStatus, group: GroupStatus) -> Problem:
    text = _(
        "%(group)s (%(topic)s) was given up: no heartbeat for %(silence)s. Events that it has not read may be dropped."
    )
    if group.heard_at is None:
        text = _("%(group)s (%(topic)s) was given up: it has no members. Events that it has not read may be dropped.")
    silence = duration(status.seconds_since(group.heard_at))
    return _problem(group, STUCK, "dead", text, group.status_changed_at, silence=silence)


def _of_dead_letters(group: GroupStatus) -> Problem:
    text = ngettext(
        "%(dead)s dead letter in %(group)s (%(topic)s): replay or discard it.",
        "%(dead)s dead letters in %(group)s (%(topic)s): replay or discard them.",
        group.dead,
    )
    if group.parked:
        text = ngettext(
            "%(dead)s dead letter in %(group)s (%(topic)s), with %(parked)s of the same key parked behind it: "
            "replay or discard it.",
            "%(dead)s dead letters in %(group)s (%(topic)s), with %(parked)s of the same keys parked behind them: "
            "replay or discard them.",
            group.dead,
        )
    bounded = group.letters_bounded
    dead = _at_least(_number(group.dead), bounded)
    parked = _at_least(_events(group.parked), bounded)
    return _problem(group, WARNING, "dead-letters", text, group.failed_since, dead=dead, parked=parked)


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


def _of_active_group(status: SystemStatus, group: GroupStatus) -> Iterator[Problem]:
    behind = duration(group.behind_s)
    stuck = [
        partition
        for partition in group.partitions
        if partition.behind_s > NOT_MOVING_S and status.seconds_since(partition.moved_at) > NOT_MOVING_S
    ]
    if group.lag and not group.members and group.behind_s > NOT_MOVING_S:
        text = ngettext(
            "No worker is running for %(group)s (%(topic)s). %(lag)s has been waiting for %(behind)s.",
            "No worker is running for %(group)s (%(topic)s). %(lag)s are waiting, the oldest for %(behind)s.",
            group.lag,
        )
        yield _problem(group, STUCK, "no-members", text, group.waiting_since, lag=_events(group.lag), behind=behind)
    elif stuck:
        oldest = max(stuck, key=lambda partition: partition.behind_s)
        text = ngettext(
            "%(group)s (%(topic)s) has made no progress in partition %(partitions)s for %(still)s; the next event "
            "there is at offset %(at)s.",
            "%(group)s (%(topic)s) has made no progress in partitions %(partitions)s for up to %(still)s; the oldest "
            "event is at offset %(at)s.",
            len(stuck),
        )
        yield _problem(
            group,
            STUCK,
            "not-moving",
            text,
            max(oldest.moved_at, oldest.waiting_since or oldest.moved_at),
            oldest.next_offset,
            partitions=_enumerated([partition.partition for partition in stuck]),
            still=duration(min(oldest.behind_s, status.seconds_since(oldest.moved_at))),
            at=_number(oldest.next_offset),
        )
    elif group.behind_s > BEHIND_S:
        text = ngettext(
            "%(group)s (%(topic)s) is falling behind: %(lag)s has been waiting for %(behind)s.",
            "%(group)s (%(topic)s) is falling behind: %(lag)s are waiting, the oldest for %(behind)s.",
            group.lag,
        )
        yield _problem(group, WARNING, "behind", text, group.waiting_since, behind=behind, lag=_events(group.lag))


def _enumerated(partitions: list[int], at_most: int = 5) -> str:
    shown = ", ".join(map(str, partitions[:at_most]))
    return shown if len(partitions) <= at_most else f"{shown} …"


def _of_topics(status: SystemStatus) -> Iterator[Problem]:
    read = {group.topic for group in status.groups if group.status in ("ACTIVE", "PAUSED")}
    for topic in status.topics:
        if topic.zero_subscribers == "refuse" and topic.name not in read:
            yield Problem(
                severity=STUCK,
                code="refused",
                topic=topic.name,
                text=_("Publishing to %(topic)s fails: it has no subscription, and refuses events without one.")
                % {"topic": topic.name},
            )


def _of_blocker(blocker: Blocker) -> Iterator[Problem]:
    if blocker.kind == "slot":
        if (blocker.bytes or 0) > WAL_KEPT:
            yield Problem(
                severity=WARNING,
                code="slot",
                text=_("Replication slot %(name)s is unused, and keeps %(size)s GB of WAL on disk.")
                % {"name": blocker.name, "size": number_format((blocker.bytes or 0) / WAL_KEPT, 1)},
            )
        return
    if (blocker.age_s or 0) <= LONG_TRANSACTION_S:
        return
    if blocker.kind == "prepared":
        text = _("Prepared transaction %(name)s has been open for %(age)s: commit it or roll it back.")
    elif blocker.blocks_retention:
        text = _(
            "Session %(pid)s (%(who)s) has kept a transaction open for %(age)s; old partitions cannot be dropped "
            "until it ends."
        )
    else:
        text = _(
            "Session %(pid)s (%(who)s) has kept a transaction open for %(age)s; VACUUM cannot remove anything newer "
            "until it ends."
        )
    values = {
        "pid": blocker.pid,
        "who": ", ".join(filter(None, (blocker.name, blocker.username))),
        "name": blocker.name,
        "age": duration(blocker.age_s or 0),
    }
    yield Problem(severity=WARNING, code="long-transaction", text=text % values, since=blocker.since, pid=blocker.pid)
