"""Further attempts of what failed: which events are due, and what became of them.

The unit is a publisher's transaction, as far as it went to one partition. The caller has the cursor's lock.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from django.db import connections

from pubsub.db.sql import load
from pubsub.errors import WorkerDied
from pubsub.events import Entry, columns_of
from pubsub.subscriptions.task import PartitionTask

from .failure import store
from .parking import unpark
from .report import FailedAttempt, report
from .set_aside import delay_after, state_after

AT_ONCE = 500
"""Failed events that are read at once when they are tried again."""

_READ = load("dead_letters/read_letters", columns=columns_of("letter", created_at="letter.published_at"))


class Letters:
    """The failed events of one transaction, in order. They are read while they are handled, however many they are."""

    def __init__(self, task: PartitionTask, rows: Sequence[tuple[int, int, str | None]]) -> None:
        self._task = task
        self.ids = [id_ for id_, _, _ in rows]
        self.attempts = rows[0][1] if rows else 0
        self.keys = sorted({key for _, _, key in rows if key is not None})

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Entry]:
        for first in range(0, len(self.ids), AT_ONCE):
            yield from self._read(self.ids[first : first + AT_ONCE])

    @property
    def ends(self) -> tuple[Entry, Entry]:
        """The first and the last one."""
        both = self._read([self.ids[0], self.ids[-1]])
        return both[0], both[-1]

    def _read(self, ids: list[int]) -> list[Entry]:
        with connections[self._task.using].cursor() as db:
            db.execute(_READ, {"ids": ids})
            return [Entry(*row) for row in db.fetchall()]


def lock_due(db: Any, task: PartitionTask) -> Letters:
    """The events of the transaction that is due first, locked."""
    db.execute(load("dead_letters/lock_due"), task.parameters)
    return Letters(task, db.fetchall())


def lock_letters(db: Any, task: PartitionTask, ids: Sequence[int]) -> Letters:
    """Those of these events that an operator has not discarded meanwhile, locked."""
    db.execute(load("dead_letters/lock_letters"), {"ids": list(ids)})
    return Letters(task, db.fetchall())


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


def resolve(db: Any, task: PartitionTask, letters: Letters, attempt: int) -> None:
    """Notes that events were handled after all. Those that waited for them are next."""
    db.execute(load("dead_letters/resolve"), {"ids": letters.ids, "attempts": attempt})
    if task.parks_keys:
        unpark(db, task.declared.group, task.topic_id, letters.keys)


def count_death(db: Any, task: PartitionTask, soonest_s: float) -> Letters:
    """Counts an attempt of what is due before it is made, as one that ends with the worker's death. Returns what it is
    about. No other worker counts another one within `soonest_s` seconds, so that this one has time to begin."""
    letters = lock_due(db, task)
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
