"""Entries that were published together: the events of a publisher's transaction."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionTask


class Given(NamedTuple):
    """What a handler was given last."""

    first: Entry
    """Where its publisher's transaction begins."""
    last: Entry


class PublishedTogether:
    """The events of one publisher's transaction, read while they are handled."""

    def __init__(self, transaction_id: Any, entries: Iterator[Entry]) -> None:
        self.transaction_id = transaction_id
        self._entries = entries
        self.first: Entry | None = None
        self.last: Entry | None = None
        self.count = 0

    def peek(self) -> Entry:
        """The first of those that were not given yet; before any was, there is one."""
        entry = next(self._entries)
        self._entries = itertools.chain((entry,), self._entries)
        return entry

    def __iter__(self) -> Iterator[Entry]:
        for entry in self._entries:
            self.first = self.first or entry
            self.last = entry
            self.count += 1
            yield entry

    @property
    def given(self) -> Given | None:
        """What was given last, if anything was."""
        return Given(self.first, self.last) if self.first and self.last else None

    def reached(self, task: PartitionTask) -> Entry | None:
        """What the handler was given last, if it is known. A list that it was given begins with the first one."""
        return self.first if task.declared.batch else self.last

    @property
    def ends(self) -> tuple[Entry, Entry]:
        """The first and the last one; of a transaction there is always one."""
        for _ in self:
            continue  # what its handler has not come to
        assert self.first  # noqa: S101
        assert self.last  # noqa: S101
        return self.first, self.last


def by_transaction(entries: Iterable[Entry]) -> Iterator[PublishedTogether]:
    """Splits entries where the publisher's transaction changes; the events of one are contiguous."""
    for transaction_id, together in itertools.groupby(entries, key=lambda entry: entry.transaction_id):
        yield PublishedTogether(transaction_id, together)
