"""Locking a group's cursors, so that no worker handles its partitions while an operator changes them.

:mod:`pubsub.db.locks` says in which order all locks are taken.
"""

from collections.abc import Sequence
from typing import Any

from django.db import OperationalError, connections, transaction
from django.utils.translation import gettext as _

from pubsub.consuming.lease import leases_in_hand
from pubsub.db.errors import is_lock_not_available
from pubsub.db.sql import load
from pubsub.errors import PartitionInUse
from pubsub.models import ConsumerOffset

LONGEST_WAIT_MS = 2**31 - 1
"""What PostgreSQL accepts."""


def lock_cursors(
    topic: str,
    topic_id: int,
    group: str,
    partitions: Sequence[int] | None = None,
    *,
    using: str,
    force: bool,
    wait_s: float,
) -> None:
    """Locks a group's cursors. Refused while a worker holds one of them, by a row lock or by a lease.

    With ``force`` it waits until the workers' transactions have ended, and ignores leases: the caller ends those by
    raising the epoch.
    """
    parameters: dict[str, Any] = {
        "topic_id": topic_id,
        "group_id": group,
        "partitions": None if partitions is None else list(partitions),
    }
    if force:
        _wait(topic, group, parameters, using, wait_s)
        return
    with connections[using].cursor() as cursor:
        cursor.execute(load("control/lock_cursors"), parameters)
        locked = {partition for (partition,) in cursor.fetchall()}
    here: dict[str, Any] = {"topic_id": topic_id, "group_id": group}
    if partitions is not None:
        here["partition_id__in"] = list(partitions)
    existing = ConsumerOffset.objects.using(using).filter(**here).values_list("partition_id", flat=True)
    # Only now: a worker takes a lease while it holds the cursor's lock.
    leased = leases_in_hand(using, topic_id=topic_id, group=group, partitions=partitions)
    held = {partition: _("a worker") for partition in existing if partition not in locked} | leased
    if held:
        holders = ", ".join(
            _("%(partition)s (by %(holder)s)") % {"partition": partition, "holder": holder}
            for partition, holder in sorted(held.items())
        )
        raise PartitionInUse(
            _(
                'Workers of group "%(group)s" hold partitions of topic "%(topic)s": %(held)s. Pause the group and '
                "try again, or force it: that waits for transactions and ends leases."
            )
            % {"group": group, "topic": topic, "held": holders}
        )


def _wait(topic: str, group: str, parameters: dict[str, Any], using: str, wait_s: float) -> None:
    try:
        # A savepoint: after a timeout the caller's transaction is as it was, its own lock_timeout included.
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute("SELECT current_setting('lock_timeout')")
            (before,) = cursor.fetchone()
            wait_ms = int(max(1, min(wait_s * 1000, LONGEST_WAIT_MS)))
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{wait_ms}ms"])
            cursor.execute(load("control/wait_for_cursors"), parameters)
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])
    except OperationalError as error:
        if not is_lock_not_available(error):
            raise
        raise PartitionInUse(
            _(
                'A worker of group "%(group)s" has held a partition of topic "%(topic)s" for more than '
                "%(seconds)s s. Stop it and try again."
            )
            % {"group": group, "topic": topic, "seconds": f"{wait_s:g}"}
        ) from error
