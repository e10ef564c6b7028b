"""So many records of a kind are logged within a minute. The others are counted, and their number is said in its end."""

import threading
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

MOST_KINDS = 1000
"""More are not remembered: minutes that are over are forgotten then."""


@dataclass(kw_only=True)
class _Minute:
    """A minute of one kind. It begins with its first record, and is over when what it left out has been said."""

    begun: float
    admitted: int = 0
    left_out: int = 0
    say: Callable[[int], None]


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
        self._timer: threading.Timer | None = None
        """For the minute that ends first, of those that have left something out: one thread for all."""

    def admits(self, kind: Hashable, most: int, say: Callable[[int], None]) -> bool:
        now = time.monotonic()
        with self._lock:
            minute = self._minutes.get(kind)
            if minute is None or self._is_over(minute, now):
                self._forget_old(now)
                minute = self._minutes[kind] = _Minute(begun=now, say=say)
            if minute.admitted < most:
                minute.admitted += 1
                return True
            minute.left_out += 1
            self._plan(now)
        return False

    def close(self) -> None:
        """Says at once what is left to say."""
        with self._lock:
            minutes, self._minutes = self._minutes, {}
            if self._timer:
                self._timer.cancel()
                self._timer = None
        _say(minutes.values())

    def _is_over(self, minute: _Minute, now: float) -> bool:
        return not minute.left_out and now >= minute.begun + self._minute_s

    def _plan(self, now: float) -> None:
        if self._timer is None:
            first = min(minute.begun for minute in self._minutes.values() if minute.left_out)
            self._timer = threading.Timer(max(0.0, first + self._minute_s - now), self._end)
            self._timer.daemon = True
            self._timer.name = "pubsub-log-limit"
            self._timer.start()

    def _end(self) -> None:
        now = time.monotonic()
        with self._lock:
            over = {kind: it for kind, it in self._minutes.items() if now >= it.begun + self._minute_s}
            for kind in over:
                del self._minutes[kind]
            self._timer = None
            if any(minute.left_out for minute in self._minutes.values()):
                self._plan(now)
        _say(over.values())

    def _forget_old(self, now: float) -> None:
        if len(self._minutes) >= MOST_KINDS:
            self._minutes = {kind: it for kind, it in self._minutes.items() if not self._is_over(it, now)}


def _say(minutes: Iterable[_Minute]) -> None:
    for minute in minutes:
        if minute.left_out:
            minute.say(minute.left_out)
