"""What is wrong with a group on a topic."""

from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .facts import GroupStatus, PartitionStatus, SystemStatus
from .problem import Problem
from .problems_of_calls import problems_of_calls
from .problems_of_failures import problem_of, problems_of_failures
from .words import duration, enumerated, events, number

NOT_MOVING_S = 60
BEHIND_S = 300
GROWING_S = 30
MANY = 100
SKEWED_S = 60
SKEWED_SHARE = 0.9


def problems_of_group(status: SystemStatus, group: GroupStatus) -> Iterator[Problem]:
    if group.missed:
        lost = sum(int(last) - int(first) + 1 for first, last in group.missed.values())
        yield problem_of(
            group,
            "missed",
            _("%(group)s (%(topic)s) missed up to %(lost)s: retention dropped them before they were read."),
            group.status_changed_at,
            lost=events(lost),
        )
    yield from problems_of_calls(status, group)
    if group.status == "DEAD":
        yield _of_dead_group(status, group)
    elif group.status == "PAUSED":
        yield problem_of(
            group,
            "paused",
            ngettext(
                "%(group)s (%(topic)s) is paused; %(lag)s is waiting.",
                "%(group)s (%(topic)s) is paused; %(lag)s are waiting.",
                group.lag,
            )
            if group.lag
            else _("%(group)s (%(topic)s) is paused."),
            group.status_changed_at,
            lag=events(group.lag),
        )
    elif group.status == "ACTIVE":
        yield from _of_active_group(status, group)
    yield from problems_of_failures(status, group)


def _of_dead_group(status: SystemStatus, group: GroupStatus) -> Problem:
    text = _(
        "%(group)s (%(topic)s) was given up: no heartbeat for %(silence)s. Events that it has not read may be dropped."
    )
    if group.heard_at is None:
        text = _("%(group)s (%(topic)s) was given up: it has no members. Events that it has not read may be dropped.")
    silence = duration(status.seconds_since(group.heard_at))
    return problem_of(group, "dead", text, group.status_changed_at, silence=silence)


def _of_active_group(status: SystemStatus, group: GroupStatus) -> Iterator[Problem]:
    if group.waits_for:
        return  # what hangs is to blame
    stopped = group.stop.partitions if group.stop else ()
    hanging = [call.partition for call in group.calls if call.hangs]
    waiting = [it for it in group.partitions if it.readable and it.partition not in (*stopped, *hanging)]
    behind_s = max((partition.behind_s for partition in waiting), default=0.0)
    stuck = [
        partition
        for partition in waiting
        if partition.behind_s > NOT_MOVING_S and status.seconds_since(partition.moved_at) > NOT_MOVING_S
    ]
    lag, behind = events(group.lag), duration(behind_s)
    if not group.members and behind_s > NOT_MOVING_S:
        text = ngettext(
            "No worker is running for %(group)s (%(topic)s). %(lag)s has been waiting for %(behind)s.",
            "No worker is running for %(group)s (%(topic)s). %(lag)s are waiting, the oldest for %(behind)s.",
            group.lag,
        )
        if not group.has_handler:
            text = ngettext(
                "No worker is running for %(group)s (%(topic)s), and no handler is declared for it here. %(lag)s has "
                "been waiting for %(behind)s.",
                "No worker is running for %(group)s (%(topic)s), and no handler is declared for it here. %(lag)s are "
                "waiting, the oldest for %(behind)s.",
                group.lag,
            )
        code = "no-members" if group.has_handler else "no-handler"
        yield problem_of(group, code, text, group.waiting_since, lag=lag, behind=behind)
    elif stuck:
        oldest = max(stuck, key=lambda partition: partition.behind_s)
        text = ngettext(
            "%(group)s (%(topic)s) has made no progress in partition %(partitions)s for %(still)s; the next event "
            "there is at offset %(at)s.",
            "%(group)s (%(topic)s) has made no progress in partitions %(partitions)s for up to %(still)s; the oldest "
            "event is at offset %(at)s.",
            len(stuck),
        )
        yield problem_of(
            group,
            "not-moving",
            text,
            max(oldest.moved_at, oldest.waiting_since or oldest.moved_at),
            oldest.next_offset,
            partitions=enumerated([partition.partition for partition in stuck]),
            still=duration(min(oldest.behind_s, status.seconds_since(oldest.moved_at))),
            at=number(oldest.next_offset),
        )
    else:
        if problem := _falling_behind(group, behind_s, lag):
            yield problem
        if behind_s > SKEWED_S and (problem := _skewed(group, waiting)):
            yield problem


def _falling_behind(group: GroupStatus, behind_s: float, lag: str) -> Problem | None:
    """By a long wait; or, much earlier, by a lag that grows."""
    grown = group.lag - (group.lag if group.lag_before is None else group.lag_before)
    if behind_s > BEHIND_S:
        text = ngettext(
            "%(group)s (%(topic)s) is falling behind: %(lag)s has been waiting for %(behind)s.",
            "%(group)s (%(topic)s) is falling behind: %(lag)s are waiting, the oldest for %(behind)s.",
            group.lag,
        )
    elif behind_s > GROWING_S and grown >= MANY and 2 * grown >= group.lag:
        text = _(
            "%(group)s (%(topic)s) is falling behind: %(lag)s are waiting, %(grown)s more than 5 min ago, and the "
            "oldest for %(behind)s."
        )
    else:
        return None
    return problem_of(
        group, "behind", text, group.waiting_since, behind=duration(behind_s), lag=lag, grown=number(grown)
    )


def _skewed(group: GroupStatus, waiting: list[PartitionStatus]) -> Problem | None:
    """One partition is worked on by one worker: another one does not help where most of the lag is in one."""
    most = max(waiting, key=lambda partition: partition.readable)
    if len(group.partitions) < 2 or group.readable < MANY or most.readable < SKEWED_SHARE * group.readable:
        return None
    text = _(
        "%(most)s of the %(lag)s that wait for %(group)s (%(topic)s) are in partition %(partition)s, and more workers "
        "do not help: a key has too many events, or some of them take long."
    )
    return problem_of(
        group,
        "skewed",
        text,
        most.waiting_since,
        most.next_offset,
        most=number(most.readable),
        lag=events(group.readable),
        partition=most.partition,
    )
