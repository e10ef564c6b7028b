"""Problems in plain sentences, the worst first: for the admin's overview, `pubsub_status`, metrics and exit codes.

>>> from pubsub.monitoring.status import status
>>> find_problems(status("default"))
[]
"""

from collections.abc import Sequence

from .facts import SystemStatus
from .problem import CODES, NOTE, SEVERITIES, STUCK, WARNING, Cause, Problem
from .problems_of_groups import problems_of_group
from .problems_of_log import problems_of_blocker, problems_of_disk, problems_of_sequencer, problems_of_topics
from .words import duration

SENTENCES = 12
OF_A_KIND = 3
"""So many of a kind are said in a sentence each; of more, the first one stands for all."""


def find_problems(status: SystemStatus) -> list[Problem]:
    """All problems, the worst first; among equals, the oldest first."""
    found = [
        *problems_of_sequencer(status),
        *(problem for group in status.groups for problem in problems_of_group(status, group)),
        *problems_of_topics(status),
        *problems_of_disk(status),
        *(problem for blocker in status.blockers for problem in problems_of_blocker(blocker)),
    ]
    return sorted(found, key=lambda problem: (SEVERITIES.index(problem.severity), problem.since or status.taken_at))


def by_cause(problems: Sequence[Problem]) -> list[Cause]:
    """A dozen sentences at most, however many problems there are. The worst still come first.

    >>> paused = [Problem(code="paused", text=f"group {n} is paused") for n in range(100)]
    >>> [(cause.problem.text, len(cause.alike)) for cause in by_cause(paused)]
    [('group 0 is paused', 99)]
    """
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(problem.code, []).append(problem)
    own = OF_A_KIND if sum(min(len(kind), OF_A_KIND) for kind in kinds.values()) <= SENTENCES else 1
    causes = {
        id(problem): Cause(problem=problem, alike=tuple(kind[1:]) if len(kind) > own else ())
        for kind in kinds.values()
        for problem in (kind if len(kind) <= own else kind[:1])
    }
    return [causes[id(problem)] for problem in problems if id(problem) in causes]


__all__ = [
    "CODES",
    "NOTE",
    "SEVERITIES",
    "STUCK",
    "WARNING",
    "Cause",
    "Problem",
    "by_cause",
    "duration",
    "find_problems",
]
