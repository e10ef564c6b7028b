"""The carrier, as far as the shop can see it: an interface to another company's system, with moods of its own.

Nothing here is random, so that you can predict what a retry or a replay will do.
"""

import re

from .models import Order

BUSY_EVERY = 50


class CarrierError(Exception):
    """The carrier did not take a parcel."""


class UnknownAddress(CarrierError):
    """The carrier has no such address. It stays so until the order is corrected."""


class CarrierUnavailable(CarrierError):
    """The carrier did not answer in time. It passes: the next attempt succeeds."""


def book(order: Order, attempt: int) -> str:
    """Hands a parcel over and returns its tracking number.

    - A postcode must have five digits; a customer who types the letter O for a zero is refused at every attempt.
    - With every 50th order the carrier is busy, at the first attempt only.
    """
    if not re.fullmatch(r"\d{5}", order.postcode):
        raise UnknownAddress(
            f"expected a postcode of five digits, got {order.postcode!r} for {order.city} (order {order.pk}): "
            f"correct the order's address, then replay this event"
        )
    if attempt == 1 and order.pk % BUSY_EVERY == 0:
        raise CarrierUnavailable(f"no answer within 5 s to the booking of order {order.pk}: try again")
    return f"CX{order.pk:010}EU"
