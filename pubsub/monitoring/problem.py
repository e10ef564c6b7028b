"""A problem: a sentence for people and a code for programs."""

import datetime as dt
from dataclasses import dataclass

STUCK, WARNING, NOTE = "stuck", "warning", "note"
"""It does not resolve itself; it may come to that; it was asked for."""

SEVERITIES = (STUCK, WARNING, NOTE)
"""The worst first."""

CODES = {
    "foreign": STUCK,
    "sequencer": STUCK,
    "sequencer-blocked": STUCK,
    "sequencer-silent": STUCK,
    "sequencer-slow": STUCK,
    "delayed": STUCK,
    "dead": STUCK,
    "no-members": STUCK,
    "no-handler": STUCK,
    "hanging": STUCK,
    "not-moving": STUCK,
    "failing": STUCK,
    "stopped": STUCK,
    "refused": STUCK,
    "missed": WARNING,
    "behind": WARNING,
    "skewed": WARNING,
    "disk": WARNING,
    "xids-to-come": WARNING,
    "default-segment": WARNING,
    "waits-for-retry": WARNING,
    "dead-letters": WARNING,
    "long-transaction": WARNING,
    "slot": WARNING,
    "paused": NOTE,
    "unread": NOTE,
}
"""Every kind of problem, and how bad it is. A code keeps its meaning: dashboards, alerts and scripts know it."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    code: str
    """Which kind of problem it is: one of CODES."""
    text: str
    since: dt.datetime | None = None
    topic: str = ""
    group: str = ""
    offset: int | None = None
    pid: int | None = None
    """The database session that has to end, where that is the cure."""
    worker: str = ""
    """The worker that it is about."""

    @property
    def severity(self) -> str:
        return CODES[self.code]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A problem, and those of the same kind that are not said in a sentence each: they have one cause, as a rule."""

    problem: Problem
    alike: tuple[Problem, ...] = ()
