"""Problems in plain sentences, the worst first: for the admin's overview, `pubsub_status`, metrics and exit codes.

>>> from pubsub.monitoring.status import status
>>> find_problems(status("default"))
[]
"""

from .facts import SystemStatus
from .problem import CODES, NOTE, SEVERITIES, STUCK, WARNING, Problem
from .problems_of_groups import problems_of_group
from .problems_of_log import problems_of_blocker, problems_of_disk, problems_of_sequencer, problems_of_topics
from .words import duration


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


__all__ = ["CODES", "NOTE", "SEVERITIES", "STUCK", "WARNING", "Problem", "duration", "find_problems"]
