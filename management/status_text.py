"""The state of everything as text for terminals, and as plain data."""

import dataclasses
import textwrap
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.utils.translation import gettext as _

from pubsub.management.remedies import remedy
from pubsub.management.tables import bytes_of, cut, seconds, table
from pubsub.observing.problems import NOTE, STUCK, WARNING, Problem, find_problems
from pubsub.observing.status import GroupStatus, Status, TopicStatus

WIDE = 110
"""Columns from which on there is room for more than is needed."""


def as_data(
    now: Status, topic: str | None = None, group: str | None = None, using: str = DEFAULT_DB_ALIAS
) -> dict[str, Any]:
    """What `--format json` prints. Durations are seconds."""
    return {
        "taken_at": now.taken_at,
        "topics": [{**vars(found), "retention": found.retention.total_seconds()} for found in _topics(now, topic)],
        "groups": [
            {
                **vars(found),
                "lag": found.lag,
                "behind_s": round(found.behind_s, 3),
                "waiting_since": found.waiting_since,
                "partitions": [vars(partition) for partition in found.partitions],
            }
            for found in _groups(now, topic, group)
        ],
        "numbering": dataclasses.asdict(now.numbering),
        "holds": [vars(hold) for hold in now.holds],
        "problems": [{**vars(found), "remedy": remedy(found, using)} for found in _problems(now, topic, group)],
    }


def as_text(
    now: Status,
    width: int,
    *,
    topic: str | None = None,
    group: str | None = None,
    every: bool = False,
    using: str = DEFAULT_DB_ALIAS,
) -> str:
    """What `--format text` prints: no line is longer than the terminal is wide, but for commands to be copied."""
    groups = _groups(now, topic, group)
    parts = [
        [cut(f"{now.taken_at:%Y-%m-%d %H:%M:%S %Z} – {_numbering(now)}", width)],
        _problem_lines(_problems(now, topic, group), width, using),
        _topic_lines(_topics(now, topic), width),
        _group_lines(groups, width),
        _partition_lines(groups, width, every),
        [
            cut(f"{found.group} on {found.topic} lost unread, by partition: {_ranges(found.missed)}", width)
            for found in groups
            if found.missed
        ],
        _hold_lines(now, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _topics(now: Status, topic: str | None) -> list[TopicStatus]:
    return [found for found in now.topics if topic in (None, found.name)]


def _groups(now: Status, topic: str | None, group: str | None) -> list[GroupStatus]:
    return [found for found in now.groups if topic in (None, found.topic) and group in (None, found.group)]


def _problems(now: Status, topic: str | None, group: str | None) -> list[Problem]:
    """Of a topic or a group, and what concerns all of them."""
    return [
        found
        for found in find_problems(now)
        if (topic is None or found.topic in ("", topic)) and (group is None or found.group in ("", group))
    ]


def _problem_lines(problems: list[Problem], width: int, using: str) -> list[str]:
    """What is wrong comes first, in whole sentences, each with what to type."""
    names = {STUCK: _("STUCK"), WARNING: _("WARNING"), NOTE: _("NOTE")}
    lines = []
    for problem in problems:
        lines += textwrap.wrap(f"{names[problem.severity]}  {problem.text}", width, subsequent_indent="    ")
        if command := remedy(problem, using):
            lines.append(f"    $ {command}" if command.startswith("manage.py") else f"    {command};")
    return lines


def _numbering(now: Status) -> str:
    numbering = now.numbering
    said = f"log of {bytes_of(numbering.bytes)}, "
    if numbering.is_foreign:
        said += "RESTORED FROM ANOTHER CLUSTER, "
    if numbering.waiting_since:
        said += f"events wait for their offsets for {seconds(now.seconds_since(numbering.waiting_since))}, "
    if numbering.overdue_since:
        said += f"delayed events are overdue for {seconds(now.seconds_since(numbering.overdue_since))}, "
    return said + (f"numbered by session {numbering.leader_pid}" if numbering.leader_pid else "no process leads")


def _topic_lines(topics: list[TopicStatus], width: int) -> list[str]:
    headings = ["TOPIC", "KIND", "PARTS>", "TIP>", "KEPT>", "SIZE>", "PER S>"]
    wide = width >= WIDE
    rows = [
        [
            topic.name,
            topic.semantics,
            str(topic.total_partitions),
            f"{topic.tip:,}",
            f"{topic.kept:,}",
            bytes_of(topic.bytes),
            "–" if topic.rate is None else f"{topic.rate:,.1f}",
            *([seconds(topic.retention.total_seconds()), topic.zero_subscribers] if wide else []),
        ]
        for topic in topics
    ]
    return table([*headings, *(["RETENTION>", "ALONE"] if wide else [])], rows, width)


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
    return table([*headings, *(["PARKED>", "DELIVERY", "BECAUSE"] if wide else [])], rows, width)


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


def _hold_lines(now: Status, width: int) -> list[str]:
    lines = []
    for hold in now.holds:
        who = f"{hold.kind} {hold.name}".strip() + (f", pid {hold.pid}" if hold.pid else "")
        since = f", {hold.state} for {seconds(hold.age_s)}" if hold.age_s is not None else f", {hold.state}"
        holds = [
            text for held, text in ((hold.holds_numbering, "numbering"), (hold.holds_retention, "retention")) if held
        ]
        kept = f", keeps {bytes_of(hold.bytes)} of WAL" if hold.bytes else ""
        what = f", holds back {' and '.join(holds)}" if holds else ""
        lines.append(cut(f"{who}{since}{what}{kept}", width))
        if hold.query:
            lines.append(cut(f"    {hold.query}", width) if width > 8 else "")
    return [cut("OPEN FOR LONG", width), *lines] if lines else []
