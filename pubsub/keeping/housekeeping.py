"""What has to be done now and then: no cron job is needed. All of it is harmless to repeat or to do twice at once.

Workers keep house beside their work, and `manage.py run_cleanup` does the same without one.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connections

from pubsub.dead_letters.releasing import release_stranded

from .expiring import expire_idle
from .history import JOBS as HISTORY
from .members import forget_members, watch_groups
from .retention import retire
from .sampling import prune_samples, take_samples
from .storage import make_partitions_ahead

logger = logging.getLogger("pubsub.housekeeping")

EVERY_S = 30

Job = Callable[[str], Any]

URGENT: Sequence[Job] = (make_partitions_ahead,)
"""What must never come too late, and is always quick."""

JOBS: Sequence[Job] = (
    *URGENT,
    watch_groups,
    release_stranded,
    retire,
    forget_members,
    expire_idle,
    take_samples,
    prune_samples,
    *HISTORY,
)


class Housekeeper:
    """Keeps house for one database when it is time to; asking in between costs nothing."""

    def __init__(self, using: str, jobs: Sequence[Job] = JOBS) -> None:
        self.using = using
        self._jobs = jobs
        self._due = time.monotonic()

    def keep_house(self, *, busy: bool = False) -> bool:
        """Says whether it was time to: who is `busy` may do it later. A failure is reported and stops nothing."""
        if time.monotonic() < self._due + busy * EVERY_S:
            return False
        self._due = time.monotonic() + EVERY_S
        # A thread's connection may have been idle since the last time, and cut meanwhile.
        connections[self.using].close_if_unusable_or_obsolete()
        for job in self._jobs:
            try:
                job(self.using)
            except Exception:
                logger.exception("%s failed; trying again in %d s", job.__name__, EVERY_S)
        return True
