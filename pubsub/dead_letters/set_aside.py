"""Setting aside: events that a group could not handle go to the dead-letter queue, in the transaction that passes them.

Until its attempts are used up, an event there is tried again when it is due; then it is a dead letter.
"""

import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections

from pubsub.db.sql import load
from pubsub.delivery import Delivery
from pubsub.errors import Reject, RetryLater
from pubsub.events import COLUMNS, NAMES, Entry
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.task import PartitionTask

from .failure import describe_failure, loggable, store
from .parking import Parked, let_wait
from .report import FailedAttempt, report

logger = logging.getLogger(__name__)

LONGEST_DELAY_S = 10**9

_LETTER_COLUMNS = NAMES.replace("created_at", "published_at")
_MESSAGE_COLUMNS = ", ".join(f"message.{name}" for name in COLUMNS)


@dataclass(frozen=True, kw_only=True)
class SetAside:
    """What became of a range of events."""

    count: int
    """How many of them were the group's own."""
    delay: float | None
    """Seconds until they are tried again; none if there is no further attempt."""
    keys: list[str]
    letter_id: int | None = None
    """The dead letter of the first one."""


def has_open(task: PartitionTask) -> bool:
    """Whether failed events of this partition wait for another attempt, or for an operator."""
    with connections[task.using].cursor() as db:
        db.execute(load("dead_letters/has_open"), task.parameters)
        return bool(db.fetchone()[0])


def set_aside(
    task: PartitionTask, first: Entry, last: Entry, error: BaseException, *, attempts: int, at: Entry | None = None
) -> SetAside:
    """Sets the events of one publisher's transaction aside, together, and reports it. `at` is where it failed."""
    if isinstance(error, MemoryError):
        traceback.clear_frames(error.__traceback__)  # what has filled the memory may be in the handler's variables
    done = set_range_aside(task, first.position, last.position, error, attempts=attempts)
    if isinstance(error, Parked):
        report_parked(task, str(error))
    else:
        report(
            FailedAttempt(
                task=task,
                first=first,
                last=last,
                at=at or first,
                attempt=attempts,
                error=error,
                retry_in_s=done.delay,
                count=done.count,
                letter_id=done.letter_id,
            )
        )
    return done


def set_range_aside(
    task: PartitionTask, first_position: int, last_position: int, error: BaseException, *, attempts: int
) -> SetAside:
    """The same for any transactions between two positions, without a word."""
    where = [(first_position, last_position)]
    if isinstance(error, Parked):
        return park(task, where)
    delay = delay_after(task.declared, attempts, error)
    how = {"attempts": attempts, "state": state_after(delay), "delay": delay}
    count, keys, _, letter_id = store(task, error, lambda texts: _insert(task, where, {**how, **texts}))
    return SetAside(count=count, delay=delay, keys=keys, letter_id=letter_id)


def park(task: PartitionTask, ranges: Sequence[tuple[int, int]]) -> SetAside:
    """Sets the transactions in these ranges of positions aside, to wait for what has failed before."""
    how = {"attempts": 0, "state": "parked", "delay": None}
    count, keys, first_offsets, _ = _insert(task, ranges, {**how, **describe_failure(task, None)})
    with connections[task.using].cursor() as db:
        let_wait(db, task, keys, first_offsets)
    return SetAside(count=count, delay=None, keys=keys)


def report_parked(task: PartitionTask, why: str) -> None:
    """Writes to the log what happens as it should."""
    logger.info("%s: %s; its transaction waits behind it", task, why, extra=task.facts)


def _insert(
    task: PartitionTask, ranges: Sequence[tuple[int, int]], how: Mapping[str, Any]
) -> tuple[int, list[str], list[int], int | None]:
    """Returns how many events were set aside, their keys, the offset of the first one of each, and the dead letter of
    the first of all."""
    statement = load(
        "dead_letters/set_aside",
        filter=task.declared.filter.sql,
        letter_columns=_LETTER_COLUMNS,
        message_columns=_MESSAGE_COLUMNS,
    )
    with connections[task.using].cursor() as db:
        where: dict[str, Any] = {
            "first_positions": [first for first, _ in ranges],
            "last_positions": [last for _, last in ranges],
            "from_position": ranges[0][0],
            "to_position": ranges[-1][1],
        }
        db.execute(statement, {**task.parameters, **task.declared.filter.parameters, **where, **how})
        count, keys, first_offsets, letter_id = db.fetchone()
        return count, keys, first_offsets, letter_id


def delay_after(declared: Declaration, attempts: int, error: BaseException) -> float | None:
    """Seconds until the next attempt; none if there is to be no further one."""
    if isinstance(error, RetryLater) and declared.delivery is not Delivery.AT_MOST_ONCE:
        return error.delay
    if isinstance(error, Reject):
        return None
    try:
        delay = declared.retry.delay_after(attempts)
        return None if delay is None else min(max(0.0, float(delay)), LONGEST_DELAY_S)
    except Exception as failed:
        logger.error(
            "%s: retry=%r has failed, so there is no further attempt",
            declared.group,
            declared.retry,
            exc_info=loggable(failed, is_ours=True),
        )
        return None


def state_after(delay: float | None) -> str:
    return "dead" if delay is None else "retrying"
