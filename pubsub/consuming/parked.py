"""What has to wait is collected while a batch is gone through, and parked by one statement at its end."""

from collections.abc import Iterable, Iterator

from pubsub.dead_letters.parking import is_held_up, unblocked, why_parked
from pubsub.dead_letters.set_aside import park, report_parked
from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionTask

from .entries import PublishedTogether, by_transaction


class ToPark:
    """The transactions of a batch that have to wait, and the keys that hold up what comes behind them."""

    def __init__(self, task: PartitionTask) -> None:
        self.keys: set[str] = set()
        """Keys of which events have failed, or have to wait, since the entries were read."""
        self._task = task
        self.taken: list[tuple[Entry, Entry]] = []
        """The first and the last event of each."""
        self.passed = 0
        """Events that they have, those for other groups included."""

    def without_those(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The entries that may be handled. Those that have to wait are taken, a transaction at a time; where only a
        later one of it has to, Parked is raised."""
        for together in by_transaction(entries):
            if not self.takes(together):
                yield from unblocked(together, self.keys)

    def takes(self, together: PublishedTogether) -> int:
        """Takes a transaction if its first event has to wait, and so all of it. Returns how many of its events are the
        group's."""
        first = together.peek()
        if not is_held_up(first, self.keys):
            return 0
        report_parked(self._task, why_parked(first))
        mine = 0
        for entry in together:
            mine += entry.is_mine
            if entry.is_mine and entry.ordering_key is not None:
                self.keys.add(entry.ordering_key)
        self.taken.append(together.ends)
        self.passed += together.count
        return mine

    def park(self) -> int:
        """Sets aside what was taken. Returns how many events that was."""
        ranges = [(first.position, last.position) for first, last in self.taken]
        self.taken, self.passed = [], 0
        return park(self._task, ranges).count if ranges else 0
