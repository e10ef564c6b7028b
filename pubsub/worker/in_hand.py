"""Which partitions a process has in hand, and which it leaves alone for a while after a failure."""

import threading
import time
from collections.abc import Sequence

from pubsub.consuming.failing import LONGEST_REST_S
from pubsub.subscriptions.task import PartitionKey


class InHand:
    """Shared by the threads of a worker."""

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._lock = threading.Lock()
        self._keys: dict[PartitionKey, object] = {}
        """Each with the hand that has it: several of a group may be in one hand."""
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
        return len(set(self._keys.values())) >= self._at_most

    def take(self, keys: Sequence[PartitionKey]) -> list[PartitionKey]:
        """Takes partitions in one hand, unless a thread has them, or they rest. Returns those that it has taken."""
        now, hand = time.monotonic(), object()
        with self._lock:
            if self.is_full:
                return []
            free = [key for key in keys if key not in self._keys and self._resting.get(key, 0) <= now]
            self._keys.update(dict.fromkeys(free, hand))
            return free

    def release(self, key: PartitionKey) -> None:
        """All went well there."""
        with self._lock:
            self._keys.pop(key, None)
            self._failures.pop(key, None)
            self._resting.pop(key, None)

    def rest(self, key: PartitionKey, first_s: float) -> float:
        """Leaves a partition alone that has failed, the longer the more often in a row. Returns the seconds."""
        with self._lock:
            self._keys.pop(key, None)
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            rest_s = min(first_s * 2.0 ** (failures - 1), LONGEST_REST_S)
            self._resting[key] = time.monotonic() + rest_s
            return rest_s
