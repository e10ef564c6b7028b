"""The budget for failures of the database: how often, and for how long, the same events may fail by it in a row.

A deadlock or a lost connection passes, and then no event is to blame. But an event can be what the database fails of,
each time: by a query that always runs into a timeout, by what a trigger raises. So each failure under a handler is
counted, with the cursor, where another worker finds it after a restart. From the second one on a partition is handled
one publisher's transaction at a time, and when the budget is used up the failure is the handler's.
"""

import time
from typing import Any, NamedTuple

import psycopg
from django.db import connections, transaction

from pubsub.conf import conf
from pubsub.db.errors import in_the_databases_words, is_ctrl_c, is_disk_full, is_transient
from pubsub.db.sql import load
from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionTask

from .cursor import lock_cursor
from .entries import Given

Doomed = dict[Any, BaseException]
"""Publisher's transactions that are not to be tried again, and why, until they are set aside: that has to wait where
the database is away."""

LONGEST_REST_S = 30
"""A partition in which the database has failed rests no longer than this."""


class Failing(NamedTuple):
    """What is known of a publisher's transaction at which the database has failed."""

    offset: int
    """Where it begins."""
    times: int
    """How often in a row."""
    seconds: float
    """How long those attempts have taken."""
    is_ahead: bool
    """Whether the group has not passed it yet."""


class Interrupted(Exception):
    """The database has failed under a handler, and that may pass: the events are tried again."""

    def __init__(self, task: PartitionTask, in_hand: Given, times: int, began: float) -> None:
        self.task = task
        self.in_hand = in_hand
        self.times = times
        self.began = began
        self.seconds = time.monotonic() - began

    def __str__(self) -> str:
        return (
            f"the database failed while {self.task.declared.handler_name} was handling {self.in_hand.last.name}, "
            f"{self.times} of {conf().transient_attempts} times: {in_the_databases_words(self.__cause__)}"
        )

    @property
    def facts(self) -> dict[str, Any]:
        """For the log's `extra`."""
        return {**self.task.facts, "offset": self.in_hand.last.offset, "failures": self.times}

    def count(self, rest_s: float) -> None:
        """Counts it, and lets the partition rest for so many seconds the first time."""
        task = self.task
        with transaction.atomic(using=task.using), connections[task.using].cursor() as db:
            if lock_cursor(db, task) is None:
                return  # another worker is there, and finds out for itself
            db.execute(
                load("consuming/count_failure"),
                {
                    **task.parameters,
                    "failing_offset": self.in_hand.first.offset,
                    "seconds": self.seconds,
                    "rest_s": rest_s,
                    "longest_rest_s": LONGEST_REST_S,
                    "began_s_ago": time.monotonic() - self.began,
                },
            )


def bear(error: BaseException, task: PartitionTask, in_hand: Given, began: float, before: Failing | None) -> None:
    """Raises Interrupted while a failure of the database may pass. Returns where it is to count as the handler's."""
    if is_ctrl_c(error) or is_disk_full(error):
        raise error  # no event's doing: without room, not even a dead letter could be kept
    times, seconds = 1, time.monotonic() - began
    if before and before.offset == in_hand.first.offset:
        times, seconds = times + before.times, seconds + before.seconds
    if times >= conf().transient_attempts or (times > 1 and seconds >= conf().transient_s):
        return
    if is_transient(error):
        raise Interrupted(task, in_hand, times, began) from error
    lost = psycopg.OperationalError(
        f"the connection was lost, and the handler raised {type(error).__name__} of its own"
    )
    lost.__cause__ = error
    raise Interrupted(task, in_hand, times, began) from lost


def interrupted_behind(error: Exception) -> Exception:
    """What it is about: where the database is away, leaving the transaction fails, too, and with another error."""
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, Interrupted):
            return behind
        behind = behind.__context__
    return error


def forget_failures(db: Any, task: PartitionTask, first: Entry | None, before: Failing | None) -> None:
    """What has failed is settled, if it begins with this event. The caller has the cursor's lock, or takes it so."""
    if first and before and before.offset == first.offset:
        db.execute(load("consuming/forget_failures"), task.parameters)
