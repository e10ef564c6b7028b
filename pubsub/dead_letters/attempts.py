"""Further attempts of what failed: which events are due, and what became of them.

The unit is a publisher's transaction, as far as it went to one partition. The caller has the cursor's lock.
"""

import itertools
import math
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from django.db import connections

from pubsub.db.sql import load
from pubsub.errors import WorkerDied
from pubsub.events import Entry, columns_of
from pubsub.subscriptions.task import PartitionTask

from .failure import store
from .parking import park_due, unpark
from .report import FailedAttempt, report
from .set_aside import delay_after, state_after

AT_ONCE = 500
"""Failed events that are read at once when they are tried again."""

_READ = load("dead_letters/read_letters", columns=columns_of("letter", created_at="letter.published_at"))


class Locked(NamedTuple):
    """A failed event, while no operator can change it."""

    id: int
    attempts: int
    key: str | None
    transaction_id: uuid.UUID
    offset: int
    state: str
    due_at: float
    """In seconds since 1970; 0 where it is not due by itself."""
    is_alone: bool
    """Whether it is to be tried with no other transaction: a worker has died that had it in hand."""


class Letters:
    """The failed events of one transaction, in order. They are read while they are handled, however many they are; of
    each, only where it stands is kept."""

    def __init__(self, task: PartitionTask) -> None:
        self._task = task
        self._places: list[tuple[int, int]] = []
        self._first: Locked | None = None
        self.last_offsets: dict[str, int] = {}
        """Of each key."""
        self.due_at = math.inf
        """The earliest."""

    def add(self, locked: Locked) -> None:
        self._places.append((locked.offset, locked.id))
        if self._first is None or locked.offset < self._first.offset:
            self._first = locked
        if locked.key is not None:
            self.last_offsets[locked.key] = max(self.last_offsets.get(locked.key, 0), locked.offset)
        self.due_at = min(self.due_at, locked.due_at)

    @cached_property
    def ids(self) -> list[int]:
        """In the order of the log, when all have been added."""
        self._places.sort()
        return [id_ for _, id_ in self._places]

    @property
    def keys(self) -> list[str]:
        return sorted(self.last_offsets)

    @property
    def attempts(self) -> int:
        return self._first.attempts if self._first else 0

    @property
    def last_offset(self) -> int:
        return max(self._places)[0]

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Entry]:
        return read(self._task, self.ids)

    @property
    def first(self) -> Locked:
        assert self._first  # noqa: S101 - of a transaction there is one
        return self._first

    @property
    def ends(self) -> tuple[Entry, Entry]:
        """The first and the last one."""
        both = list(read(self._task, [self.ids[0], self.ids[-1]]))
        return both[0], both[-1]


def read(task: PartitionTask, ids: Sequence[int]) -> Iterator[Entry]:
    """Failed events, in this order, some at a time."""
    for first in range(0, len(ids), AT_ONCE):
        with connections[task.using].cursor() as db:
            db.execute(_READ, {"ids": list(ids[first : first + AT_ONCE])})
            entries = [Entry(*row) for row in db.fetchall()]
        yield from entries


def lock_due(db: Any, task: PartitionTask, most: int = 1) -> list[Letters]:
    """The transactions that have been due for longest, locked: of about so many events, but one at least."""
    if task.parks_keys:
        park_due(db, task, most)
    db.execute(load("dead_letters/lock_due"), {**task.parameters, "limit": most})
    due = _by_transaction(task, db)
    return sorted(due, key=lambda letters: (letters.due_at, letters.first.offset))


def lock_due_and_parked(db: Any, task: PartitionTask, most: int) -> list[Letters]:
    """Those, and what is parked behind them and is free to go when they are handled; in the order to handle them in."""
    due = lock_due(db, task, most)
    room = most - sum(map(len, due))
    if not (task.parks_keys and due and room > 0):
        return due
    last_offsets: dict[str, int] = {}
    for letters in due:
        for key, offset in letters.last_offsets.items():
            last_offsets[key] = max(last_offsets.get(key, 0), offset)
    db.execute(
        load("dead_letters/lock_parked_behind"),
        {
            **task.parameters,
            "keys": list(last_offsets),
            "last_offsets": list(last_offsets.values()),
            "transactions": [letters.first.transaction_id for letters in due],
            "limit": room,
        },
    )
    behind = _by_transaction(task, db)
    return due + sorted(behind, key=lambda letters: letters.first.offset)


def lock_letters(db: Any, task: PartitionTask, ids: Sequence[int]) -> Letters:
    """Those of these events of one transaction that an operator has not discarded meanwhile, locked."""
    db.execute(load("dead_letters/lock_letters"), {"ids": list(ids)})
    return next(iter(_by_transaction(task, db)), Letters(task))


def _by_transaction(task: PartitionTask, rows: Iterable[tuple[Any, ...]]) -> list[Letters]:
    """From a cursor, which does not make all rows at once."""
    of_transaction: dict[uuid.UUID, Letters] = defaultdict(lambda: Letters(task))
    for locked in itertools.starmap(Locked, rows):
        of_transaction[locked.transaction_id].add(locked)
    return list(of_transaction.values())


def try_alone(db: Any, task: PartitionTask, letters: Letters) -> None:
    """From now on what has failed up to there is tried one transaction at a time, by whichever worker."""
    db.execute(load("dead_letters/try_alone"), {**task.parameters, "offset": letters.last_offset})


def failed_again(
    db: Any, task: PartitionTask, letters: Letters, error: BaseException, attempt: int, at: Entry | None
) -> None:
    """Notes that another attempt has failed, `at` which event, and when the next one is due, if any."""
    delay = _note_failure(db, task, letters, error, attempt)
    first, last = letters.ends
    report(
        FailedAttempt(
            task=task,
            first=first,
            last=last,
            at=at or first,
            attempt=attempt,
            error=error,
            retry_in_s=delay,
            count=len(letters),
            letter_id=letters.ids[0],
        )
    )


def resolve(
    db: Any, task: PartitionTask, handled: Sequence[tuple[Letters, int]], *, were_counted: bool = False
) -> None:
    """Notes that transactions were handled after all, and at which attempt. What waited for them is next. Where their
    attempts were counted before, no worker has died of them: what they failed of is what it was before."""
    if not handled:
        return
    if were_counted:
        for letters, attempt in handled:
            uncount_death(task, letters.ids, attempt)
    ids = [id_ for letters, _ in handled for id_ in letters.ids]
    attempts = [attempt for letters, attempt in handled for _ in letters.ids]
    db.execute(load("dead_letters/resolve"), {"ids": ids, "attempts": attempts})
    if task.parks_keys:
        keys = sorted({key for letters, _ in handled for key in letters.keys})
        unpark(db, task.declared.group, task.topic_id, keys)


def count_death(db: Any, task: PartitionTask, soonest_s: float) -> Letters:
    """Counts an attempt of what is due before it is made, as one that ends with the worker's death. Returns what it is
    about. No other worker counts another one within `soonest_s` seconds, so that this one has time to begin."""
    letters = next(iter(lock_due(db, task)), Letters(task))
    if letters:
        death = WorkerDied("The worker died, or was killed, while it handled this transaction.")
        _note_failure(db, task, letters, death, letters.attempts + 1, soonest_s=soonest_s)
    return letters


def uncount_death(task: PartitionTask, ids: Sequence[int], attempt: int) -> None:
    """The worker has not died, nor has the handler failed: the attempt does not count."""
    with connections[task.using].cursor() as db:
        db.execute(load("dead_letters/uncount_death"), {"ids": list(ids), "attempts": attempt})


def _note_failure(
    db: Any, task: PartitionTask, letters: Letters, error: BaseException, attempt: int, *, soonest_s: float = 0
) -> float | None:
    delay = delay_after(task.declared, attempt, error)
    if delay is not None:
        delay = max(delay, soonest_s)
    how = {"ids": letters.ids, "attempts": attempt, "state": state_after(delay), "delay": delay}
    store(task, error, lambda texts: db.execute(load("dead_letters/note_failure"), {**how, **texts}))
    return delay
