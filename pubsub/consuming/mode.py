"""What the delivery modes have in common: what they are asked, what they answer, and the way through transactions."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionKey, PartitionTask

from .crashes import Deferred
from .entries import PublishedTogether, by_transaction
from .failing import Doomed
from .find_work import Work
from .kept import KeptEntries
from .lease_renewer import LeaseRenewer


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a batch."""

    passed: int = 0
    """Events that the cursor moved over, those for other groups included."""
    failed: int = 0
    """Those of them that are in the dead-letter queue now."""
    retried: int = 0
    """Events that had failed before and were tried again."""
    last: Entry | None = None
    handling_s: float | None = None
    """Seconds that the handler took, where all went well."""


class Together(NamedTuple):
    """What became of several partitions' batches, in one transaction."""

    handled: Sequence[tuple[PartitionTask, Outcome]]
    is_all: bool
    """Whether nothing is left to do in them, as far as is known, but what another worker has."""


@dataclass(kw_only=True)
class Allowance:
    """How much a worker may do in a partition before it looks at the others."""

    batch_size: int
    size: int
    """Events of the next batch, at most; the worker may lower it between two batches."""
    may_go_on: Callable[[int, bool], bool] = lambda passed, reads: False
    """Whether another batch may follow, after so many events that are to be committed now, and if it has to be read."""


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """What the modes of one worker share."""

    using: str
    worker_id: str
    leases: LeaseRenewer
    deferred: Deferred = field(default_factory=Deferred)
    doomed: dict[PartitionKey, Doomed] = field(default_factory=dict)
    seen: dict[PartitionKey, set[int]] = field(default_factory=dict)
    """Offsets that observers have seen in an attempt that is undone, and is still to be made."""
    kept: KeptEntries | None = None
    """Where several groups read a topic."""
    rest_s: float = 1
    """How long a partition rests in which the database has failed once."""


class Mode(Protocol):
    """One way in which events reach their handlers. Another one is another file, and a line in `modes.py`."""

    def __init__(self, context: WorkerContext) -> None: ...

    def start(self) -> None:
        """Prepares for the first work."""

    def work_on(self, work: Work, allowance: Allowance) -> Generator[Outcome]:
        """Handles what there is to do in a partition, batch after batch. What fails through no fault of an event is
        raised."""

    def may_join(self, work: Work) -> bool:
        """Whether it may be handled in one transaction with other partitions of its group."""

    def work_on_several(self, works: Sequence[Work], allowance: Allowance) -> Together | None:
        """Handles a batch of each partition in one transaction. What fails is raised, and undone in all of them; None
        if there can be no such transaction."""

    def broke_off(self, work: Work, error: Exception) -> None:
        """Something has failed that is no event's fault, as far as is known: the next worker must not take it for a
        death. Where it failed under a handler, that counts."""


def go_through(
    task: PartitionTask, entries: Iterable[Entry], handle_one: Callable[[PublishedTogether], int]
) -> Outcome:
    """Handles entries, a publisher's transaction at a time. `handle_one` returns how many events of it failed; where
    the group stops behind a failure, so does this."""
    passed = failed = 0
    last: Entry | None = None
    for together in by_transaction(entries):
        failed += handle_one(together)
        passed += together.count
        last = together.last
        if failed and task.stops:
            break
    return Outcome(passed=passed, failed=failed, last=last)
