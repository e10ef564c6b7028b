"""What has to be done now and then, by whoever numbers: no cron job, and harmless to repeat or to do twice at once."""

import logging
import time

from django.db import connections

from .sql import load
from .storage import make_partitions_ahead

logger = logging.getLogger("pubsub.housekeeping")

EVERY_S = 30

KEYS_AT_ONCE = 10_000


class Housekeeper:
    """Keeps house for one database when it is time to; asking in between costs nothing."""

    def __init__(self, using: str) -> None:
        self.using = using
        self._due = float("-inf")

    def keep_house(self) -> bool:
        """Says whether it was time to. A failure is reported and stops nothing: what is done here can wait."""
        if time.monotonic() < self._due:
            return False
        self._due = time.monotonic() + EVERY_S
        # A thread's connection may have been idle since the last time, and cut meanwhile.
        connections[self.using].close_if_unusable_or_obsolete()
        for job in (make_partitions_ahead, forget_expired_keys):
            try:
                job(self.using)
            except Exception:
                logger.exception("%s failed; trying again in %d s", job.__name__, EVERY_S)
        return True


def forget_expired_keys(using: str) -> int:
    """Removes dedup keys that are free again. Returns how many."""
    forgotten, last = 0, KEYS_AT_ONCE
    with connections[using].cursor() as cursor:
        while last == KEYS_AT_ONCE:
            cursor.execute(load("forget_expired_keys"), {"limit": KEYS_AT_ONCE})
            last = int(cursor.rowcount)
            forgotten += last
    if forgotten:
        logger.debug("forgot %d expired dedup keys", forgotten)
    return forgotten
