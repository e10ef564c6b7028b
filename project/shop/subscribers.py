"""Who listens to the shop: four consumer groups, each at its own pace, none aware of the others.

Each handler runs in the transaction that moves its group's cursor. So nothing here asks whether an event was handled
before: its rows are there exactly once, or not at all.
"""

from decimal import Decimal

import pubsub

from . import carrier
from .models import Email, Order, OrderLine, Sale, Shipment, StockMovement
from .orders import CANCELLED, PAID, PLACED, TOPIC

LETTERS = {
    PLACED: (Email.Kind.CONFIRMATION, "We have received your order {}"),
    PAID: (Email.Kind.RECEIPT, "Thank you for paying order {}"),
    CANCELLED: (Email.Kind.CANCELLATION, "Your order {} is cancelled"),
}
SALES = {PLACED: (Sale.Kind.SOLD, 1), CANCELLED: (Sale.Kind.CANCELLED, -1)}
MOVEMENTS = {PLACED: (StockMovement.Kind.SOLD, -1), CANCELLED: (StockMovement.Kind.RETURNED, 1)}


@pubsub.subscribe(TOPIC, group="emails", start="earliest", retry=[5, 30])
def write_email(event: pubsub.Event) -> None:
    """Write to the customer about everything that happens to an order."""
    if event.type in LETTERS:
        kind, subject = LETTERS[event.type]
        order = Order.objects.select_related("customer").get(pk=event.payload["id"])
        Email.objects.create(
            order=order,
            kind=kind,
            recipient=order.customer.email,
            subject=subject.format(order.pk),
            event_id=event.id,
        )


@pubsub.subscribe(TOPIC, group="analytics", start="earliest", retry=[5, 30])
def count_sale(event: pubsub.Event) -> None:
    """Count what was sold, and what was cancelled, on the day it happened. The event tells all that is needed."""
    if event.type in SALES:
        kind, sign = SALES[event.type]
        Sale.objects.create(
            order_id=event.payload["id"],
            kind=kind,
            day=event.created_at.date(),
            shop=event.host_id,
            amount=sign * Decimal(str(event.payload["total"])),
        )


@pubsub.subscribe(TOPIC, group="inventory", start="earliest", retry=[5, 30])
def move_stock(event: pubsub.Event) -> None:
    """Take what was ordered off the shelves, and put back what was cancelled."""
    if event.type in MOVEMENTS:
        kind, sign = MOVEMENTS[event.type]
        StockMovement.objects.bulk_create(
            StockMovement(product_id=line.product_id, line=line, kind=kind, quantity=sign * line.quantity)
            for line in OrderLine.objects.filter(order=event.payload["id"])
        )


@pubsub.subscribe(TOPIC, group="shipping", start="earliest", retry=[2, 4])
def ship(event: pubsub.Event) -> None:
    """Hand what was paid over to the carrier, who does not accept everything."""
    if event.type == PAID:
        # The address of now, not of when it was ordered: so a replay succeeds once it has been corrected.
        order = Order.objects.get(pk=event.payload["id"])
        Shipment.objects.create(order=order, tracking_number=carrier.book(order, event.attempt))
