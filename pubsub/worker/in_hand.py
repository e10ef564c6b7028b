"""Which partitions a process has in hand, and which it leaves alone for a while after a failure."""

import threading
import time

from pubsub.consuming.failing import LONGEST_REST_S
from pubsub.subscriptions.task import PartitionKey


class InHand:
    """Shared by the threads of a worker."""

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._lock = threading.Lock()
        self._keys: set[PartitionKey] = set()
        self._failures: dict[PartitionKey, int] = {}
        self._resting: dict[PartitionKey, float] = {}
        """Until when a partition that failed is left alone."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def keys(self) -> list[PartitionKey]:
        with self._lock:
            return sorted(self._keys)

    @property
    def is_full(self) -> bool:
        return len(self._keys) >= self._at_most

    def take(self, key: PartitionKey) -> bool:
        """Takes a partition in hand, unless a thread has it, or it rests."""
        with self._lock:
            if key in self._keys or self._resting.get(key, 0) > time.monotonic() or self.is_full:
                return False
            self._keys.add(key)
            return True

    def release(self, key: PartitionKey) -> None:
        """All went well there."""
        with self._lock:
            self._keys.discard(key)
            self._failures.pop(key, None)
            self._resting.pop(key, None)

    def rest(self, key: PartitionKey, first_s: float) -> float:
        """Leaves a partition alone that has failed, the longer the more often in a row. Returns the seconds."""
        with self._lock:
            self._keys.discard(key)
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            rest_s = min(first_s * 2.0 ** (failures - 1), LONGEST_REST_S)
            self._resting[key] = time.monotonic() + rest_s
            return rest_s
