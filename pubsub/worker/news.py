"""News: what a worker's process has heard that there may be to do."""

import threading
from collections.abc import Iterable

from pubsub.sequencing.wake import Moved


class News:
    """Collected while the worker is at work, and what ends its waiting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._came = threading.Event()
        self._moved: set[tuple[int, int]] = set()
        self._may_be_any = False

    def set(self) -> None:
        """There may be anything to do."""
        self.tell(None)

    def tell(self, moved: Iterable[tuple[int, int]] | None) -> None:
        """A pass has moved these partitions; None: there may be anything to do."""
        with self._lock:
            if moved is None:
                self._may_be_any = True
            else:
                self._moved.update(moved)
        self._came.set()

    def wait(self, seconds: float) -> bool:
        """Whether there was any within this time."""
        return self._came.wait(seconds)

    def take(self) -> Moved | None:
        """What there was; it is heard then. None: there may be anything to do."""
        with self._lock:
            self._came.clear()
            moved, may_be_any = self._moved, self._may_be_any
            self._moved, self._may_be_any = set(), False
        return None if may_be_any else moved
