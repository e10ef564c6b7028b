"""What a change of a topic's options may cost: told, and agreed to, before it is made."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from pubsub.models import Status, Subscription, Topic
from pubsub.models.topic import Semantics, ZeroSubscribers
from pubsub.observing.log_search import ends, offset_at
from pubsub.observing.problems import duration

from .showing import number


@dataclass(frozen=True, kw_only=True)
class Consequence:
    """Something that cannot be taken back, or that others will notice."""

    option: str
    before: Any
    after: Any
    text: str

    @property
    def agreed(self) -> str:
        """What somebody has agreed to; not the text, whose numbers may change while it is read."""
        return f"{self.option}: {self.before} → {self.after}"


def consequences(topic: Topic, options: Mapping[str, Any], using: str) -> list[Consequence]:
    """What other options would cost a topic as it is stored. Nothing, for most changes: those need no second look.

    >>> topic = Topic.objects.get(name="default")
    >>> [it.agreed for it in consequences(topic, {"total_partitions": 2, "retention": topic.retention}, "default")]
    ['total_partitions: 8 → 2']
    """
    told: list[Consequence] = []
    for option, after in options.items():
        before = getattr(topic, option)
        if before != after and option in _TELL:
            texts = _TELL[option](topic, before, after, using)
            told += [Consequence(option=option, before=before, after=after, text=text) for text in texts]
    return told


def _fewer_partitions(topic: Topic, before: int, after: int, using: str) -> Iterator[str]:
    if after < before:
        yield ngettext(
            "%(before)s partitions become %(after)s: what is published from then on goes there, and no more than "
            "%(after)s worker of a group has something to do. What stands in the others is handled first; the order "
            "of each key is kept.",
            "%(before)s partitions become %(after)s: what is published from then on goes there, and no more than "
            "%(after)s workers of a group have something to do. What stands in the others is handled first; the order "
            "of each key is kept.",
            after,
        ) % {"before": number(before), "after": number(after)}


def _shorter_retention(topic: Topic, before: dt.timedelta, after: dt.timedelta, using: str) -> Iterator[str]:
    if after >= before:
        return
    oldest, _tip = ends(topic.pk, using)
    expired = max(0, offset_at(topic.pk, timezone.now() - after, using) - oldest)
    said = _(
        "Messages are kept for %(after)s instead of %(before)s. What is older goes for good as soon as every group has "
        "passed it, and cannot be replayed, sought or analysed any more."
    ) % {"after": _length(after), "before": _length(before)}
    now = ngettext(
        "%(n)s message is older than that already.", "%(n)s messages are older than that already.", expired
    ) % {"n": number(expired)}
    yield f"{said} {now}"


def _tighter_age(topic: Topic, before: dt.timedelta | None, after: dt.timedelta | None, using: str) -> Iterator[str]:
    if after is not None and (before is None or after < before):
        yield _(
            "A group that has not read what has expired and is older than %(after)s loses it unread: its place moves "
            "on to what is still there."
        ) % {"after": _length(after)}


def _tighter_size(topic: Topic, before: int | None, after: int | None, using: str) -> Iterator[str]:
    if after is not None and (before is None or after < before):
        yield _(
            "A group that holds back more than %(after)s bytes of what has expired loses the oldest of it unread: its "
            "place moves on to what is still there."
        ) % {"after": number(after)}


def _queue(topic: Topic, before: str, after: str, using: str) -> Iterator[str]:
    if after == Semantics.QUEUE:
        yield _("It becomes a queue: one group gets its messages, and no second one can subscribe.")


def _refusing(topic: Topic, before: str, after: str, using: str) -> Iterator[str]:
    if after != ZeroSubscribers.REFUSE:
        return
    said = _("Publishing fails while no group subscribes.")
    read = Subscription.objects.using(using).filter(topic=topic, status__in=(Status.ACTIVE, Status.PAUSED))
    if not read.exists():
        said += " " + _("That is so at this moment: publishers get an error from now on.")
    yield said


_TELL: dict[str, Callable[[Topic, Any, Any, str], Iterator[str]]] = {
    "total_partitions": _fewer_partitions,
    "retention": _shorter_retention,
    "max_age": _tighter_age,
    "max_bytes": _tighter_size,
    "semantics": _queue,
    "zero_subscribers": _refusing,
}


def _length(span: dt.timedelta) -> str:
    return duration(span.total_seconds())
