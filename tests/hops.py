"""How tangled the way of one event is: calls, files, and hops between files of the package, as a profiler sees them."""

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pubsub

PACKAGE = str(Path(pubsub.__file__).parent)


@dataclass
class Trace:
    """What was called in the package, in order."""

    calls: list[str] = field(default_factory=list)
    """Into which files."""

    @property
    def hops(self) -> int:
        """How often the next call is into another file than the last one."""
        return sum(one != next_one for one, next_one in itertools.pairwise(self.calls))

    def __str__(self) -> str:
        way = " → ".join(file for file, _ in itertools.groupby(self.calls))
        return f"{len(self.calls)} calls, {len(set(self.calls))} files, {self.hops} hops: {way}"


@contextmanager
def traced() -> Iterator[Trace]:
    """Follows this thread. A generator that is resumed counts as a function that is called."""
    trace = Trace()

    def follow(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and (file := _file_of(frame)):
            trace.calls.append(file)

    sys.setprofile(follow)
    try:
        yield trace
    finally:
        sys.setprofile(None)


def _file_of(frame: FrameType) -> str | None:
    name = frame.f_code.co_filename
    return name.removeprefix(f"{PACKAGE}/") if name.startswith(PACKAGE) else None
