"""Recognising the log: an older copy of the database may have been put in its place, and have grown since.

Offsets alone do not tell: those that were lost are given to other events. The mark of an event, a few digits of its id,
does.
"""

import time
from dataclasses import replace

from pubsub.errors import CannotResume

from .scan import Item, Scanner, Tip

MARK_EVERY_S = 1.0
"""How often marks are looked up at most, where no listener begins."""


class History:
    """What one reader knows of the log that it reads."""

    def __init__(self) -> None:
        self.witness: tuple[int, str] | None = None
        """The position and the mark of an event that was read."""
        self._is_recognised = True
        self._marks: dict[int, tuple[int, int, str]] = {}
        """Of each topic's last event: the next offset, its position, its mark."""
        self._marked_at = 0.0

    def doubt(self) -> None:
        """The connection is another one, and so may the database be."""
        self._is_recognised = self.witness is None

    def recognise(self, tip: Tip, reached: int | None, scanner: Scanner) -> None:
        """Raises if this is not the log that was read before, up to the position `reached`."""
        is_another = reached is not None and tip.position < reached
        if self.witness and not self._is_recognised and not is_another:
            position, mark = self.witness
            is_another = scanner.mark_at(position) not in (mark, "")
        if is_another:
            raise CannotResume(
                "The log is not the one that was read: the database has been restored to an older state."
            )
        self._is_recognised = True

    def saw(self, item: Item) -> None:
        if self.witness is None or item.position > self.witness[0]:
            self.witness = item.position, item.mark

    @property
    def may_mark(self) -> bool:
        return time.monotonic() >= self._marked_at + MARK_EVERY_S

    def marked(self, tip: Tip, scanner: Scanner) -> Tip:
        """The tip with the marks of its last events. Only those of topics that have moved are looked up."""
        self._marked_at = time.monotonic()
        next_offsets = {number: tip.offsets[name] for number, name in tip.topics.items() if tip.offsets[name] > 1}
        moved = {
            number: offset - 1
            for number, offset in next_offsets.items()
            if number not in self._marks or self._marks[number][0] != offset
        }
        found = scanner.marks(moved)
        for number in moved:
            self._marks.pop(number, None)
            if number in found:
                self._marks[number] = (next_offsets[number], *found[number])
        marks = {name: self._marks[number][2] for number, name in tip.topics.items() if number in self._marks}
        last = next((mark for _, position, mark in self._marks.values() if position == tip.position - 1), "")
        if last:
            self.witness = tip.position - 1, last
        return replace(tip, mark=last, marks=marks)
