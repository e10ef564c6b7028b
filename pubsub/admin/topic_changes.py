"""What a change of a topic's options may cost: shown, and confirmed, before it is made."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from pubsub.models import Status, Subscription, Topic
from pubsub.models.topic import Semantics, ZeroSubscribers
from pubsub.monitoring.problems import duration
from pubsub.monitoring.search import offset_at, oldest_and_tip

from .formats import number


@dataclass(frozen=True, kw_only=True)
class Consequence:
    """Something that cannot be taken back, or that others will notice."""

    option: str
    before: Any
    after: Any
    text: str

    @property
    def agreed(self) -> str:
        """What the user confirms; not the text, whose numbers may change while it is read."""
        return f"{self.option}: {self.before} → {self.after}"


def consequences(topic: Topic, options: Mapping[str, Any], using: str) -> list[Consequence]:
    """What other options would cost a topic as it is stored. Nothing, for most changes: those need no second look.

    >>> topic = Topic.objects.get(name="default")
    >>> [it.agreed for it in consequences(topic, {"total_partitions": 2, "retention": topic.retention}, "default")]
    ['total_partitions: 8 → 2']
    """
    found: list[Consequence] = []
    for option, after in options.items():
        before = getattr(topic, option)
        if before != after and option in _CONSEQUENCES:
            texts = _CONSEQUENCES[option](topic, before, after, using)
            found += [Consequence(option=option, before=before, after=after, text=text) for text in texts]
    return found


def _fewer_partitions(topic: Topic, before: int, after: int, using: str) -> Iterator[str]:
    if after < before:
        yield ngettext(
            "%(before)s partitions become %(after)s: events published from then on go there, and at most %(after)s "
            "worker of a group has work. Events in the other partitions are handled first; each key keeps its order.",
            "%(before)s partitions become %(after)s: events published from then on go there, and at most %(after)s "
            "workers of a group have work. Events in the other partitions are handled first; each key keeps its order.",
            after,
        ) % {"before": number(before), "after": number(after)}


def _shorter_retention(topic: Topic, before: dt.timedelta, after: dt.timedelta, using: str) -> Iterator[str]:
    if after >= before:
        return
    oldest, _tip = oldest_and_tip(topic.pk, using)
    expired = max(0, offset_at(topic.pk, timezone.now() - after, using) - oldest)
    text = _(
        "Events are kept for %(after)s instead of %(before)s. Older ones are dropped for good as soon as every group "
        "has passed them: they can no longer be handled again or analysed."
    ) % {"after": _length(after), "before": _length(before)}
    now = ngettext("%(n)s event is already older than that.", "%(n)s events are already older than that.", expired) % {
        "n": number(expired)
    }
    yield f"{text} {now}"


def _tighter_age(topic: Topic, before: dt.timedelta | None, after: dt.timedelta | None, using: str) -> Iterator[str]:
    if after is not None and (before is None or after < before):
        yield _(
            "A group that has not read expired events older than %(after)s loses them unread: its cursors move on to "
            "the oldest events still kept."
        ) % {"after": _length(after)}


def _tighter_size(topic: Topic, before: int | None, after: int | None, using: str) -> Iterator[str]:
    if after is not None and (before is None or after < before):
        yield _(
            "A group that holds back more than %(after)s bytes of expired events loses the oldest of them unread: its "
            "cursors move on to the oldest events still kept."
        ) % {"after": number(after)}


def _queue(topic: Topic, before: str, after: str, using: str) -> Iterator[str]:
    if after == Semantics.QUEUE:
        yield _("The topic becomes a queue: one group gets its events, and no second group can subscribe.")


def _refusing(topic: Topic, before: str, after: str, using: str) -> Iterator[str]:
    if after != ZeroSubscribers.REFUSE:
        return
    text = _("Publishing fails while no group is subscribed.")
    read = Subscription.objects.using(using).filter(topic=topic, status__in=(Status.ACTIVE, Status.PAUSED))
    if not read.exists():
        text += " " + _("No group is subscribed now: publishers get an error from now on.")
    yield text


_CONSEQUENCES: dict[str, Callable[[Topic, Any, Any, str], Iterator[str]]] = {
    "total_partitions": _fewer_partitions,
    "retention": _shorter_retention,
    "max_age": _tighter_age,
    "max_bytes": _tighter_size,
    "semantics": _queue,
    "zero_subscribers": _refusing,
}


def _length(span: dt.timedelta) -> str:
    return duration(span.total_seconds())
