"""What is wrong where a handler does not come back: the call that hangs is named, and not those who wait for it."""

from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .facts import CallInHand, GroupStatus, SystemStatus
from .problem import Problem
from .words import duration, number


def problems_of_calls(status: SystemStatus, group: GroupStatus) -> Iterator[Problem]:
    for call in group.calls:
        if call.hangs:
            yield _hanging(status, call)


def _hanging(status: SystemStatus, call: CallInHand) -> Problem:
    others = {it.group for it in status.groups if call.worker_id in it.waits_for} - {call.group}
    text = _(
        "%(group)s (%(topic)s) has been handling offset %(at)s for %(age)s in worker %(worker)s%(session)s%(waiting)s."
    )
    over = _("Its time is over, and it has not ended.") if call.is_overdue else ""
    waiting = ngettext(
        "; %(others)s other group waits for it", "; %(others)s other groups wait for it", len(others)
    ) % {"others": number(len(others))}
    values = {
        "group": call.group,
        "topic": call.topic,
        "at": number(call.offset),
        "age": duration(call.seconds),
        "worker": call.worker_id,
        "session": _(" (session %(pid)s)") % {"pid": call.session_pid} if call.session_pid else "",
        "waiting": waiting if others else "",
    }
    return Problem(
        code="hanging",
        text=f"{text % values} {over}".rstrip(),
        since=call.since,
        topic=call.topic,
        group=call.group,
        offset=call.offset,
        worker=call.worker_id,
    )
