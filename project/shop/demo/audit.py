"""Has every order what the groups owe it? Twice is impossible, by the tables' constraints; never is looked for."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from django.db.models import Exists, OuterRef, Q

from project.shop.carrier import CarrierUnavailable, UnknownAddress
from project.shop.models import Email, Order, OrderLine, Sale, Shipment, StockMovement
from project.shop.orders import CANCELLED, PAID, PLACED
from pubsub.models import DeadLetter

CHUNK = 5000
ON_PURPOSE = [f"{each.__module__}.{each.__qualname__}" for each in (CarrierUnavailable, UnknownAddress)]
OPEN = (DeadLetter.State.RETRYING, DeadLetter.State.DEAD)

_ORDER = OuterRef("pk")
_OF_TYPE = {PLACED: Q(), PAID: Q(status=Order.Status.PAID), CANCELLED: Q(status=Order.Status.CANCELLED)}


def _unmoved(kind: str) -> Exists:
    return Exists(OrderLine.objects.filter(~Q(movements__kind=kind), order=_ORDER))


# Group and type of event → the orders that were owed something and lack it.
_LACKING: dict[tuple[str, str], Q | Exists] = {
    ("emails", PLACED): ~Exists(Email.objects.filter(order=_ORDER, kind=Email.Kind.CONFIRMATION)),
    ("emails", PAID): ~Exists(Email.objects.filter(order=_ORDER, kind=Email.Kind.RECEIPT)),
    ("emails", CANCELLED): ~Exists(Email.objects.filter(order=_ORDER, kind=Email.Kind.CANCELLATION)),
    ("analytics", PLACED): ~Exists(Sale.objects.filter(order=_ORDER, kind=Sale.Kind.SOLD)),
    ("analytics", CANCELLED): ~Exists(Sale.objects.filter(order=_ORDER, kind=Sale.Kind.CANCELLED)),
    ("inventory", PLACED): _unmoved(StockMovement.Kind.SOLD),
    ("inventory", CANCELLED): _unmoved(StockMovement.Kind.RETURNED),
    ("shipping", PAID): ~Exists(Shipment.objects.filter(order=_ORDER)),
}


class Missing(NamedTuple):
    """A group left nothing for an event of an order, and no dead letter tells why."""

    order_id: int
    group: str
    type: str

    def __str__(self) -> str:
        return f"order {self.order_id}: {self.group} has left nothing for {self.type}"


def find_missing(order_ids: Iterable[int]) -> list[Missing]:
    """Return what is owed to these orders and neither there nor explained by a dead letter."""
    found = []
    for chunk in _chunks(order_ids):
        for (group, type_), lacking in _LACKING.items():
            without = Order.objects.filter(_OF_TYPE[type_], lacking, pk__in=chunk).values_list("pk", flat=True)
            if ids := set(without):
                letters = DeadLetter.objects.filter(group_id=group, type=type_, payload__id__in=sorted(ids))
                ids -= set(letters.exclude(state=DeadLetter.State.RESOLVED).values_list("payload__id", flat=True))
            found += [Missing(order_id, group, type_) for order_id in sorted(ids)]
    return found


def count_dead_letters(order_ids: Iterable[int]) -> int:
    """Return how many events of these orders are dead letters now, or wait for another attempt."""
    return sum(DeadLetter.objects.filter(state__in=OPEN, payload__id__in=chunk).count() for chunk in _chunks(order_ids))


def find_surprises(order_ids: Iterable[int]) -> list[str]:
    """Return the failures among these orders' events that the demo does not make on purpose."""
    return [
        f"order {letter.payload['id']}: {letter.group_id} failed with {letter.exception_class}: "
        f"{letter.exception_message}"
        for chunk in _chunks(order_ids)
        for letter in DeadLetter.objects.filter(payload__id__in=chunk).exclude(exception_class__in=ON_PURPOSE)
    ]


def _chunks(order_ids: Iterable[int]) -> Iterator[Sequence[int]]:
    everything = sorted(set(order_ids))
    for start in range(0, len(everything), CHUNK):
        yield everything[start : start + CHUNK]
