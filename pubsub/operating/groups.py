"""The states of a subscription, and how one becomes another.

ACTIVE ⇄ PAUSED          operators
ACTIVE → DEAD            the system: all members have missed their heartbeats
DEAD   → ACTIVE          operators; the system, when a member is back
DEAD   → PAUSED          operators
any    → CANCELLED       operators; the system, for one that has expired. Nothing leads back: it can only be removed
"""

import dataclasses
import difflib
from typing import Any

from django.db import connections
from django.db.models import Sum
from django.utils.text import get_text_list
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pubsub.errors import Refused, UnknownGroup
from pubsub.models import Claim, ConsumerLag, ConsumerOffset, DeadLetter, Member, Status, Subscription
from pubsub.observing.journal import record
from pubsub.sql import load
from pubsub.transactions import read_committed

from .locking import lock_places

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
        "It is cancelled for good: remove it, and a consumer subscribes it anew."
    ),
    (Status.CANCELLED, Status.PAUSED): gettext_lazy("It is cancelled for good, and nothing is kept for it."),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupState:
    """What became of a subscription."""

    topic: str
    group: str
    before: str
    after: str

    @property
    def changed(self) -> bool:
        return self.before != self.after


def pause(topic: str, group: str, *, actor: str, using: str, reason: str = "") -> GroupState:
    """Lets a group's workers finish what they have in hand and begin nothing. It keeps its place and what is unread.

    >>> pause("default", "nobody", actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    return change_status(topic, group, Status.PAUSED, actor=actor, using=using, reason=reason)


def resume(topic: str, group: str, *, actor: str, using: str, reason: str = "") -> GroupState:
    """Lets a group that was paused, or is dead, go on where it stands.

    >>> resume("default", "nobody", actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    return change_status(topic, group, Status.ACTIVE, actor=actor, using=using, reason=reason)


def cancel(topic: str, group: str, *, actor: str, using: str, reason: str = "") -> GroupState:
    """Ends a subscription for good: it is not worked on, holds nothing back, and can only be removed.

    >>> cancel("default", "nobody", actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    return change_status(topic, group, Status.CANCELLED, actor=actor, using=using, reason=reason)


def change_status(
    topic: str, group: str, to: Status, *, actor: str, using: str, reason: str = "", by_system: bool = False
) -> GroupState:
    """One move of the state machine, locked and journalled. A move to the present state is none."""
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
                        "instead": _WHAT_INSTEAD.get((before, to)) or _("Only the system itself does that."),
                    }
                )
            with connections[using].cursor() as cursor:
                cursor.execute(
                    load("set_status"), {"id": subscription.pk, "status": to.value, "reason": _because(actor, reason)}
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
    """Takes a subscription away, with its places and members. Returns what it was.

    Refused while it is active (a running consumer would subscribe it anew, from now on), and while it has unread events
    or open dead letters, unless it is cancelled; ``force`` removes it all the same, and discards the letters. Letters
    that are resolved or discarded stay as long as their own retention says.

    >>> remove_group("default", "nobody", actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    with read_committed(using):
        topic_number = find(topic, group, using).topic_id
        lock_places(topic, topic_number, group, using=using, force=force, wait_s=wait_s)
        subscription = _locked(topic, group, using)
        here: dict[str, Any] = {"topic_id": topic_number, "group_id": group}
        letters = DeadLetter.objects.using(using).filter(**here, state__in=OPEN_LETTERS)
        lag = ConsumerLag.objects.using(using).filter(**here).aggregate(lag=Sum("lag"))["lag"] or 0
        lost = [text for count, text in ((lag, _("unread events")), (letters.count(), _("open dead letters"))) if count]
        if not force:
            if subscription.status == Status.ACTIVE:
                raise Refused(
                    _(
                        'Group "%(group)s" on topic "%(topic)s" is ACTIVE: a consumer that runs would subscribe it '
                        "anew, from then on. Stop its consumers and pause or cancel it first, or force it."
                    )
                    % {"group": group, "topic": topic}
                )
            if lost and subscription.status != Status.CANCELLED:
                raise Refused(
                    _(
                        'Group "%(group)s" on topic "%(topic)s" still has %(lost)s. Cancel it first if nobody needs '
                        "them, or force it."
                    )
                    % {"group": group, "topic": topic, "lost": get_text_list(lost, _("and"))}
                )
        places = ConsumerOffset.objects.using(using).filter(**here)
        before = {
            "status": subscription.status,
            "lag": lag,
            "next_offsets": dict(places.order_by("partition_id").values_list("partition_id", "next_offset")),
            "discarded_letters": letters.count(),
        }
        with connections[using].cursor() as cursor:
            cursor.execute(
                load("discard_letters_of_group"), {**here, "states": [state.value for state in OPEN_LETTERS]}
            )
        Claim.objects.using(using).filter(**here).delete()
        Member.objects.using(using).filter(**here).delete()
        places.delete()
        subscription.delete(using=using)
        record("remove", actor=actor, using=using, topic=topic, group=group, reason=reason, before=before)
    return before


def subscriptions_of(group: str, using: str, topic: str | None = None) -> list[Subscription]:
    """A group's subscriptions, on one topic or on all; an error that names the nearest group, if there is none.

    >>> subscriptions_of("nobody", "default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: No group "nobody" is subscribed to any topic. There are: none.
    """
    everything = Subscription.objects.using(using).select_related("topic").order_by("topic__name")
    found = everything.filter(group_id=group)
    if topic is not None:
        found = found.filter(topic__name=topic)
    if chosen := list(found):
        return chosen
    subscribed = everything if topic is None else everything.filter(topic__name=topic)
    known = sorted(set(subscribed.values_list("group_id", flat=True)))
    nearest = difflib.get_close_matches(group, known, n=1)
    if nearest:
        hint = _('Did you mean "%(nearest)s"?') % {"nearest": nearest[0]}
    else:
        hint = _("There are: %(known)s.") % {"known": ", ".join(known) or _("none")}
    if topic is None:
        said = _('No group "%(group)s" is subscribed to any topic.') % {"group": group}
    else:
        said = _('No group "%(group)s" is subscribed to topic %(topic)r.') % {"group": group, "topic": topic}
    raise UnknownGroup(f"{said} {hint}")


def find(topic: str, group: str, using: str) -> Subscription:
    (subscription,) = subscriptions_of(group, using, topic)
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
