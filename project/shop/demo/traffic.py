"""Customers: threads that place orders at a pleasant rate, and pay for most of them a moment later."""

import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable

from django.db import InterfaceError, OperationalError, connection

from project.shop import orders
from project.shop.carrier import UnknownAddress
from project.shop.catalogue import BRANCHES, POSTCODES, STREETS
from project.shop.models import Customer, Product
from pubsub.models import DeadLetter

THREADS = 3
PATIENCE_S = 5
SERVICE_DESK_EVERY_S = 1
MISTYPED_EVERY, FIRST_MISTYPED = 100, 20
CANCELLED_SHARE = 0.06


class Traffic:
    """Business as usual until `stop()`. What was placed in this run is remembered, to be audited in the end."""

    def __init__(self, orders_per_second: float) -> None:
        self.rate = orders_per_second
        self.placed: list[int] = []
        self.closed: list[int] = []
        self.fault: BaseException | None = None
        self._numbers = itertools.count(1)
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True)
            for work in (*[self._shop] * THREADS, self._service_desk)
        ]

    @property
    def events(self) -> int:
        """How many events this run has published: one by each transaction."""
        return len(self.placed) + len(self.closed)

    def start(self) -> None:
        """Open the doors."""
        self._customers, self._products = list(Customer.objects.all()), list(Product.objects.all())
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Close them; a customer at the till is served, unless the database keeps them waiting."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident:
                thread.join(PATIENCE_S)

    def _run(self, work: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                work()
            except (OperationalError, InterfaceError):
                connection.close()  # the database went away: it was not an order yet
                self._stopping.wait(1)
            except Exception as error:
                self.fault = error
                break
        connection.close()

    def _shop(self) -> None:
        open_orders: deque[tuple[int, bool]] = deque()
        turn = time.monotonic()
        while not self._stopping.is_set():
            # On average; real customers don't come by the clock.
            turn = max(turn + random.expovariate(self.rate / THREADS), time.monotonic() - 1)
            if self._stopping.wait(max(0, turn - time.monotonic())):
                break
            mistyped = next(self._numbers) % MISTYPED_EVERY == FIRST_MISTYPED
            open_orders.append((self._place(mistyped), mistyped))
            if len(open_orders) > 2:
                order_id, certain = open_orders.popleft()
                if certain or random.random() > CANCELLED_SHARE:
                    orders.pay(order_id)
                else:
                    orders.cancel(order_id)
                self.closed.append(order_id)

    def _place(self, mistyped: bool) -> int:
        city = random.choice(list(POSTCODES))
        postcode = POSTCODES[city].format(random.randrange(10, 100))
        if mistyped:
            postcode = postcode.replace("0", "O")
        address = {"street": f"{random.choice(STREETS)} {random.randrange(1, 120)}", "postcode": postcode, "city": city}
        basket = [(product, random.randint(1, 3)) for product in random.sample(self._products, random.randint(1, 3))]
        order = orders.place(random.choice(self._customers), basket, address, random.choice(BRANCHES))
        self.placed.append(order.pk)
        return int(order.pk)

    def _service_desk(self) -> None:
        while not self._stopping.wait(SERVICE_DESK_EVERY_S):
            correct_refused_addresses()


def correct_refused_addresses() -> int:
    """Ask the customers whose addresses the carrier has refused for good: replaying these events then succeeds."""
    refused = DeadLetter.objects.filter(
        state=DeadLetter.State.DEAD,
        group_id="shipping",
        exception_class=f"{UnknownAddress.__module__}.{UnknownAddress.__qualname__}",
    )
    return orders.correct_postcodes(list(refused.order_by("-id").values_list("payload__id", flat=True)[:100]))
