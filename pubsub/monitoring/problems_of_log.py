"""What is wrong with the log: its sequencer, its topics, and sessions that hold it up."""

from collections.abc import Iterator

from django.template.defaultfilters import filesizeformat
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .facts import XIDS_LIMIT, Blocker, SystemStatus
from .problem import Problem
from .status import NUMBERING_LATE
from .words import at_least, duration, events

LEADER_SILENT_S = 30
"""A leader asks at least once per wait period."""

DELAYED_LATE_S = 30
LONG_TRANSACTION_S = 300
WAL_KEPT = 1024**3
UNREAD_S = 24 * 3600
HELD_S = 300


def problems_of_sequencer(status: SystemStatus) -> Iterator[Problem]:
    sequencer = status.sequencer
    if sequencer.is_foreign:
        yield Problem(
            code="foreign",
            text=_(
                "This database was restored from a copy or moved to another server, and nothing is numbered until a "
                "consumer runs: the first one repairs this by itself, while publishers wait."
            ),
        )
        return
    waiting_s = status.seconds_since(sequencer.waiting_since)
    if waiting_s > NUMBERING_LATE.total_seconds():
        yield _of_numbering(status, duration(waiting_s))
    if count := sequencer.xids_to_come:
        yield Problem(
            code="xids-to-come",
            text=ngettext(
                "%(events)s waits for a transaction id that is still to come here, as copies from another server have.",
                "%(events)s wait for transaction ids that are still to come here, as copies from another server have.",
                count,
            )
            % {"events": at_least(events(count), count >= XIDS_LIMIT)},
        )
    if sequencer.overflowing:
        yield Problem(
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
            code="delayed",
            text=_("A delayed event has been due for %(age)s: no consumer is running, or it cannot keep up.")
            % {"age": duration(overdue_s)},
            since=sequencer.overdue_since,
        )


def _of_numbering(status: SystemStatus, age: str) -> Problem:
    """Names the session that has to end, if that is the cure; never one of ours that is at work."""
    sequencer = status.sequencer
    by = sequencer.blocked_by or next((it for it in status.blockers if it.blocks_sequencer and it.pid is None), None)
    pid = None
    if by:
        code, pid = "sequencer-blocked", by.pid
        text = _(
            "Nothing published in the last %(age)s has been numbered: session %(pid)s (%(who)s) blocks the sequencer "
            "with a transaction that has been open for %(open)s."
        )
        if by.kind == "prepared":
            text = _(
                "Nothing published in the last %(age)s has been numbered: prepared transaction %(name)s blocks the "
                "sequencer. Commit it or roll it back."
            )
    elif sequencer.leader_pid is None:
        code = "sequencer"
        text = _("Nothing published in the last %(age)s has been numbered: no consumer is running.")
    elif status.seconds_since(sequencer.leader_seen_at) > LEADER_SILENT_S:
        code, pid = "sequencer-silent", sequencer.leader_pid
        text = _(
            "Nothing published in the last %(age)s has been numbered: session %(leader)s (%(at)s) should do that, and "
            "has been silent for %(silence)s. If it ends, another process takes over."
        )
    else:
        code = "sequencer-slow"
        text = _(
            "Nothing published in the last %(age)s has been numbered, though session %(leader)s (%(at)s) is at work."
        )
    values = {
        "age": age,
        "pid": by.pid if by else "",
        "name": by.name if by else "",
        "who": by.who if by else "",
        "open": duration(by.age_s or 0) if by else "",
        "leader": sequencer.leader_pid,
        "at": sequencer.leader_client or _("local"),
        "silence": duration(status.seconds_since(sequencer.leader_seen_at)),
    }
    return Problem(code=code, text=text % values, since=sequencer.waiting_since, pid=pid)


def problems_of_topics(status: SystemStatus) -> Iterator[Problem]:
    read = {group.topic for group in status.groups if group.status in ("ACTIVE", "PAUSED")}
    known = {group.topic for group in status.groups if group.status != "CANCELLED"}
    for topic in status.topics:
        is_used = topic.published_at is not None and status.seconds_since(topic.published_at) < UNREAD_S
        if topic.name not in known and topic.zero_subscribers == "keep" and is_used:
            text = _("No group reads %(topic)s: what is published there is kept for the retention, and no longer.")
            yield Problem(code="unread", topic=topic.name, text=text % {"topic": topic.name})
        if topic.zero_subscribers == "refuse" and topic.name not in read:
            yield Problem(
                code="refused",
                topic=topic.name,
                text=_("Publishing to %(topic)s fails: it has no subscription, and refuses events without one.")
                % {"topic": topic.name},
            )


def problems_of_disk(status: SystemStatus) -> Iterator[Problem]:
    for held in status.held:
        age_s = status.seconds_since(held.since)
        if age_s <= HELD_S:
            continue
        text = _("%(group)s (%(topic)s) keeps %(size)s on disk that expired %(age)s ago: it has not read all of it.")
        values = {
            "group": held.group,
            "topic": held.topic,
            "size": filesizeformat(held.bytes).replace("\u00a0", " "),
            "age": duration(age_s),
        }
        yield Problem(code="disk", topic=held.topic, group=held.group, text=text % values, since=held.since)


def problems_of_blocker(blocker: Blocker) -> Iterator[Problem]:
    if blocker.kind == "slot":
        if (blocker.bytes or 0) > WAL_KEPT:
            yield Problem(
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
        "who": blocker.who,
        "name": blocker.name,
        "age": duration(blocker.age_s or 0),
    }
    yield Problem(code="long-transaction", text=text % values, since=blocker.since, pid=blocker.pid)
