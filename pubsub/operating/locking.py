"""Taking partitions out of the workers' hands for as long as an operator changes something about them.

Everybody locks in this order: places, the sequencer's row, the topic, the subscription.
"""

from collections.abc import Sequence
from typing import Any

from django.db import OperationalError, connections, transaction
from django.utils.translation import gettext as _

from pubsub.consuming.claims import claims_in_hand
from pubsub.errors import PartitionInUse
from pubsub.models import ConsumerOffset
from pubsub.sql import load

LOCK_NOT_AVAILABLE = "55P03"
LONGEST_WAIT_MS = 2**31 - 1
"""What PostgreSQL takes."""


def lock_places(
    topic: str,
    topic_id: int,
    group: str,
    partitions: Sequence[int] | None = None,
    *,
    using: str,
    force: bool,
    wait_s: float,
) -> None:
    """Locks a group's places. Refused while a worker has one of them, by its row or by a lease.

    With ``force`` it waits until the transactions in hand are over, and does not ask for leases: the caller ends those,
    by the epoch.
    """
    chosen: dict[str, Any] = {
        "topic_id": topic_id,
        "group_id": group,
        "partitions": None if partitions is None else list(partitions),
    }
    if force:
        _wait(topic, group, chosen, using, wait_s)
        return
    with connections[using].cursor() as cursor:
        cursor.execute(load("lock_places"), chosen)
        locked = {partition for (partition,) in cursor.fetchall()}
    here: dict[str, Any] = {"topic_id": topic_id, "group_id": group}
    if partitions is not None:
        here["partition_id__in"] = list(partitions)
    places = ConsumerOffset.objects.using(using).filter(**here).values_list("partition_id", flat=True)
    # Only now: a worker takes a lease while it has the place locked.
    leased = claims_in_hand(using, topic_id=topic_id, group=group, partitions=partitions)
    held = {partition: _("a worker") for partition in places if partition not in locked} | leased
    if held:
        said = ", ".join(
            _("%(partition)s (by %(holder)s)") % {"partition": partition, "holder": holder}
            for partition, holder in sorted(held.items())
        )
        raise PartitionInUse(
            _(
                'Group "%(group)s" has partitions of topic "%(topic)s" in hand at this moment: %(held)s. Pause the '
                "group and try again, or force it: then what is in hand is waited for, and a lease ends."
            )
            % {"group": group, "topic": topic, "held": said}
        )


def _wait(topic: str, group: str, chosen: dict[str, Any], using: str, wait_s: float) -> None:
    try:
        # A savepoint: after a timeout the caller's transaction is as it was, its own lock_timeout included.
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute("SELECT current_setting('lock_timeout')")
            (before,) = cursor.fetchone()
            wait_ms = int(max(1, min(wait_s * 1000, LONGEST_WAIT_MS)))
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{wait_ms}ms"])
            cursor.execute(load("wait_for_places"), chosen)
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
            raise
        raise PartitionInUse(
            _(
                'A worker of group "%(group)s" has had a partition of topic "%(topic)s" in hand for more than '
                "%(seconds)s s. Stop it, and try again."
            )
            % {"group": group, "topic": topic, "seconds": f"{wait_s:g}"}
        ) from error
