"""Where a listener begins: at the tip, at the oldest event, or behind one that it knows."""

from dataclasses import dataclass
from typing import Literal

from pubsub.conf import conf
from pubsub.db.sql import load
from pubsub.errors import CannotResume
from pubsub.topics.names import is_pattern
from pubsub.topics.registry import unknown_topic

from .scan import Scanner, Tip


@dataclass(frozen=True)
class Position:
    """A position in the log of all topics."""

    number: int
    mark: str = ""
    """Of the event before it, by which the log is recognised; empty: unknown."""


@dataclass(frozen=True)
class Offset:
    """An offset of one topic, likewise."""

    number: int
    mark: str = ""


Start = Literal["latest", "earliest"] | int | Offset | Position


def position_of(start: Start, topics: tuple[str, ...], tip: Tip, scanner: Scanner) -> int:
    """The position at which a listener of these topics begins; raises if it cannot begin there."""
    for name in topics:
        if not is_pattern(name) and name not in tip.offsets and conf().unknown_topic != "create":
            raise unknown_topic(name, list(tip.offsets))
    if start == "latest":
        return tip.position
    ((oldest,),) = scanner.fetch(load("streams/oldest_position"), {})
    if start == "earliest":
        return int(oldest)
    known = Offset(start) if isinstance(start, int) else start
    assert not isinstance(known, str)  # noqa: S101
    position, found = _find(known, topics, tip, scanner)
    if position is None or position < oldest:
        raise CannotResume(
            f"The log of {', '.join(topics)} cannot be read from there: the events have been dropped, or never "
            f'existed. Start again, at "earliest" or "latest".'
        )
    if known.mark and found not in (known.mark, ""):
        raise CannotResume(
            f"The log of {', '.join(topics)} is not the one that was read: another event has the offset of the last "
            f"one. The database is an older copy that has grown since. Start again, where the two differ."
        )
    return position


def _find(known: Offset | Position, topics: tuple[str, ...], tip: Tip, scanner: Scanner) -> tuple[int | None, str]:
    """The position, and the mark of the event before it; empty if that is gone, or not asked for."""
    if isinstance(known, Position):
        if known.number > tip.position:
            return None, ""
        return known.number, scanner.mark_at(known.number - 1) if known.mark else ""
    (name,) = topics
    number = next((number for number, topic in tip.topics.items() if topic == name), 0)
    ((position,),) = scanner.fetch(load("streams/find_position"), {"topic_id": number, "c_offset": known.number})
    before = scanner.marks({number: known.number - 1}) if known.mark else {}
    return position, before[number][1] if number in before else ""
