"""The demo shop: what it publishes, what its four groups make of it, and how a refused shipment is healed."""

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone

from project.shop import carrier, catalogue, orders
from project.shop.demo.audit import find_missing, find_surprises
from project.shop.demo.figures import read_figures
from project.shop.demo.traffic import correct_refused_addresses
from project.shop.models import Customer, DailySales, Email, Order, Product, Sale, Shipment, StockMovement
from pubsub.dead_letters import actions
from pubsub.models import DeadLetter, OutboxMessage, Status, Subscription
from pubsub.subscriptions.declare import registry
from pubsub.topics.registry import create_topics
from pubsub.worker.worker import Worker
from tests.project.shop_factories import CustomerFactory, ProductFactory

pytestmark = pytest.mark.django_db(transaction=True)

GOOD = {"street": "Hauptstr. 1", "postcode": "10115", "city": "Berlin"}
MISTYPED = GOOD | {"postcode": "1O115"}

Place = Callable[..., Order]


@pytest.fixture(autouse=True)
def topic() -> None:
    create_topics(connection, {orders.TOPIC: {}})


@pytest.fixture
def place() -> Place:
    customer, product = CustomerFactory(), ProductFactory()

    def place(address: dict[str, str] = GOOD) -> Order:
        return orders.place(customer, [(product, 2)], address, "Berlin")

    return place


def consume() -> None:
    Worker(registry.select(topics=[orders.TOPIC]), using="default", drain=True).run()


def let_time_pass() -> None:
    DeadLetter.objects.filter(state=DeadLetter.State.RETRYING).update(next_attempt_at=timezone.now() - dt.timedelta(1))


def messages() -> list[tuple[str, Any]]:
    return list(OutboxMessage.objects.order_by("id").values_list("type", "payload__id"))


def test_each_step_of_an_order_publishes_what_happened(place: Place) -> None:
    first, second = place(), place()
    orders.pay(first.pk)
    orders.cancel(second.pk)
    assert messages() == [
        ("order.placed", first.pk),
        ("order.placed", second.pk),
        ("order.paid", first.pk),
        ("order.cancelled", second.pk),
    ]
    event = OutboxMessage.objects.earliest("id")
    assert (event.key, event.host_id) == (str(first.customer_id), "Berlin")
    assert event.payload["total"] == 25
    assert event.payload["items"] == [{"sku": first.lines.get().product.sku, "quantity": 2, "price": 12.5}]


def test_an_order_that_is_rolled_back_publishes_nothing(place: Place) -> None:
    with transaction.atomic():
        place()
        transaction.set_rollback(True)
    assert Order.objects.count() == 0
    assert messages() == []


def test_an_order_is_closed_once(place: Place) -> None:
    order = place()
    orders.pay(order.pk)
    with pytest.raises(orders.OrderClosed, match="should be open to become cancelled, but it is paid"):
        orders.cancel(order.pk)
    assert len(messages()) == 2


def test_every_group_leaves_its_own_trace_once(place: Place) -> None:
    paid, cancelled = place(), place()
    orders.pay(paid.pk)
    orders.cancel(cancelled.pk)
    consume()
    consume()
    assert list(paid.emails.order_by("id").values_list("kind", flat=True)) == ["confirmation", "receipt"]
    assert list(cancelled.emails.order_by("id").values_list("kind", flat=True)) == ["confirmation", "cancellation"]
    assert list(paid.sales.values_list("kind", "amount", "shop")) == [("sold", Decimal(25), "Berlin")]
    assert [sale.amount for sale in cancelled.sales.order_by("id")] == [25, -25]
    (day,) = DailySales.objects.all()
    assert (day.orders, day.cancelled, day.amount) == (2, 1, 25)
    moved = StockMovement.objects.order_by("id").values_list("line__order", "kind", "quantity")
    assert sorted(moved) == [(paid.pk, "sold", -2), (cancelled.pk, "returned", 2), (cancelled.pk, "sold", -2)]
    assert Shipment.objects.get().order_id == paid.pk
    assert find_missing([paid.pk, cancelled.pk]) == []
    figures = read_figures()
    assert figures.idle
    assert [(group.name, group.passed, group.dead) for group in figures.groups] == [
        (name, 4, 0) for name in ("emails", "analytics", "inventory", "shipping")
    ]


def test_a_second_trace_is_refused(place: Place) -> None:
    order = place()
    consume()
    for again in (order.emails.get(), order.sales.get(), order.lines.get().movements.get()):
        again.pk = None
        with pytest.raises(IntegrityError, match="_once"):
            again.save()


def test_a_mistyped_address_waits_for_an_operator_and_a_replay_cures_it(place: Place) -> None:
    order = place(MISTYPED)
    orders.pay(order.pk)
    for _ in range(3):
        consume()
        let_time_pass()
    letter = DeadLetter.objects.get()
    assert (letter.group_id, letter.state, letter.attempts) == ("shipping", DeadLetter.State.DEAD, 3)
    assert letter.exception_message == (
        f"expected a postcode of five digits, got '1O115' for Berlin (order {order.pk}): "
        "correct the order's address, then replay this event"
    )
    assert order.emails.count() == 2, "the other groups don't notice"
    assert find_missing([order.pk]) == [], "a dead letter explains it"
    assert find_surprises([order.pk]) == []

    actions.replay([letter.pk], using="default")
    consume()
    letter.refresh_from_db()
    assert (letter.state, letter.attempts) == (DeadLetter.State.DEAD, 4), "nothing has been corrected yet"

    assert correct_refused_addresses() == 1
    assert correct_refused_addresses() == 0
    actions.replay([letter.pk], using="default")
    consume()
    letter.refresh_from_db()
    assert letter.state == DeadLetter.State.RESOLVED
    assert Shipment.objects.get().order_id == order.pk


def test_a_busy_carrier_is_asked_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "BUSY_EVERY", 1)
    order = place()
    orders.pay(order.pk)
    consume()
    assert DeadLetter.objects.get().exception_class == "project.shop.carrier.CarrierUnavailable"
    assert not Shipment.objects.exists()
    let_time_pass()
    consume()
    assert DeadLetter.objects.get().state == DeadLetter.State.RESOLVED
    assert Shipment.objects.get().tracking_number == f"CX{order.pk:010}EU"


@pytest.mark.parametrize(
    ("lost", "group", "type_"),
    [
        (Email, "emails", "order.placed"),
        (Sale, "analytics", "order.placed"),
        (StockMovement, "inventory", "order.placed"),
        (Shipment, "shipping", "order.paid"),
    ],
)
def test_the_audit_finds_missing_effects(place: Place, lost: Any, group: str, type_: str) -> None:
    order, other = place(), place()
    for each in (order, other):
        orders.pay(each.pk)
    consume()
    lost.objects.earliest("pk").delete()
    assert find_missing([order.pk, other.pk]) == [(order.pk, group, type_)]


def test_the_audit_names_unintended_failures(place: Place) -> None:
    order = place()
    Email.objects.create(order=order, kind="confirmation", recipient="a@example.com", event_id=uuid.uuid4())
    consume()
    assert [surprise.partition(" failed with ")[0] for surprise in find_surprises([order.pk])] == [
        f"order {order.pk}: emails"
    ]


def test_a_paused_group_holds_up_no_other(place: Place) -> None:
    consume()
    Subscription.objects.filter(group_id="emails").update(status=Status.PAUSED)
    place()
    consume()
    figures = read_figures()
    assert {group.name: group.behind for group in figures.groups if not group.active} == {"emails": 1}
    assert figures.idle


def test_the_catalogue_is_filled_once() -> None:
    catalogue.fill()
    catalogue.fill()
    assert Product.objects.count() == len(catalogue.PRODUCTS) == StockMovement.objects.count()
    assert Customer.objects.count() == 100


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("operator"))
    return client


def test_the_admin_shows_everything(operator: Client, place: Place) -> None:
    order = place()
    orders.pay(order.pk)
    consume()
    for model in ("order", "customer", "product", "email", "sale", "dailysales", "stockmovement", "shipment"):
        page = operator.get(f"/admin/shop/{model}/")
        assert page.status_code == 200
        assert page.context["cl"].result_count > 0, model
    assert operator.get(f"/admin/shop/order/{order.pk}/change/").status_code == 200
    assert operator.get("/admin/shop/order/add/").status_code == 403


def test_the_admin_corrects_postcodes(operator: Client, place: Place) -> None:
    right, wrong = place(), place(MISTYPED)
    chosen = {"action": "correct_postcodes", "_selected_action": [right.pk, wrong.pk]}
    page = operator.post("/admin/shop/order/", chosen, follow=True)
    assert "Postcodes corrected: 1." in page.content.decode()
    wrong.refresh_from_db()
    assert wrong.postcode == "10115"
