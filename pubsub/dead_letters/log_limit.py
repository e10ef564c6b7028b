"""So many records of a kind are logged within a minute. The others are counted, and their number is said in its end."""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MOST_KINDS = 1000
"""More are not remembered: minutes that are over are forgotten then."""


@dataclass(kw_only=True)
class _Minute:
    """A minute of one kind. It begins with its first record."""

    begun: float
    admitted: int = 0
    left_out: int = 0
    say: Callable[[int], None]
    timer: threading.Timer | None = None


class LogLimit:
    """Says of each record whether it may be logged, and calls `say` a minute after the first one with how many may not.

    >>> limit, left_out = LogLimit(), []
    >>> [limit.admits("kind", 2, left_out.append) for _ in range(5)]
    [True, True, False, False, False]
    >>> limit.close()
    >>> left_out
    [3]
    """

    def __init__(self, minute_s: float = 60) -> None:
        self._minute_s = minute_s
        self._lock = threading.Lock()
        self._minutes: dict[Hashable, _Minute] = {}

    def admits(self, kind: Hashable, most: int, say: Callable[[int], None]) -> bool:
        now = time.monotonic()
        with self._lock:
            minute = self._minutes.get(kind)
            if minute is None or (now >= minute.begun + self._minute_s and minute.timer is None):
                self._forget_old(now)
                minute = self._minutes[kind] = _Minute(begun=now, say=say)
            if minute.admitted < most:
                minute.admitted += 1
                return True
            minute.left_out += 1
            if minute.timer is None:
                minute.timer = threading.Timer(minute.begun + self._minute_s - now, self._end, (kind, minute))
                minute.timer.daemon = True
                minute.timer.name = "pubsub-log-limit"
                minute.timer.start()
        return False

    def close(self) -> None:
        """Says at once what is left to say."""
        with self._lock:
            minutes, self._minutes = self._minutes, {}
        for minute in minutes.values():
            if minute.timer:
                minute.timer.cancel()
                minute.say(minute.left_out)

    def _end(self, kind: Hashable, minute: _Minute) -> None:
        with self._lock:
            if self._minutes.get(kind) is not minute:
                return
            del self._minutes[kind]
        minute.say(minute.left_out)

    def _forget_old(self, now: float) -> None:
        if len(self._minutes) >= MOST_KINDS:
            self._minutes = {
                kind: minute
                for kind, minute in self._minutes.items()
                if minute.timer or now < minute.begun + self._minute_s
            }
