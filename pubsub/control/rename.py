"""Giving a group another name, for one that has another in the code: it continues where it was."""

import dataclasses

from django.db.models import F, Subquery
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from pubsub.db.audit import record
from pubsub.db.sql import load
from pubsub.db.transactions import read_committed
from pubsub.errors import PartitionInUse, Refused
from pubsub.models import DeadLetter, Member, Subscription

from .cursors import lock_cursors
from .groups import find


@dataclasses.dataclass(frozen=True, kw_only=True)
class Renamed:
    """What became of a group's name on a topic."""

    topic: str
    before: str
    after: str


def rename_group(topic: str, group: str, name: str, *, actor: str, using: str, reason: str = "") -> Renamed:
    """Gives a group another name on a topic, with its cursors and its dead letters. It continues where it was.

    Refused while a worker is running for it, and if a group of the new name reads the topic or has left dead letters
    there. Unread events that were published for the former name alone, by ``to_group``, are not for the new one.

    >>> rename_group("default", "missing", "renamed", actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    if not name.strip():
        raise Refused(_("Give the group a name such as email-service, not %(name)r.") % {"name": name})
    with read_committed(using) as cursor:
        subscription = find(topic, group, using)
        here = {"topic_id": subscription.topic_id}
        _refuse_if_taken(topic, name, using, here)
        _refuse_if_in_use(topic, group, using, here)
        lock_cursors(topic, subscription.topic_id, group, using=using, force=False, wait_s=0)
        cursor.execute(load("control/rename_group"), {**here, "group_id": group, "name": name})
        names = {"before": {"group": group}, "after": {"group": name}}
        record("rename", actor=actor, using=using, topic=topic, group=name, reason=reason, **names)
    return Renamed(topic=topic, before=group, after=name)


def _refuse_if_taken(topic: str, name: str, using: str, here: dict[str, int]) -> None:
    if Subscription.objects.using(using).filter(**here, group_id=name).exists():
        raise Refused(
            _(
                'Group "%(name)s" is subscribed to topic "%(topic)s" already. If a worker has subscribed it by '
                "mistake, stop its workers and remove it first."
            )
            % {"name": name, "topic": topic}
        )
    if DeadLetter.objects.using(using).filter(**here, group_id=name).exists():
        raise Refused(
            _('A former group "%(name)s" has left dead letters of topic "%(topic)s": choose another name.')
            % {"name": name, "topic": topic}
        )


def _refuse_if_in_use(topic: str, group: str, using: str, here: dict[str, int]) -> None:
    timeout = Subscription.objects.using(using).filter(**here, group_id=group).values("heartbeat_timeout")[:1]
    since = Now() - Subquery(timeout)
    alive = (
        Member.objects.using(using)
        .filter(**here, group_id=group, last_heartbeat_at__gt=since)
        .order_by(F("last_heartbeat_at").desc())
        .values_list("worker_id", flat=True)
    )
    if workers := list(alive[:3]):
        raise PartitionInUse(
            _('Workers are running for group "%(group)s" on topic "%(topic)s": %(workers)s. Stop them first.')
            % {"group": group, "topic": topic, "workers": ", ".join(workers)}
        )
