"""Maintenance: what has to be done now and then, so that no cron job is needed. All of it may be repeated or run twice.

Workers do it beside their work; `manage.py run_cleanup` does the same without one.
"""

import datetime as dt
import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.db import DatabaseError, connections

from pubsub.dead_letters.parking import unpark_left_behind
from pubsub.errors import PubSubError
from pubsub.monitoring.samples import prune_samples, take_samples
from pubsub.retention.drop import drop_expired
from pubsub.retention.expire import expire_idle
from pubsub.retention.partitions import make_partitions_ahead
from pubsub.retention.prune import JOBS as PRUNING

from .membership import forget_members, watch_groups

logger = logging.getLogger(__name__)

EVERY_S = 30

MaintenanceJob = Callable[[str], Any]

URGENT: Sequence[MaintenanceJob] = (make_partitions_ahead, take_samples)
"""What must never come too late, and is always quick. The leader does it, also while handlers hang."""

JOBS: Sequence[MaintenanceJob] = (
    *URGENT,
    watch_groups,
    unpark_left_behind,
    drop_expired,
    forget_members,
    expire_idle,
    prune_samples,
    *PRUNING,
)


class Maintenance:
    """Maintenance of one database, in the thread that calls `step()`. Calling it too often costs nothing."""

    def __init__(self, using: str, jobs: Sequence[MaintenanceJob] = JOBS) -> None:
        if using not in connections:
            raise PubSubError(f'There is no database "{using}"; there are: {", ".join(connections)}.')
        self.using = using
        self._jobs = jobs
        self._due = time.monotonic()

    def step(self, *, busy: bool = False) -> bool:
        """Do it if it is due. Returns whether it was. If `busy`, it may wait for one more period.

        A job that fails is logged, and the others run all the same.
        """
        if time.monotonic() < self._due + busy * EVERY_S:
            return False
        self._due = time.monotonic() + EVERY_S
        # A thread's connection may have been idle since the last time, and cut meanwhile.
        connections[self.using].close_if_unusable_or_obsolete()
        if self._jobs and not owns_tables(self.using):
            _say_who_must(self.using)
            self._jobs = ()
        for job in self._jobs:
            try:
                job(self.using)
            except Exception:
                logger.exception("%s failed; trying again in %d s", job.__name__, EVERY_S)
        return True

    def stop(self) -> None:
        """Leave samples of how things stood in the end, for charts."""
        if not self._jobs:
            return
        try:
            take_samples(self.using, at_least=dt.timedelta(0))
        except Exception as error:
            logger.warning("no last samples for the charts were taken: %s", error)


def owns_tables(using: str) -> bool:
    """Whether it may make and drop segments, as only their owner may."""
    asked = "SELECT pg_has_role(current_user, relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('log_entry')"
    try:
        with connections[using].cursor() as cursor:
            cursor.execute(asked)
            row = cursor.fetchone()
    except DatabaseError:
        return True  # the jobs will say what is wrong, each for itself
    return row is None or bool(row[0])


@functools.cache  # once in a process, of which two threads do maintenance
def _say_who_must(using: str) -> None:
    logger.warning(
        "this worker does no maintenance, for its role does not own the tables of database %s: run `manage.py "
        "run_cleanup` as their owner beside it, and this worker with --no-maintenance",
        using,
    )
