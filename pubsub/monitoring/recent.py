"""One status for all who ask within a few seconds: pages that refresh themselves, and scrapes."""

import threading
import time

from django.db import Error

from .facts import SystemStatus
from .status import status

FOR_S = 3.0
"""Less than the time after which the overview asks again."""


class RecentStatus:
    """Remembers the status of a database for a while, or that it could not be had. Those who ask meanwhile wait for the
    one that looks: a database in trouble is not asked by all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, SystemStatus | Error]] = {}

    def of(self, using: str) -> SystemStatus:
        with self._lock:
            at, known = self._known.get(using, (float("-inf"), None))
            if known is None or time.monotonic() >= at + FOR_S:
                try:
                    known = status(using)
                except Error as error:
                    known = error
                self._known[using] = time.monotonic(), known
        if isinstance(known, Error):
            raise known
        return known


recent = RecentStatus()


def recent_status(using: str) -> SystemStatus:
    """The status, at most a few seconds old.

    >>> recent_status("default").topics[0].name
    'default'
    """
    return recent.of(using)
