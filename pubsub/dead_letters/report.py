"""What is said of a failed attempt, once it is committed: a record of the log with its traceback, and `event_failed`.

What fails on everything would fill the log, so there is a limit for each kind of failure; what exceeds it is counted.
"""

import atexit
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import transaction

from pubsub.conf import conf
from pubsub.events import Entry
from pubsub.signals import event_failed, tell
from pubsub.subscriptions.task import PartitionTask

from .failure import LONGEST_NAME, class_of, cut, loggable
from .log_limit import LogLimit

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FailedAttempt:
    """An attempt at a publisher's transaction, or at all that a handler was given, that has been written down."""

    task: PartitionTask
    first: Entry
    last: Entry
    at: Entry
    """What the handler was given when it failed, as far as is known."""
    attempt: int
    error: BaseException
    retry_in_s: float | None
    """None if there is no further attempt."""
    count: int
    """How many events failed."""
    letter_id: int | None
    """The dead letter of the first of them."""


def report(failed: FailedAttempt) -> None:
    """Tells the log, and observers, when the open transaction has committed: what is undone is tried again."""
    transaction.on_commit(partial(_log, failed), using=failed.task.using, robust=True)
    if event_failed.receivers:
        task = failed.task
        told = partial(
            tell,
            event_failed,
            **task.facts,
            using=task.using,
            offset=failed.first.offset,
            count=failed.count,
            transaction_id=str(failed.first.transaction_id),
            attempt=failed.attempt,
            handler=task.declared.handler_name,
            exception=failed.error,
            retry_in_s=failed.retry_in_s,
        )
        transaction.on_commit(told, using=task.using, robust=True)


def _log(failed: FailedAttempt) -> None:
    """What is retried is a warning, what is given up an error: an alert on errors is not for every hiccup."""
    task, at, error = failed.task, failed.at, failed.error
    level = logging.ERROR if failed.retry_in_s is None else logging.WARNING
    kind = {
        "group": task.declared.group,
        "topic": task.declared.topic,
        "handler": cut(task.declared.handler_name, LONGEST_NAME),
        "exception_class": cut(class_of(error), LONGEST_NAME),
    }
    if not limit.admits((level, *kind.values()), conf().logged_failures_per_minute, partial(_log_count, level, kind)):
        return
    shown = loggable(error)
    logger.log(
        level,
        "%s: %s failed at %s, attempt %d (%s); %s %s",
        task,
        kind["handler"],
        at.name,
        failed.attempt,
        cut(type(error).__name__, LONGEST_NAME),
        "its transaction" if failed.last.transaction_id == failed.first.transaction_id else "all that it was given",
        _what_becomes_of_it(failed),
        exc_info=(type(shown), shown, shown.__traceback__),
        # The most useful ones first: Sentry shows ten.
        extra={
            **kind,
            "event_type": at.type,
            "key": at.key,
            "event_id": str(at.id),
            "offset": at.offset,
            "attempt": failed.attempt,
            "dead_letter": failed.letter_id,
            "retry_in_s": failed.retry_in_s,
            "transaction_id": str(at.transaction_id),
            "partition": task.partition_id,
        },
    )


def _what_becomes_of_it(failed: FailedAttempt) -> str:
    where = "" if failed.letter_id is None else f": see pubsub_dead_letters show {failed.letter_id}"
    if failed.retry_in_s is None:
        return f"is a dead letter now{where}"
    return f"will be retried in {failed.retry_in_s:g} s{where}"


def _log_count(level: int, kind: Mapping[str, Any], count: int) -> None:
    logger.log(
        level,
        "%s on %s: … %d more failures of %s (%s) within a minute: "
        "see pubsub_dead_letters list --group %s --exception %s",
        kind["group"],
        kind["topic"],
        count,
        kind["handler"],
        kind["exception_class"].rpartition(".")[2],
        kind["group"],
        kind["exception_class"],
        extra={**kind, "failures": count},
    )


limit = LogLimit()
atexit.register(limit.close)
