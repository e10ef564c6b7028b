"""What happens in the shop. Each function is one business transaction that saves rows and publishes what it did."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

import pubsub

from .models import Customer, Order, OrderLine, Product

TOPIC = "orders.events"
PLACED, PAID, CANCELLED = "order.placed", "order.paid", "order.cancelled"

_LOOK_ALIKES = str.maketrans({"O": "0", "o": "0", "I": "1", "l": "1"})


class OrderClosed(Exception):
    """An order that is paid or cancelled already can't be paid or cancelled once more."""


@transaction.atomic
def place(
    customer: Customer, basket: Sequence[tuple[Product, int]], address: Mapping[str, str], shop: str = "online"
) -> Order:
    """Place an order: `address` has street, postcode and city.

    >>> order = place(customer, [(teapot, 1)], {"street": "Hauptstr. 1", "postcode": "10115", "city": "Berlin"})
    """
    total = sum(product.price * quantity for product, quantity in basket)
    order = Order.objects.create(customer=customer, shop=shop, total=total, **address)
    OrderLine.objects.bulk_create(
        OrderLine(order=order, product=product, quantity=quantity, price=product.price) for product, quantity in basket
    )
    items = [{"sku": product.sku, "quantity": quantity, "price": float(product.price)} for product, quantity in basket]
    _publish(order, PLACED, items=items)
    return order


@transaction.atomic
def pay(order_id: int) -> Order:
    """Note that an order was paid."""
    return _close(order_id, Order.Status.PAID, PAID)


@transaction.atomic
def cancel(order_id: int) -> Order:
    """Cancel an order that wasn't paid."""
    return _close(order_id, Order.Status.CANCELLED, CANCELLED)


def correct_postcodes(order_ids: Sequence[int]) -> int:
    """Put digits where letters were typed that look like them: O for 0, l for 1. Returns how many orders changed."""
    wrong = Order.objects.filter(pk__in=order_ids).exclude(postcode__regex=r"^\d+$")
    changed = []
    for order in wrong:
        order.postcode = order.postcode.translate(_LOOK_ALIKES)
        changed.append(order)
    return Order.objects.bulk_update(changed, ["postcode"])


def _close(order_id: int, status: Order.Status, event_type: str) -> Order:
    order = Order.objects.select_for_update().get(pk=order_id)
    if order.status != Order.Status.PLACED:
        raise OrderClosed(f"Order {order_id} should be open to become {status}, but it is {order.status} already.")
    order.status = status
    order.closed_at = timezone.now()
    order.save(update_fields=["status", "closed_at"])
    _publish(order, event_type)
    return order


def _publish(order: Order, event_type: str, **more: Any) -> None:
    pubsub.publish(
        TOPIC,
        # A number, so that it can be compared and added up in SQL and in Spark.
        {"id": order.pk, "customer": order.customer_id, "total": float(order.total), **more},
        type=event_type,
        key=order.customer_id,
        host_id=order.shop,
        user_id=order.customer_id,
    )
