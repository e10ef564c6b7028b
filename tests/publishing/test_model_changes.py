"""A decorated model's changes reach the outbox, in the transaction that makes them."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import call_command
from django.core.serializers import serialize
from django.db import DatabaseError, IntegrityError, connection, connections, models, transaction
from django.db.migrations.state import ProjectState
from django.db.models import F
from django.db.models.signals import ModelSignal, post_save, pre_delete, pre_save
from django.test.utils import CaptureQueriesContext, isolate_apps

from pubsub import publish_changes
from pubsub.errors import InvalidEvent, InvalidPublication, UnknownTopic, WrongDatabase
from pubsub.models import OutboxMessage
from pubsub.topics import registry
from tests.testapp.models import Cafe, Coupon, Customer, Order, Place, Regular, Restaurant, Seat, Ticket

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def topic() -> Iterator[None]:
    registry.create_topics(connection, {"customers.events": {}})
    yield
    registry.forget_ids()


@pytest.fixture
def customer() -> Customer:
    customer = Customer.objects.create(email="a@example.org", tenant="t1")
    taken()
    return customer


def taken() -> list[tuple[str, Any]]:
    """Return type and payload of what has been published since the last look."""
    found = [(message.type, message.payload) for message in OutboxMessage.objects.order_by("id")]
    OutboxMessage.objects.all().delete()
    return found


def test_a_created_row_is_published_with_what_the_database_filled_in() -> None:
    customer = Customer.objects.create(email="a@example.org", tenant="t1", balance="1.5", photo=b"\x00\xff")
    message = OutboxMessage.objects.get()
    joined = Customer.objects.get().joined.isoformat()
    assert message.type == "customer.created"
    assert message.payload == {
        "id": customer.pk,
        "row": {
            "id": customer.pk,
            "email": "a@example.org",
            "tenant": "t1",
            "visits": 0,
            "score": 0.0,
            "balance": "1.50",
            "details": {},
            "photo": "AP8=",
            "joined": joined,
            "referrer_id": None,
        },
    }
    assert (message.key, message.host_id, message.user_id) == (str(customer.pk), "t1", None)


def test_an_update_carries_the_old_and_the_new_values_of_what_changed(customer: Customer) -> None:
    customer.email, customer.password, customer.tenant = "b@example.org", "changed", None
    customer.save()
    changed = {
        "email": {"old": "a@example.org", "new": "b@example.org"},
        "tenant": {"old": "t1", "new": None},
    }
    assert taken() == [("customer.updated", {"id": customer.pk, "changed": changed})]


def test_a_save_that_changes_nothing_published_publishes_nothing(customer: Customer) -> None:
    customer.save()
    customer.password = "only this"
    customer.save()
    customer.email = "not among the update_fields"
    customer.save(update_fields=["visits"])
    customer.save(update_fields=[])
    assert taken() == []


def test_an_excluded_field_appears_in_no_event(customer: Customer) -> None:
    customer.password = "hunter2"
    customer.visits = 1
    customer.save()
    Customer.objects.create(email="b@example.org", password="hunter2")
    customer.delete()
    found = taken()
    assert [type for type, _ in found] == ["customer.updated", "customer.created", "customer.deleted"]
    assert "password" not in str(found)
    assert "hunter2" not in str(found)


def test_the_values_are_the_databases_own(customer: Customer) -> None:
    Customer.objects.filter(pk=customer.pk).update(visits=10, email="elsewhere@example.org")
    customer.visits = F("visits") + 1
    customer.save(update_fields=["visits"])
    assert taken() == [("customer.updated", {"id": customer.pk, "changed": {"visits": {"old": 10, "new": 11}}})]
    customer.visits = 12
    customer.save()  # the stale instance overwrites the address, and the event says so
    [(_, payload)] = taken()
    assert payload["changed"]["email"] == {"old": "elsewhere@example.org", "new": "a@example.org"}


def test_deferred_fields_are_left_alone(customer: Customer) -> None:
    partial = Customer.objects.only("visits").get()
    partial.visits = 3
    partial.save()
    assert taken() == [("customer.updated", {"id": customer.pk, "changed": {"visits": {"old": 0, "new": 3}}})]
    Customer.objects.only("visits").get().delete()
    [(type, payload)] = taken()
    assert (type, payload["row"]["email"]) == ("customer.deleted", "a@example.org")


@pytest.mark.parametrize(
    ("old", "new"), [({"a": 1}, {"a": True}), ({"a": 1}, {"a": 1.5}), ([1], [1, None]), (None, {}), ("x", ["x"])]
)
def test_a_change_inside_a_json_field_is_seen(old: Any, new: Any) -> None:
    customer = Customer.objects.create(email="a@example.org", details=old)
    taken()
    customer.details = new
    customer.save()
    [(_, payload)] = taken()
    assert payload["changed"].keys() == {"details"}
    assert json.dumps(payload["changed"]["details"]["old"]) == json.dumps(old)
    assert json.dumps(payload["changed"]["details"]["new"]) == json.dumps(new)


def test_values_that_json_does_not_know_are_written_as_text(customer: Customer) -> None:
    for score in (float("nan"), float("inf")):
        customer.score = score
        customer.save()
    customer.save()
    assert [payload["changed"]["score"]["new"] for _, payload in taken()] == ["nan", "inf"]


def test_a_microsecond_can_be_seen(customer: Customer) -> None:
    customer.joined = customer.joined.replace(microsecond=1)
    customer.save()
    taken()
    customer.joined = customer.joined.replace(microsecond=2)
    customer.save()
    [(_, payload)] = taken()
    assert payload["changed"]["joined"]["new"] == customer.joined.isoformat()


def test_the_event_is_in_the_transaction_of_the_change(customer: Customer) -> None:
    customer.visits = 5
    with transaction.atomic():
        customer.save()
        assert OutboxMessage.objects.count() == 1
        transaction.set_rollback(True)
    assert taken() == []


@pytest.mark.parametrize("change", [lambda it: it.save(), lambda it: it.delete(), lambda it: it.save_base()])
def test_in_autocommit_a_change_whose_event_fails_is_undone(
    customer: Customer, change: Callable[[Customer], Any]
) -> None:
    customer.email = "b@example.org"
    with (
        patch("pubsub.publishing.model_changes.publish", side_effect=InvalidEvent("no.")),
        pytest.raises(InvalidEvent) as raised,
    ):
        change(customer)
    assert Customer.objects.get().email == "a@example.org"
    assert not connection.in_atomic_block
    assert "testapp.Customer" in str(raised.value)
    assert "publish_changes(exclude=[…])" in str(raised.value)


def test_row_and_event_of_an_autocommit_save_have_one_transaction() -> None:
    customer = Customer.objects.create(email="a@example.org")
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmin::text FROM testapp_customer WHERE id = %s", [customer.pk])
        (xmin,) = cursor.fetchone()
    assert OutboxMessage.objects.get().xid % 2**32 == int(xmin)


def test_a_save_that_fails_publishes_nothing(customer: Customer) -> None:
    with pytest.raises(IntegrityError):
        Customer(pk=customer.pk, email="b@example.org").save(force_insert=True)
    with pytest.raises(DatabaseError, match="Forced update"):
        Customer(pk=customer.pk + 1).save(force_update=True)
    assert taken() == []
    customer.visits = 1
    customer.save()
    assert len(taken()) == 1


def test_another_primary_key_makes_another_row(customer: Customer) -> None:
    customer.pk += 1
    customer.save()
    assert [type for type, _ in taken()] == ["customer.created"]


def test_get_or_create_and_update_or_create() -> None:
    for visits in (1, 1, 2):
        Customer.objects.update_or_create(email="a@example.org", defaults={"visits": visits})
        Customer.objects.get_or_create(email="a@example.org")
    assert [type for type, _ in taken()] == ["customer.created", "customer.updated"]


def test_deletions_by_queryset_and_by_cascade_are_published(customer: Customer) -> None:
    order = Order.objects.create(customer=customer)
    taken()
    Customer.objects.filter(pk=customer.pk).delete()
    found = dict(taken())
    assert found.keys() == {"sale.deleted", "customer.deleted"}
    assert found["sale.deleted"] == {
        "id": order.pk,
        "row": {"id": order.pk, "customer_id": customer.pk, "clerk": 1},
    }


def test_a_row_that_another_session_deleted_first_is_not_published_again(customer: Customer) -> None:
    Customer.objects.filter(pk=customer.pk)._raw_delete("default")
    customer.delete()
    assert taken() == []


def test_key_and_user_come_from_fields_or_functions(customer: Customer) -> None:
    order = Order.objects.create(customer=customer, clerk=7)
    message = OutboxMessage.objects.get()
    assert (message.type, message.key, message.user_id) == ("sale.created", str(customer.pk), "clerk-7")
    other = Customer.objects.create(email="b@example.org")
    taken()
    order.customer = other
    order.save()
    assert OutboxMessage.objects.get().key == str(other.pk)


def test_what_bypasses_save_is_not_covered(customer: Customer) -> None:
    Customer.objects.bulk_create([Customer(email="b@example.org")])
    Customer.objects.update(visits=7)
    customer.visits = 8
    Customer.objects.bulk_update([customer], ["visits"])
    assert taken() == []


def test_a_proxy_is_published_as_its_model() -> None:
    regular = Regular.objects.create(email="a@example.org")
    regular.visits = 1
    regular.save()
    regular.delete()
    Regular.objects.create(email="b@example.org")
    Regular.objects.all().delete()
    kinds = ("created", "updated", "deleted", "created", "deleted")
    assert [type for type, _ in taken()] == [f"customer.{kind}" for kind in kinds]


def test_children_by_multi_table_inheritance() -> None:
    cafe = Cafe.objects.create(name="A", cups=1)
    assert taken() == [("place.created", {"id": cafe.pk, "row": {"name": "A"}})]
    cafe.cups = 2
    cafe.save()
    assert taken() == []
    cafe.name = "B"
    cafe.save()
    assert taken() == [("place.updated", {"id": cafe.pk, "changed": {"name": {"old": "A", "new": "B"}}})]
    pk = cafe.pk
    cafe.delete()
    assert taken() == [("place.deleted", {"id": pk, "row": {"name": "B"}})]


def test_a_decorated_child_publishes_its_whole_row_and_its_parent_its_own() -> None:
    restaurant = Restaurant.objects.create(name="A", address="Road 1", stars=1)
    pk = restaurant.pk
    row = {"id": pk, "name": "A", "address": "Road 1", "place_ptr_id": pk, "stars": 1}
    created = [("place.created", {"id": pk, "row": {"name": "A"}}), ("restaurant.created", {"id": pk, "row": row})]
    assert sorted(taken()) == created
    restaurant.name, restaurant.stars = "B", 2
    restaurant.save()
    found = dict(taken())
    assert found["place.updated"]["changed"] == {"name": {"old": "A", "new": "B"}}
    assert found["restaurant.updated"]["changed"] == {
        "name": {"old": "A", "new": "B"},
        "stars": {"old": 1, "new": 2},
    }
    Place.objects.all().delete()
    assert sorted(type for type, _ in taken()) == ["place.deleted", "restaurant.deleted"]


def test_a_parent_row_that_exists_is_not_created_again() -> None:
    place = Place.objects.create(name="A")
    taken()
    Restaurant(place_ptr=place, name="A", stars=3).save(force_insert=True)
    assert [type for type, _ in taken()] == ["restaurant.created"]


def test_keys_given_by_python_and_keys_of_several_columns() -> None:
    ticket = Ticket.objects.create(price=1)
    ticket.price = 2
    ticket.save()
    seat = Seat.objects.create(row="A", number=1)
    assert OutboxMessage.objects.latest("id").key == "A:1"
    seat.taken = True
    seat.save()
    assert taken() == [
        ("ticket.created", {"id": str(ticket.pk), "row": {"id": str(ticket.pk), "price": 1}}),
        ("ticket.updated", {"id": str(ticket.pk), "changed": {"price": {"old": 1, "new": 2}}}),
        ("seat.created", {"id": ["A", 1], "row": {"row": "A", "number": 1, "taken": False}}),
        ("seat.updated", {"id": ["A", 1], "changed": {"taken": {"old": False, "new": True}}}),
    ]


def test_a_key_given_by_the_database() -> None:
    with CaptureQueriesContext(connection) as queries:
        coupon = Coupon.objects.create()
    assert "FOR NO KEY UPDATE" not in str(queries.captured_queries)  # there can be no such row yet
    assert taken() == [("coupon.created", {"id": str(coupon.pk), "row": {"id": str(coupon.pk)}})]


def test_nothing_is_left_on_the_instance(customer: Customer) -> None:
    for change in (customer.save, lambda: customer.save_base(raw=True), customer.delete):
        change()
        assert not [name for name in vars(customer) if name.startswith("_pubsub")]


def test_a_fixture_that_is_loaded_publishes_nothing(customer: Customer, tmp_path: Any) -> None:
    fixture = tmp_path / "customers.json"
    fixture.write_text(serialize("json", [customer]))
    customer.delete()
    taken()
    call_command("loaddata", fixture, verbosity=0)
    assert Customer.objects.count() == 1
    customer.visits = 99
    customer.save_base(raw=True)
    assert taken() == []


def test_a_save_in_a_signal_handler_comes_after_the_change_it_reacts_to() -> None:
    def greet(*, instance: Customer, created: bool, **kwargs: Any) -> None:
        if created:
            instance.visits = 1
            instance.save()

    post_save.connect(greet, sender=Customer)
    try:
        Customer.objects.create(email="a@example.org")
    finally:
        post_save.disconnect(greet, sender=Customer)
    first, second = taken()
    assert (first[0], first[1]["row"]["visits"]) == ("customer.created", 0)
    assert (second[0], second[1]["changed"]) == ("customer.updated", {"visits": {"old": 0, "new": 1}})


@pytest.mark.parametrize(("signal", "change"), [(pre_delete, "delete"), (pre_save, "save")])
def test_a_save_in_a_signal_handler_before_a_change_is_an_event_of_its_own(
    customer: Customer, signal: ModelSignal, change: str
) -> None:
    def mark(*, instance: Customer, **kwargs: Any) -> None:
        signal.disconnect(mark, sender=Customer)
        address, instance.email = instance.email, "marked@example.org"
        instance.save()
        instance.email = address

    customer.email = "b@example.org"
    signal.connect(mark, sender=Customer)
    getattr(customer, change)()
    first, second = taken()
    assert first[1]["changed"] == {"email": {"old": "a@example.org", "new": "marked@example.org"}}
    if change == "delete":
        assert (second[0], second[1]["row"]["email"]) == ("customer.deleted", "marked@example.org")
    else:
        assert second[1]["changed"] == {"email": {"old": "marked@example.org", "new": "b@example.org"}}
    assert not [name for name in vars(customer) if name.startswith("_pubsub")]


def test_concurrent_saves_form_a_chain(customer: Customer) -> None:
    """Each event's old value is the one before it: the row is locked before it is read."""

    def count_up() -> None:
        try:
            for _ in range(20):
                mine = Customer(pk=customer.pk)
                mine.visits = F("visits") + 1
                mine.save(update_fields=["visits"])
        finally:
            connections.close_all()

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps = [payload["changed"]["visits"] for _, payload in taken()]
    assert [(step["old"], step["new"]) for step in steps] == [(n, n + 1) for n in range(80)]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_event_goes_where_the_row_goes() -> None:
    with transaction.atomic(using="other"):
        customer = Customer(email="a@example.org")
        customer.save(using="other")
        customer.visits = 1
        customer.save()
        assert OutboxMessage.objects.using("other").count() == 2
        assert OutboxMessage.objects.using("default").count() == 0
        customer.delete()
        assert OutboxMessage.objects.using("other").count() == 3
        transaction.set_rollback(True, using="other")
    assert taken() == []
    Customer.objects.using("other").create(email="b@example.org")
    assert [type for type, _ in taken()] == ["customer.created"]


class _NoOutboxElsewhere:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == "default" if app_label == "pubsub" else None


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_database_without_the_outbox_is_named(settings: Any) -> None:
    settings.DATABASE_ROUTERS = [_NoOutboxElsewhere()]
    with pytest.raises(WrongDatabase, match=r'testapp.Customer was changed on database "other"'):
        Customer(email="a@example.org").save(using="other")
    assert not Customer.objects.exists()


async def _save(customer: Customer) -> None:
    await customer.asave()


def test_asynchronous_saves() -> None:
    from asgiref.sync import async_to_sync

    async_to_sync(_save)(Customer(email="a@example.org"))
    assert [type for type, _ in taken()] == ["customer.created"]


class Plain(models.Model):
    name = models.TextField()

    class Meta:
        app_label = "undeclared"
        managed = False

    def __str__(self) -> str:
        return self.name


class Abstract(models.Model):
    class Meta:
        abstract = True


@pytest.mark.parametrize(
    ("model", "options", "error"),
    [
        (Plain, {"exclude": ["nam"]}, 'has no field with a column called "nam". Did you mean "name"?'),
        (Plain, {"fields": ["nam"]}, 'has no field with a column called "nam". Did you mean "name"?'),
        (Plain, {"key": "tenant"}, 'no field with a column called "tenant". There are: id, name.'),
        (Plain, {"exclude": "name"}, "exclude must be a list of field names such as ['name'], not 'name'."),
        (Plain, {"fields": ["name"], "exclude": ["id"]}, "takes fields or exclude, not both"),
        (Abstract, {}, "decorates a model that has a table"),
        (int, {}, "decorates a model that has a table"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(model: Any, options: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidPublication) as raised:
        publish_changes("customers.events", **options)(model)
    assert error in str(raised.value)
    assert not post_save.has_listeners(model)


def test_an_impossible_topic_is_refused() -> None:
    with pytest.raises(UnknownTopic):
        publish_changes("no spaces")(Plain)


def test_the_documentation_is_right() -> None:
    """Its examples are run from top to bottom, and publish what the comments below them say."""
    text = (Path(__file__).resolve().parents[2] / "docs/publishing-model-changes.md").read_text()
    declare, change, migrate, write = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    scope: dict[str, Any] = {"__name__": "tests.testapp.documented"}
    with isolate_apps("tests.testapp"):
        exec(declare, scope)
    model = scope["Customer"]
    model._meta.db_table = "crm_customer"
    with connection.schema_editor() as editor:
        editor.create_model(model)
    try:
        exec(change, scope)
        assert said_by(change) == taken()
        # The example's app is not installed; its table is there all the same.
        exec(migrate.replace('"crm.Customer"', '"crm_customer"'), scope)
        with connection.schema_editor() as editor:
            for operation in scope["Migration"].operations:
                operation.database_forwards("testapp", editor, ProjectState(), ProjectState())
        exec(write, scope)
        (insert, update), found = said_by(write), taken()
        assert found[0] == insert
        assert (found[1][0], found[1][1]["changed"]) == (update[0], update[1]["changed"])
        assert (found[1][1]["old"]["visits"], found[1][1]["new"]["visits"]) == (0, 5)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE crm_customer")
            cursor.execute("SELECT oid::regprocedure FROM pg_proc WHERE proname ~ '^pubsub_(insert|update|delete)_'")
            for (function,) in cursor.fetchall():
                cursor.execute(f"DROP FUNCTION {function}")


def said_by(example: str) -> list[tuple[str, Any]]:
    said = re.findall(r"^# (\w+\.\w+)  (\{.*\})$", example, re.MULTILINE)
    return [(type, json.loads(payload.replace("…, ", ""))) for type, payload in said]
