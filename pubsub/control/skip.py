"""Skipping an event: a group passes it without handling it, also while a worker hangs in it.

What was published together fails together, so what is passed is the event's publisher's transaction, as far as it is in
the partition. It becomes a dead letter, as if the handler had rejected it: nothing is lost, it can be replayed, and
``on_failure`` decides about what comes behind it as ever.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _

from pubsub.consuming.cursor import lock_cursor
from pubsub.consuming.lease import forget_lease, leases_in_hand
from pubsub.consuming.reader import EntryReader
from pubsub.db.audit import record
from pubsub.db.sql import load
from pubsub.db.transactions import read_committed
from pubsub.dead_letters.set_aside import set_range_aside
from pubsub.delivery import Delivery, OnFailure
from pubsub.errors import PartitionInUse, Refused, Skipped
from pubsub.models import ConsumerOffset, LogEntry, OutboxMessage, Resize, Status, Subscription
from pubsub.monitoring.calls import calls_in_hand
from pubsub.monitoring.facts import CallInHand
from pubsub.monitoring.words import duration
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.task import PartitionTask

from .groups import find
from .workers import end_sessions

LOOK_S = 0.1
"""How often it looks whether the event is the next one."""


@dataclass(frozen=True, kw_only=True)
class Skip:
    """What skipping an event means, or has meant."""

    topic: str
    group: str
    partition: int
    offset: int
    before: int
    """How many events of the partition the group has to pass first."""
    calls: tuple[CallInHand, ...] = ()
    """Calls that have it in hand: their sessions have to end."""
    letters: int = 0
    """How many events became dead letters."""

    @property
    def here(self) -> dict[str, Any]:
        return {"topic": self.topic, "group": self.group, "partition": self.partition, "offset": self.offset}


def preview_skip(topic: str, group: str, *, partition: int, offset: int, using: str) -> Skip:
    """What skipping it would mean. Refused where it cannot be skipped.

    >>> preview_skip("default", "missing", partition=0, offset=1, using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    return _look(find(topic, group, using), partition, offset, using)[0]


def skip_event(
    topic: str,
    group: str,
    *,
    partition: int,
    offset: int,
    actor: str,
    using: str,
    reason: str = "",
    force: bool = False,
    wait_s: float = 30,
) -> Skip:
    """Lets a group pass an event, which becomes a dead letter. With ``force`` the database sessions of the workers that
    have it in hand are ended first. What comes before it has to be handled first: that is waited for, for ``wait_s``.

    >>> skip_event("default", "missing", partition=0, offset=1, actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    subscription = find(topic, group, using)
    until = time.monotonic() + wait_s
    error = Skipped(f"skipped by {actor}: {reason}" if reason else f"skipped by {actor}")
    while True:
        plan, position = _look(subscription, partition, offset, using)
        if plan.calls and not force:
            raise PartitionInUse(_in_hand(plan))
        end_sessions(plan.calls, using)
        with read_committed(using) as cursor:
            letters = _skip(cursor, _task(subscription, partition, using), position, error, force=bool(plan.calls))
            if letters is not None:
                workers = [call.worker_id for call in plan.calls]
                after = {"partition": partition, "offset": offset, "letters": letters, "workers": workers}
                record("skip", actor=actor, using=using, topic=topic, group=group, reason=reason, after=after)
                return replace(plan, letters=letters)
        if time.monotonic() > until:
            raise PartitionInUse(
                _(
                    "Offset %(offset)s is not the next one of group %(group)s in partition %(partition)s of %(topic)s, "
                    "or a worker has the partition: %(before)s events come before it. Let a worker handle them, and "
                    "try again."
                )
                % {**plan.here, "before": plan.before}
            )
        time.sleep(LOOK_S)


def _look(subscription: Subscription, partition: int, offset: int, using: str) -> tuple[Skip, int]:
    """How it stands, and the position of the event."""
    topic, group = subscription.topic.name, subscription.group_id
    here: dict[str, Any] = {"topic": topic, "group": group, "partition": partition, "offset": offset}
    entries = LogEntry.objects.using(using).filter(topic_id=subscription.topic_id)
    entry = entries.filter(c_offset=offset, partition_id=partition).first()
    cursor = ConsumerOffset.objects.using(using).filter(
        topic_id=subscription.topic_id, group_id=group, partition_id=partition
    )
    stands_at = cursor.values_list("next_position", flat=True).first()
    if entry is None or stands_at is None:
        raise Refused(
            _("Group %(group)s reads no event at offset %(offset)s in partition %(partition)s of %(topic)s.") % here
        )
    if subscription.status == Status.CANCELLED:
        raise Refused(_("Group %(group)s on %(topic)s is cancelled: it handles nothing.") % here)
    if entry.position < stands_at:
        raise Refused(
            _(
                "Group %(group)s has passed offset %(offset)s of %(topic)s already. If a worker still handles it, at "
                "most once, stop that worker: the event then becomes a dead letter."
            )
            % here
        )
    calls = tuple(
        call
        for call in calls_in_hand(using)
        if (call.topic, call.group, call.partition) == (topic, group, partition) and _holds(call, entry, using)
    )
    before = entries.filter(partition_id=partition, position__gte=stands_at, position__lt=entry.position).count()
    return Skip(**here, before=before, calls=calls), entry.position


def _holds(call: CallInHand, entry: LogEntry, using: str) -> bool:
    """Whether a call has the event in hand. It has all from the cursor on to its own, and to the end of its publisher's
    transaction."""
    if call.offset >= entry.c_offset or call.events > 1:
        return True
    both = LogEntry.objects.using(using).filter(topic_id=entry.topic_id, c_offset__in=[call.offset, entry.c_offset])
    messages = OutboxMessage.objects.using(using).filter(id__in=list(both.values_list("message_id", flat=True)))
    return messages.values("transaction_id").distinct().count() == 1


def _skip(db: Any, task: PartitionTask, position: int, error: Skipped, *, force: bool) -> int | None:
    """Passes the event, if it is the next one. Returns how many events became dead letters; None where it is not."""
    cursor = lock_cursor(db, task)
    if cursor is None:
        return None
    group, topic_id, partition = task.key
    if leases_in_hand(task.using, topic_id=topic_id, group=group, partitions=[partition]) and not force:
        return None
    forget_lease(db, task)
    db.execute(load("control/end_epoch"), task.parameters)
    batch = EntryReader(task, 1).next_batch(cursor.next_position, 1)
    for _entry in batch:
        continue
    given = batch.given
    if given is None or not given.first.position <= position <= given.last.position:
        return None
    done = set_range_aside(task, given.first.position, given.last.position, error, attempts=1)
    db.execute(
        load("control/pass_skipped"),
        {
            **task.parameters,
            "next_offset": given.last.offset + 1,
            "next_position": given.last.position + 1,
            "count": batch.passed,
            "xid": cursor.xid,
        },
    )
    return done.count


def _task(subscription: Subscription, partition: int, using: str) -> PartitionTask:
    resizes = Resize.objects.using(using).filter(
        topic_id=subscription.topic_id, position__gt=subscription.resizes_passed
    )
    declared = Declaration(
        topic=subscription.topic.name,
        group=subscription.group_id,
        handler=_not_called,
        where=subscription.where,
        delivery=Delivery(subscription.delivery),
        on_failure=OnFailure(subscription.on_failure),
    )
    return PartitionTask(
        declared=declared,
        topic_id=subscription.topic_id,
        partition_id=partition,
        using=using,
        below_position=resizes.order_by("position").values_list("position", flat=True).first(),
    )


def _not_called(event: Any) -> None:
    """What stands for the handler, which is not called."""


def _in_hand(plan: Skip) -> str:
    call = plan.calls[0]
    return _(
        "Worker %(worker)s has been handling offset %(at)s of %(topic)s for group %(group)s for %(age)s. Force it: its "
        "database session ends then, and with it what the worker has in hand there."
    ) % {**plan.here, "worker": call.worker_id, "at": call.offset, "age": duration(call.seconds)}
