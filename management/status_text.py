"""The state of the whole system as text for terminals, and as plain data."""

import dataclasses
import textwrap
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.utils.translation import gettext as _

from pubsub.monitoring.problems import NOTE, STUCK, WARNING, Problem, by_cause, find_problems
from pubsub.monitoring.status import GroupStatus, SystemStatus, TopicStatus
from pubsub.monitoring.words import enumerated, number
from pubsub.topic_options import RENAMED

from .remedies import remedy
from .tables import bytes_of, cut, seconds, table

ROWS = 40
"""Of a table; what is wrong comes first."""

WIDE = 110
"""Columns from which on there is room for more than the essentials."""


def as_data(
    now: SystemStatus, topic: str | None = None, group: str | None = None, using: str = DEFAULT_DB_ALIAS
) -> dict[str, Any]:
    """What `--format json` prints. Durations are seconds."""
    return {
        "taken_at": now.taken_at,
        "topics": [topic_as_data(found) for found in _topics(now, topic)],
        "groups": [group_as_data(found) for found in _groups(now, topic, group)],
        "sequencer": dataclasses.asdict(now.sequencer),
        "blockers": [vars(blocker) for blocker in now.blockers],
        "held": [vars(held) for held in now.held],
        "problems": [
            {"severity": found.severity, **vars(found), "remedy": remedy(found, using)}
            for found in problems_of(now, topic, group)
        ],
    }


def topic_as_data(topic: TopicStatus) -> dict[str, Any]:
    """A topic as `--format json` prints it."""
    data = {**vars(topic), "retention": topic.retention.total_seconds()}
    return {RENAMED.get(name, name): value for name, value in data.items()}


def group_as_data(group: GroupStatus) -> dict[str, Any]:
    """A group as `--format json` prints it."""
    return {
        **dataclasses.asdict(group),
        "lag": group.lag,
        "readable": group.readable,
        "behind_s": round(group.behind_s, 3),
        "waiting_since": group.waiting_since,
    }


def as_text(
    now: SystemStatus,
    width: int,
    *,
    topic: str | None = None,
    group: str | None = None,
    every: bool = False,
    using: str = DEFAULT_DB_ALIAS,
) -> str:
    """What `--format text` prints: no line is wider than the terminal, except for commands to copy."""
    problems = problems_of(now, topic, group)
    wrong = {(it.topic, it.group) for it in problems}
    groups = sorted(_groups(now, topic, group), key=lambda it: (it.topic, it.group) not in wrong)
    parts = [
        [cut(f"{now.taken_at:%Y-%m-%d %H:%M:%S %Z} – {_sequencer(now)}", width)],
        _problem_lines(problems, width, using),
        _topic_lines(_topics(now, topic)[:ROWS], width) + _left_out(len(_topics(now, topic)), "topics"),
        _group_lines(groups[:ROWS], width) + _left_out(len(groups), "groups"),
        _partition_lines(groups[:ROWS], width, every),
        [
            cut(f"{found.group} on {found.topic} lost unread, by partition: {_ranges(found.missed)}", width)
            for found in groups
            if found.missed
        ],
        _blocker_lines(now, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _left_out(count: int, what: str) -> list[str]:
    return [f"… and {count - ROWS:,} more {what}: --topic, --group or --format=json"] if count > ROWS else []


def _topics(now: SystemStatus, topic: str | None) -> list[TopicStatus]:
    return [found for found in now.topics if topic in (None, found.name)]


def _groups(now: SystemStatus, topic: str | None, group: str | None) -> list[GroupStatus]:
    return [found for found in now.groups if topic in (None, found.topic) and group in (None, found.group)]


def problems_of(now: SystemStatus, topic: str | None, group: str | None) -> list[Problem]:
    """Of a topic or a group, and what concerns all of them."""
    return [
        found
        for found in find_problems(now)
        if (topic is None or found.topic in ("", topic)) and (group is None or found.group in ("", group))
    ]


def _problem_lines(problems: list[Problem], width: int, using: str) -> list[str]:
    """Problems come first, in whole sentences, each with what to type."""
    names = {STUCK: _("STUCK"), WARNING: _("WARNING"), NOTE: _("NOTE")}
    lines = []
    for cause in by_cause(problems):
        problem = cause.problem
        lines += textwrap.wrap(f"{names[problem.severity]}  {problem.text}", width, subsequent_indent="    ")
        if command := remedy(problem, using):
            lines.append(f"    $ {command}" if command.startswith("manage.py") else f"    {command};")
        if cause.alike:
            alike = enumerated([" ".join(filter(None, (it.group, it.topic))) or it.text for it in cause.alike], 10)
            more = _("and %(n)s more like it: %(names)s") % {"n": number(len(cause.alike)), "names": alike}
            lines += textwrap.wrap(more, width, initial_indent="    ", subsequent_indent="    ")
    return lines


def _sequencer(now: SystemStatus) -> str:
    sequencer = now.sequencer
    said = f"log of {bytes_of(sequencer.bytes)}, "
    if sequencer.is_foreign:
        said += "RESTORED FROM ANOTHER CLUSTER, "
    if sequencer.waiting_since:
        said += f"events wait for their offsets for {seconds(now.seconds_since(sequencer.waiting_since))}, "
    if sequencer.overdue_since:
        said += f"delayed events are overdue for {seconds(now.seconds_since(sequencer.overdue_since))}, "
    return said + (f"numbered by session {sequencer.leader_pid}" if sequencer.leader_pid else "no sequencer")


def topic_cells(topic: TopicStatus) -> list[str]:
    """What every list of topics shows: name, semantics, partitions, tip, events kept, size and rate."""
    return [
        topic.name,
        topic.semantics,
        str(topic.total_partitions),
        f"{topic.tip:,}",
        f"{topic.kept:,}",
        bytes_of(topic.bytes),
        f"{topic.rate:,.1f}",
    ]


def _topic_lines(topics: list[TopicStatus], width: int) -> list[str]:
    headings = ["TOPIC", "KIND", "PARTS>", "TIP>", "KEPT>", "SIZE>", "PER S>"]
    wide = width >= WIDE
    rows = [
        [*topic_cells(topic), *([seconds(topic.retention.total_seconds()), topic.zero_subscribers] if wide else [])]
        for topic in topics
    ]
    return table([*headings, *(["RETENTION>", "NO SUBSCRIBERS"] if wide else [])], rows, width)


def _group_lines(groups: list[GroupStatus], width: int) -> list[str]:
    if not groups:
        return ["No group is subscribed."]
    wide = width >= WIDE
    headings = ["GROUP", "TOPIC", "STATUS", "MEMBERS>", "LAG>", "BEHIND>", "DEAD>", "RETRY>"]
    rows = [
        [
            group.group,
            group.topic,
            group.status,
            f"{group.members}" + (f"+{group.silent}?" if group.silent else ""),
            f"{group.lag:,}",
            seconds(group.behind_s),
            f"{group.dead:,}{'+' * group.letters_bounded}",
            f"{group.retrying:,}",
            *([f"{group.parked:,}", group.delivery, group.status_reason] if wide else []),
        ]
        for group in groups
    ]
    return table([*headings, *(["PARKED>", "DELIVERY", "REASON"] if wide else [])], rows, width)


def _partition_lines(groups: list[GroupStatus], width: int, every: bool) -> list[str]:
    lines = []
    for group in groups:
        waiting = [
            f"{partition.partition}:\u00a0{partition.lag:,}"
            + (f"\u00a0({seconds(partition.behind_s)})".replace(" ", "\u00a0") if partition.lag else "")
            for partition in group.partitions
            if every or partition.lag
        ]
        if waiting:
            lines += textwrap.wrap(
                f"{group.group} on {group.topic}, by partition: " + "  ".join(waiting),
                width,
                subsequent_indent="    ",
                break_long_words=True,
            )
    return [line.replace("\u00a0", " ") for line in lines]


def _ranges(missed: Any) -> str:
    return ", ".join(f"{partition}: {first}–{last}" for partition, (first, last) in sorted(missed.items()))


def _blocker_lines(now: SystemStatus, width: int) -> list[str]:
    lines = []
    for blocker in now.blockers:
        who = f"{blocker.kind} {blocker.who}".strip() + (f", pid {blocker.pid}" if blocker.pid else "")
        since = f", {blocker.state} for {seconds(blocker.age_s)}" if blocker.age_s is not None else f", {blocker.state}"
        parts = {"the sequencer": blocker.blocks_sequencer, "retention": blocker.blocks_retention}
        blocked = [name for name, is_blocked in parts.items() if is_blocked]
        kept = f", keeps {bytes_of(blocker.bytes)} of WAL" if blocker.bytes else ""
        what = f", holds back {' and '.join(blocked)}" if blocked else ""
        lines.append(cut(f"{who}{since}{what}{kept}", width))
        if blocker.query:
            lines.append(cut(f"    {blocker.query}", width) if width > 8 else "")
    return [cut("LONG TRANSACTIONS", width), *lines] if lines else []
