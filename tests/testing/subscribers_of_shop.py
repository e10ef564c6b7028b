"""The shop's subscribers.py: handlers that the plugin is to run."""

from shop.models import Email

from pubsub import publish, subscribe


@subscribe("orders.events", group="emails", retry=[60])
def send(event):
    Email.objects.create(order_id=event.payload["id"], text=f"{event.type} {event.attempt}")
    if event.payload.get("bad"):
        raise ValueError("no such address")


@subscribe("orders.events", group="bills")
def bill(event):
    if event.type == "order.placed":
        publish("default", {"order": event.payload["id"]}, type="bill.sent", key=event.key)
