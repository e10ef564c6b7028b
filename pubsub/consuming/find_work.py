"""Which partitions have something to do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections

from pubsub.db.locks import WORKERS
from pubsub.db.pipeline import rendered, send
from pubsub.db.sql import load
from pubsub.sequencing.wake import Moved
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.task import PartitionKey, PartitionTask

from .failing import Failing


@dataclass(frozen=True, kw_only=True)
class Work:
    """A partition that has something to do."""

    task: PartitionTask
    has_new: bool
    """Whether there are entries that the group has not passed."""
    has_due: bool
    """Whether failed events are to be tried again."""
    crashed: bool
    """Whether a worker seems to have died here."""
    is_leased: bool
    """Whether another worker has it under a lease."""
    is_resting: bool = False
    """Whether all workers leave it alone for a while, because the database has failed there."""
    failing: Failing | None = None
    """At what it has failed."""
    events: int = 0
    """How many the group has not passed."""
    was_found: bool = True
    """Whether it was looked for; if not, all that is known is that a pass has moved the partition."""


class WorkFinder:
    """Finds work for some subscriptions, by topic and group. The statement is put together once."""

    def __init__(
        self,
        declarations: Mapping[tuple[str, str], Declaration],
        *,
        using: str,
        worker_id: str,
        partitions: Sequence[int] | None = None,
        topic_ids: Mapping[str, int] | None = None,
    ) -> None:
        self._declarations = declarations
        self._partitions = partitions
        self._topic_ids = topic_ids or {}
        self._tasks: dict[PartitionKey, PartitionTask] = {}
        self._using = using
        self._parameters: dict[str, Any] = {
            "topics": [topic for topic, _ in declarations],
            "groups": [group for _, group in declarations],
            "partitions": partitions,
            "worker_id": worker_id,
            "family": WORKERS,
        }
        self._statement: bytes | None = None
        """Putting it together takes half as long as its answer."""

    def moved(self, moved: Moved) -> Iterator[list[Work]]:
        """The partitions that a pass has moved, as work for each group that reads them."""
        for declared in self._declarations.values():
            topic_id = self._topic_ids.get(declared.topic)
            partitions = sorted(partition for topic, partition in moved if topic == topic_id and self._takes(partition))
            if topic_id is not None and partitions:
                yield [self._moved(declared, topic_id, partition) for partition in partitions]

    def _takes(self, partition: int) -> bool:
        return self._partitions is None or partition in self._partitions

    def _moved(self, declared: Declaration, topic_id: int, partition: int) -> Work:
        key = declared.group, topic_id, partition
        if key not in self._tasks:
            self._tasks[key] = PartitionTask(
                declared=declared, topic_id=topic_id, partition_id=partition, using=self._using
            )
        return Work(task=self._tasks[key], has_new=True, has_due=False, crashed=False, is_leased=False, was_found=False)

    def find(self) -> list[Work]:
        """What there is to do now; what has waited longest comes first."""
        connection = connections[self._using]
        if self._statement is None:
            self._statement = rendered(connection, load("consuming/find_work"), self._parameters)
        return [self._work(*row) for row in send(connection, self._statement).rows()]

    def _work(
        self,
        group: str,
        topic: str,
        topic_id: int,
        partition_id: int,
        below_position: int | None,
        has_new: bool,
        has_due: bool,
        crashed: bool,
        is_leased: bool,
        is_resting: bool,
        failing_offset: int | None,
        failures: int,
        failing_s: float,
        is_ahead: bool,
        events: int,
    ) -> Work:
        task = PartitionTask(
            declared=self._declarations[topic, group],
            topic_id=topic_id,
            partition_id=partition_id,
            using=self._using,
            below_position=below_position,
        )
        return Work(
            task=task,
            has_new=has_new,
            has_due=has_due,
            crashed=crashed,
            is_leased=is_leased,
            is_resting=is_resting,
            failing=None if failing_offset is None else Failing(failing_offset, failures, failing_s, is_ahead),
            events=events,
        )
