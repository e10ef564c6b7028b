"""The states of a subscription, and the transitions between them.

ACTIVE ⇄ PAUSED          operators
ACTIVE → DEAD            the system: all members have missed their heartbeats
DEAD   → ACTIVE          operators; the system, when a member rejoins
DEAD   → PAUSED          operators
any    → CANCELLED       operators; the system, when it has expired. There is no way back: it can only be removed
"""

import dataclasses
from typing import Any

from django.db import connections
from django.db.models import Sum
from django.utils.text import get_text_list
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pubsub.db.audit import record
from pubsub.db.sql import load
from pubsub.db.transactions import read_committed
from pubsub.errors import Refused, UnknownGroup
from pubsub.models import ConsumerLag, ConsumerOffset, DeadLetter, Lease, Member, Status, Subscription
from pubsub.suggest import hint

from .cursors import lock_cursors

BY_OPERATORS = frozenset(
    {
        (Status.ACTIVE, Status.PAUSED),
        (Status.PAUSED, Status.ACTIVE),
        (Status.DEAD, Status.ACTIVE),
        (Status.DEAD, Status.PAUSED),
        (Status.ACTIVE, Status.CANCELLED),
        (Status.PAUSED, Status.CANCELLED),
        (Status.DEAD, Status.CANCELLED),
    }
)
BY_THE_SYSTEM = frozenset(
    {
        (Status.ACTIVE, Status.DEAD),
        (Status.DEAD, Status.ACTIVE),
        (Status.ACTIVE, Status.CANCELLED),
        (Status.PAUSED, Status.CANCELLED),
        (Status.DEAD, Status.CANCELLED),
    }
)

_ACTIONS = {Status.ACTIVE: "resume", Status.PAUSED: "pause", Status.CANCELLED: "cancel", Status.DEAD: "dead"}

OPEN_LETTERS = (DeadLetter.State.DEAD, DeadLetter.State.RETRYING, DeadLetter.State.PARKED)

_WHAT_INSTEAD = {
    (Status.CANCELLED, Status.ACTIVE): gettext_lazy(
        "It is cancelled for good: remove it, and a consumer can subscribe again."
    ),
    (Status.CANCELLED, Status.PAUSED): gettext_lazy("It is cancelled for good, and no events are kept for it."),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupState:
    """A subscription's status before and after an action."""

    topic: str
    group: str
    before: str
    after: str

    @property
    def changed(self) -> bool:
        return self.before != self.after


def pause(topic: str, group: str, *, actor: str, using: str, reason: str = "") -> GroupState:
    """Stops a group after its current batches. It keeps its cursors and its unread events.

    >>> pause("default", "missing", actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    return change_status(topic, group, Status.PAUSED, actor=actor, using=using, reason=reason)


def resume(topic: str, group: str, *, actor: str, using: str, reason: str = "") -> GroupState:
    """Lets a paused or dead group continue from its cursors.

    >>> resume("default", "missing", actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    return change_status(topic, group, Status.ACTIVE, actor=actor, using=using, reason=reason)


def cancel(topic: str, group: str, *, actor: str, using: str, reason: str = "") -> GroupState:
    """Ends a subscription for good: it handles nothing, holds nothing back, and can only be removed.

    >>> cancel("default", "missing", actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    return change_status(topic, group, Status.CANCELLED, actor=actor, using=using, reason=reason)


def change_status(
    topic: str, group: str, to: Status, *, actor: str, using: str, reason: str = "", by_system: bool = False
) -> GroupState:
    """One transition of the state machine, locked and audited. A transition to the present state changes nothing."""
    with read_committed(using):
        subscription = _locked(topic, group, using)
        before = Status(subscription.status)
        if before != to:
            if (before, to) not in (BY_THE_SYSTEM if by_system else BY_OPERATORS):
                raise Refused(
                    _('Group "%(group)s" on topic "%(topic)s" is %(before)s, and cannot become %(after)s. %(instead)s')
                    % {
                        "group": group,
                        "topic": topic,
                        "before": before,
                        "after": to,
                        "instead": _WHAT_INSTEAD.get((before, to)) or _("Only the system makes this change."),
                    }
                )
            with connections[using].cursor() as cursor:
                cursor.execute(
                    load("control/set_status"),
                    {"id": subscription.pk, "status": to.value, "reason": _because(actor, reason)},
                )
            record(
                _ACTIONS[to],
                actor=actor,
                using=using,
                topic=topic,
                group=group,
                reason=reason,
                before={"status": before.value},
                after={"status": to.value},
            )
    return GroupState(topic=topic, group=group, before=before.value, after=to.value)


def remove_group(
    topic: str, group: str, *, actor: str, using: str, reason: str = "", force: bool = False, wait_s: float = 30
) -> dict[str, Any]:
    """Removes a subscription, with its cursors and members. Returns what it was.

    Refused while it is active (a running consumer would subscribe again, with new events only), and while it has unread
    events or open dead letters, unless it is cancelled. ``force`` removes it anyway, and discards its dead letters.
    Resolved and discarded dead letters stay for their own retention.

    >>> remove_group("default", "missing", actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    with read_committed(using):
        topic_number = find(topic, group, using).topic_id
        lock_cursors(topic, topic_number, group, using=using, force=force, wait_s=wait_s)
        subscription = _locked(topic, group, using)
        here: dict[str, Any] = {"topic_id": topic_number, "group_id": group}
        letters = DeadLetter.objects.using(using).filter(**here, state__in=OPEN_LETTERS)
        lag = ConsumerLag.objects.using(using).filter(**here).aggregate(lag=Sum("lag"))["lag"] or 0
        lost = [text for count, text in ((lag, _("unread events")), (letters.count(), _("open dead letters"))) if count]
        if not force:
            if subscription.status == Status.ACTIVE:
                raise Refused(
                    _(
                        'Group "%(group)s" on topic "%(topic)s" is ACTIVE: a running consumer would subscribe it '
                        "again, with new events only. Stop its consumers and pause or cancel it first, or force it."
                    )
                    % {"group": group, "topic": topic}
                )
            if lost and subscription.status != Status.CANCELLED:
                raise Refused(
                    _(
                        'Group "%(group)s" on topic "%(topic)s" still has %(lost)s. Cancel it first if they are '
                        "not needed, or force it."
                    )
                    % {"group": group, "topic": topic, "lost": get_text_list(lost, _("and"))}
                )
        cursors = ConsumerOffset.objects.using(using).filter(**here)
        before = {
            "status": subscription.status,
            "lag": lag,
            "next_offsets": dict(cursors.order_by("partition_id").values_list("partition_id", "next_offset")),
            "discarded_letters": letters.count(),
        }
        with connections[using].cursor() as cursor:
            cursor.execute(
                load("control/discard_letters_of_group"), {**here, "states": [state.value for state in OPEN_LETTERS]}
            )
        Lease.objects.using(using).filter(**here).delete()
        Member.objects.using(using).filter(**here).delete()
        cursors.delete()
        subscription.delete(using=using)
        record("remove", actor=actor, using=using, topic=topic, group=group, reason=reason, before=before)
    return before


def subscriptions_of(group: str, *, topic: str | None = None, using: str) -> list[Subscription]:
    """A group's subscriptions, to one topic or to all. If there are none, the error suggests the nearest group.

    >>> subscriptions_of("missing", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: No group "missing" is subscribed to any topic. There are: none.
    """
    everything = Subscription.objects.using(using).select_related("topic").order_by("topic__name")
    found = everything.filter(group_id=group)
    if topic is not None:
        found = found.filter(topic__name=topic)
    if chosen := list(found):
        return chosen
    subscribed = everything if topic is None else everything.filter(topic__name=topic)
    known = sorted(set(subscribed.values_list("group_id", flat=True)))
    if topic is None:
        missing = _('No group "%(group)s" is subscribed to any topic.') % {"group": group}
    else:
        missing = _('No group "%(group)s" is subscribed to topic "%(topic)s".') % {"group": group, "topic": topic}
    raise UnknownGroup(f"{missing} {hint(group, known)}")


def find(topic: str, group: str, using: str) -> Subscription:
    (subscription,) = subscriptions_of(group, topic=topic, using=using)
    return subscription


def _locked(topic: str, group: str, using: str) -> Subscription:
    subscription = (
        Subscription.objects.using(using)
        .filter(topic__name=topic, group_id=group)
        .select_for_update(of=("self",), no_key=True)
        .first()
    )
    return subscription or find(topic, group, using)  # which raises


def _because(actor: str, reason: str) -> str:
    return f"{reason} ({actor})" if reason else f"by {actor}"
