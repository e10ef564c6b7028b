"""How the groups are doing: read from the same view and tables as the admin."""

from dataclasses import dataclass

from django.db.models import Count, Max, Sum

from project.shop.models import Order
from project.shop.orders import TOPIC
from pubsub.models import ConsumerLag, DeadLetter, LogCounter, Status
from pubsub.subscriptions.declare import registry


@dataclass(frozen=True, kw_only=True)
class Group:
    """One consumer group, all partitions together."""

    name: str
    passed: int = 0
    behind: int | None = None
    """Events still to come; None while the group hasn't begun."""
    retrying: int = 0
    dead: int = 0
    active: bool = True
    """False where it has been paused, say in the admin."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The shop at one moment, earlier runs and demos beside this one included."""

    orders: int
    events: int
    groups: tuple[Group, ...]

    @property
    def idle(self) -> bool:
        """Whether every group that is active has passed all that is in the log."""
        return all(group.behind == 0 for group in self.groups if group.active)

    @property
    def passed(self) -> int:
        """How many events all groups together have passed: it grows as long as a worker works."""
        return sum(group.passed for group in self.groups)


def read_figures() -> Figures:
    """Look at the database once."""
    places = {
        place["group_id"]: place
        for place in ConsumerLag.objects.filter(topic=TOPIC)
        .values("group_id")
        .annotate(behind=Sum("lag"), end=Max("tip"), state=Max("status"))
    }
    waiting = (DeadLetter.State.RETRYING, DeadLetter.State.DEAD)
    failed = {
        (row["group_id"], row["state"]): row["count"]
        for row in DeadLetter.objects.filter(state__in=waiting, topic__name=TOPIC)
        .values("group_id", "state")
        .annotate(count=Count("pk"))
    }
    groups = []
    for name in [declared.group for declared in registry.select(topics=[TOPIC])]:
        place = places.get(name)
        groups.append(
            Group(
                name=name,
                # Offsets have no gaps, so the last one is also their number.
                passed=int(place["end"] - place["behind"]) if place else 0,
                behind=int(place["behind"]) if place else None,
                retrying=failed.get((name, DeadLetter.State.RETRYING), 0),
                dead=failed.get((name, DeadLetter.State.DEAD), 0),
                active=not place or place["state"] == Status.ACTIVE,
            )
        )
    end = LogCounter.objects.filter(topic__name=TOPIC).values_list("next_offset", flat=True).first()
    return Figures(orders=Order.objects.count(), events=(end or 1) - 1, groups=tuple(groups))
