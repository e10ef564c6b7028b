"""Several partitions of a group in one transaction, where each has little: one commit and two round trips for all.

Their cursors are locked in one statement, and moved in one. A batch of each is handled, partition by partition. What
fails undoes all of it, and is for the caller to try again in each partition by itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db import DatabaseError, connections, transaction

from pubsub.db.guard import refusing_to_end
from pubsub.db.pipeline import execute_together
from pubsub.db.sql import load
from pubsub.db.transactions import hooks_of, make_hooks_robust
from pubsub.events import Entry, columns_of
from pubsub.subscriptions.task import PartitionTask

from .cursor import Cursor, array
from .handling import Handling
from .mode import Outcome, Together
from .reader import EntryReader, entry_of
from .session import check_not_ended

_READ = load("consuming/read_locked", columns=columns_of("message"), partition=", partition_id")
_LOCK = "SELECT * FROM pubsub_lock_cursors_v1(%(group_id)s, %(topic_id)s, %(partitions)s, %(only_plain)s)"
_MOVE = (
    "SELECT pubsub_move_cursors_v1(%(group_id)s, %(topic_id)s, %(partitions)s, %(next_offsets)s, %(next_positions)s, "
    "%(passed)s, %(xid)s)"
)


def handle_several(
    tasks: Sequence[PartitionTask],
    size: int,
    may_go_on: Callable[[int, bool], bool],
    handling_of: Callable[[PartitionTask], Handling],
    *,
    only_plain: bool = False,
) -> Together | None:
    """Handles what comes next in partitions of one group, about `size` events in all. Those that another worker has are
    left out; `may_go_on` is asked before each but the first. None, if they must be plain, and one is not."""
    using = tasks[0].using
    connection = connections[using]
    by_partition = {task.partition_id: task for task in tasks}
    handled: list[tuple[PartitionTask, Outcome]] = []
    moved: list[tuple[Cursor, Entry, int]] = []
    passed, is_all = 0, True
    with transaction.atomic(using=using):  # BEGIN travels with the first statement
        locked = _lock_and_read(connection, by_partition, size, only_plain)
        if locked is None:
            return None
        for cursor, reader in locked:
            if passed >= size or (moved and not may_go_on(passed, False)):
                is_all = False
                break
            task = by_partition[cursor.partition_id]
            batch = reader.next_batch(cursor.next_position, size - passed)
            handling = handling_of(task)
            try:
                with refusing_to_end(using):
                    outcome = handling(batch)
            except BaseException as error:
                handling.judge(error, batch.given)
                raise
            if outcome.last:
                passed += outcome.passed
                moved.append((cursor, outcome.last, outcome.passed))
                handled.append((task, outcome))
                reader.keep_from(outcome.last.position + 1)
            is_all = is_all and not reader.may_have_more
        if hooks_of(connection):
            make_hooks_robust(connection)
        try:
            if moved:
                execute_together(connection, [_MOVE, "COMMIT"], {**tasks[0].parameters, **_moves(moved)})
        except DatabaseError as error:
            check_not_ended(error, tasks[0])
            raise
    return Together(handled, is_all)


def _lock_and_read(
    connection: Any, tasks: Mapping[int, PartitionTask], size: int, only_plain: bool
) -> list[tuple[Cursor, EntryReader]] | None:
    """The cursors that no other worker has, and readers that have what comes next there, in one round trip."""
    readers = {partition_id: EntryReader(task, size) for partition_id, task in tasks.items()}
    first = next(iter(readers.values()))
    parameters = {**first.parameters_at(None), "partitions": array(list(tasks)), "only_plain": only_plain}
    answers = execute_together(connection, [_LOCK, _READ], parameters)
    cursors = [Cursor(*row) for row in answers.rows(-2)]
    if cursors and cursors[0].partition_id is None:
        return None
    rows: dict[int, list[Entry]] = {partition_id: [] for partition_id in tasks}
    for *entry, partition_id in answers.rows():
        rows[partition_id].append(entry_of(entry))
    for cursor in cursors:
        readers[cursor.partition_id].add(rows[cursor.partition_id], found_at=cursor.next_position)
    return [(cursor, readers[cursor.partition_id]) for cursor in cursors]


def _moves(done: Sequence[tuple[Cursor, Entry, int]]) -> dict[str, Any]:
    """The parameters that move cursors of one transaction, each behind an event, over so many."""
    return {
        "partitions": array([cursor.partition_id for cursor, _, _ in done]),
        "next_offsets": array([last.offset + 1 for _, last, _ in done]),
        "next_positions": array([last.position + 1 for _, last, _ in done]),
        "passed": array([passed for _, _, passed in done]),
        "xid": done[0][0].xid,
    }
