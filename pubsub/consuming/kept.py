"""Entries that a process has read, for its other groups: an entry never changes, so it is read once."""

import bisect
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from pubsub.events import Entry

MOST_CHARACTERS = 32_000_000
"""Of what is kept, over all partitions. What was read longest ago goes first."""


class KeptRun(NamedTuple):
    """Entries that follow one another: all of a partition between two positions."""

    start: int
    entries: Sequence[Entry]
    upto: int

    def begin_at(self, position: int) -> Sequence[Entry]:
        return self.entries[bisect.bisect_left(self.entries, position, key=lambda entry: entry.position) :]


class KeptEntries:
    """Of each partition, the run of entries that was read last. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[tuple[int, int], list[KeptRun]] = OrderedDict()
        """Each in the pieces in which it was read."""
        self._characters = 0

    def of(self, topic_id: int, partition_id: int, position: int | None = None) -> KeptRun | None:
        """What is kept of a partition; from a position on, if it is kept from there on."""
        with self._lock:
            pieces = [
                piece
                for piece in self._runs.get((topic_id, partition_id), ())
                if position is None or piece.upto > position
            ]
        if not pieces or (position is not None and pieces[0].start > position):
            return None
        start = pieces[0].start if position is None else position
        entries = [entry for piece in pieces for entry in piece.begin_at(start)]
        return KeptRun(start, entries, pieces[-1].upto)

    def add(self, topic_id: int, partition_id: int, start: int, entries: Sequence[Entry]) -> None:
        """What was read from a position on."""
        if not entries:
            return
        key, piece = (topic_id, partition_id), KeptRun(start, entries, entries[-1].position + 1)
        with self._lock:
            pieces = self._runs.setdefault(key, [])
            self._runs.move_to_end(key)
            if pieces and pieces[-1].upto != start:
                if pieces[0].start <= start < pieces[-1].upto:
                    return  # another group was as quick
                self._forget(pieces, len(pieces))
            pieces.append(piece)
            self._characters += _characters(piece)
            while self._characters > MOST_CHARACTERS:
                oldest = next(iter(self._runs.values()))
                self._forget(oldest, 1)
                if not oldest:
                    self._runs.popitem(last=False)

    def _forget(self, pieces: list[KeptRun], count: int) -> None:
        self._characters -= sum(map(_characters, pieces[:count]))
        del pieces[:count]


def _characters(piece: KeptRun) -> int:
    return sum(len(entry.payload) + len(entry.metadata) for entry in piece.entries)
