"""The shop's own tests, which use the fixture. They are run by test_plugin.py, in the shop's project."""

import datetime as dt
import uuid
from decimal import Decimal
from unittest.mock import ANY

import pytest
from django.db import connection, transaction
from django.utils import timezone
from shop.models import Email

from pubsub import Event, publish, publish_many, subscribe
from pubsub.errors import PubSubError, Reject, RetryLater, UnknownTopic
from pubsub.models import OutboxMessage
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.declare import registry


def place(number=1, **options):
    with transaction.atomic():
        return publish("orders.events", {"id": number}, type="order.placed", key=number, **options)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """Something is there before any test."""
    with django_db_blocker.unblock(), transaction.atomic():
        publish("default", "published before all tests")


@pytest.fixture
def placed_before(db):
    return place(99)


def test_published_returns_everything_in_order(pubsub):
    first = place(1, host_id="h", user_id=5, metadata={"trace": "t"})
    place(2, deliver_at=timezone.now() + dt.timedelta(hours=1))
    with transaction.atomic():
        publish_many("orders.events", [{"payload": {"id": n}} for n in (3, 4)])
        publish("default", None)
    events = pubsub.published("orders.events")
    assert [event.payload["id"] for event in events] == [1, 3, 4, 2]
    assert isinstance(events[0], Event)
    assert (events[0].id, events[0].topic, events[0].type) == (first, "orders.events", "order.placed")
    assert events[0].key == "1"
    assert (events[0].host_id, events[0].user_id, events[0].metadata) == ("h", "5", {"trace": "t"})
    assert [event.deliver_at is None for event in events] == [True, True, True, False]
    assert len(pubsub.published()) == 5


def test_the_forecast_of_offset_and_partition_comes_true(db_committed, pubsub):
    for number in range(1, 6):
        place(number)
    forecast = [(event.offset, event.partition) for event in pubsub.published("orders.events")]
    sequence("default")
    assert [(event.offset, event.partition) for event in pubsub.published("orders.events")] == forecast
    with connection.cursor() as cursor:
        cursor.execute("SELECT c_offset, partition_id FROM outbox_log_v WHERE topic = 'orders.events' ORDER BY 1")
        assert cursor.fetchall() == forecast
    place(6)
    assert pubsub.published("orders.events")[-1].offset == 6


@pytest.fixture
def db_committed(transactional_db):
    pass


def test_what_other_fixtures_publish_counts_whichever_comes_first(placed_before, pubsub):
    pubsub.assert_published("orders.events", key=99)


def test_what_other_tests_have_published_does_not_count(pubsub):
    pubsub.assert_nothing_published()


@pytest.mark.django_db(transaction=True)
def test_it_works_alike_where_tests_commit(pubsub):
    place(1)
    assert OutboxMessage.objects.filter(topic__name="orders.events").count() == 1
    drained = pubsub.drain()
    assert [(event.group, event.payload.get("id")) for event in drained.handled] == [("emails", 1), ("bills", 1)]
    assert Email.objects.get().text == "order.placed 1"
    assert not pubsub.drain().handled


def test_each_group_gets_each_event_once_in_order(pubsub):
    for number in (3, 1, 2):
        place(number)
    drained = pubsub.drain()
    assert [(event.group, event.payload["id"]) for event in drained.handled] == [
        ("emails", 3),
        ("emails", 1),
        ("emails", 2),
        ("bills", 3),
        ("bills", 1),
        ("bills", 2),
    ]
    assert type(drained.handled[0]) is Event
    pubsub.assert_published("default", type="bill.sent", payload={"order": 2}, count=1)
    assert not pubsub.drain().handled
    place(4)
    assert [event.payload["id"] for event in pubsub.drain().handled] == [4, 4]


def test_what_handlers_publish_is_handled_too(pubsub):
    chain = []

    @subscribe("default", group="follow-up")
    def follow(event):
        chain.append(event.payload)

    place(1)
    pubsub.drain()
    assert chain == [{"order": 1}]


def test_handlers_of_the_previous_test_are_forgotten(pubsub):
    assert {declared.group for declared in registry.select()} == {"emails", "bills"}


def test_handlers_that_publish_for_one_another_for_ever_are_stopped(pubsub, monkeypatch):
    monkeypatch.setattr("pubsub.testing.drain.MOST_CALLS", 20)

    @subscribe("default", group="echo")
    def echo(event):
        publish("default", event.payload)

    with transaction.atomic():
        publish("default", 1)
    with pytest.raises(PubSubError, match=r"called handlers 20 times.*echo"):
        pubsub.drain()


def test_groups_and_topics_select_handlers(pubsub):
    place(1)
    assert [event.group for event in pubsub.drain(groups=["bills"]).handled] == ["bills"]
    assert [event.group for event in pubsub.drain(topics=["orders.events"]).handled] == ["emails"]
    with pytest.raises(PubSubError, match='No handler is declared for group "bils"'):
        pubsub.drain(groups=["bils"])


def test_an_event_for_one_group_reaches_no_other(pubsub):
    place(1, to_group="emails")
    assert [event.group for event in pubsub.drain().handled] == ["emails"]


def test_an_error_is_raised_and_what_the_handler_wrote_is_undone(pubsub):
    with transaction.atomic():
        publish("orders.events", {"id": 1, "bad": True})
    place(2)
    with pytest.raises(ValueError, match="no such address"):
        pubsub.drain()
    assert not Email.objects.exists()
    assert [event.payload["id"] for event in pubsub.drain().handled] == [2, 1, 2]


def test_errors_are_collected_and_retried_in_time(pubsub):
    with transaction.atomic():
        publish("orders.events", {"id": 1, "bad": True}, type="t")
    drained = pubsub.drain(raise_errors=False, groups=["emails"])
    (failure,) = drained.failures
    assert (failure.event.group, failure.event.attempt, str(failure.exception)) == ("emails", 1, "no such address")
    assert not pubsub.drain(groups=["emails"], advance=dt.timedelta(seconds=50)).handled
    (failure,) = pubsub.drain(groups=["emails"], advance=dt.timedelta(seconds=20), raise_errors=False).failures
    assert failure.event.attempt == 2
    drained = pubsub.drain(groups=["emails"], advance=dt.timedelta(days=1))
    assert (drained.handled, drained.failures) == ([], [])


def test_a_handler_may_reject_or_wait(pubsub):
    @subscribe("default", group="choosy", retry=[60])
    def choose(event):
        raise Reject("no") if event.payload == 1 else RetryLater(5)

    with transaction.atomic():
        publish_many("default", [{"payload": 1}, {"payload": 2}])
    assert len(pubsub.drain(raise_errors=False).failures) == 2
    later = pubsub.drain(raise_errors=False, advance=dt.timedelta(seconds=61)).failures
    assert [(failure.event.payload, failure.event.attempt) for failure in later] == [(2, 2)]


def test_a_database_error_of_a_handler_leaves_the_test_usable(pubsub):
    @subscribe("default", group="breaks")
    def breaks(event):
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1/0")

    with transaction.atomic():
        publish("default", 1)
    assert len(pubsub.drain(raise_errors=False).failures) == 1
    assert Email.objects.count() == 0


def test_delayed_events_wait_for_their_time(pubsub):
    place(1, deliver_at=timezone.now() + dt.timedelta(hours=1))
    pubsub.assert_published("orders.events", key=1)
    assert not pubsub.drain().handled
    assert len(pubsub.drain(advance=dt.timedelta(hours=2)).handled) == 2


def test_a_subset_of_the_payload_is_compared_as_json(pubsub):
    identity = uuid.uuid4()
    with transaction.atomic():
        lines, deep = [{"sku": "a", "n": 1}], {"a": 1, "b": None}
        publish("default", {"id": identity, "sum": Decimal("1.10"), "lines": lines, "deep": deep})
    pubsub.assert_published("default", payload={"id": identity, "sum": Decimal("1.10"), "deep": {"b": None}})
    pubsub.assert_published("default", payload={"lines": [{"sku": "a", "n": 1}], "id": ANY})
    for wrong in ({"deep": {"c": None}}, {"lines": [{"sku": "a"}]}, {"deep": {"b": 0}}, {"sum": 1.1}, 5, None):
        with pytest.raises(AssertionError):
            pubsub.assert_published("default", payload=wrong)


def test_a_failure_shows_what_differs(pubsub):
    with transaction.atomic():
        publish("orders.events", {"order": {"total": 5}}, type="order.placed", key=7)
        publish("orders.events", [1])
    with pytest.raises(AssertionError) as failed:
        pubsub.assert_published("orders.events", type="order.paid", payload={"order": {"total": 6, "tax": 1}})
    assert str(failed.value) == (
        "No event on orders.events is as expected; 2 were published there:\n"
        "1. type 'order.placed', key '7'\n"
        "   type: expected 'order.paid', not 'order.placed'\n"
        "   payload.order.total: expected 6, not 5\n"
        "   payload.order.tax: expected 1, but there is only total\n"
        "2. an event\n"
        "   type: expected 'order.paid', not ''\n"
        "   payload: expected {'order': {'total': 6, 'tax': 1}}, not [1]"
    )
    with pytest.raises(AssertionError, match=r"Not 2 but 1 events on orders.events are as expected"):
        pubsub.assert_published("orders.events", key=7, count=2)
    with pytest.raises(AssertionError, match=r"Nothing was published to default; there are events on orders.events."):
        pubsub.assert_published("default")
    with pytest.raises(AssertionError, match=r"Nothing was to be published to orders.events, but there is:"):
        pubsub.assert_nothing_published("orders.events")
    pubsub.assert_nothing_published("default")


def test_nothing_like_this_was_published(pubsub):
    place(1)
    pubsub.assert_nothing_published("orders.events", key=2)
    with pytest.raises(AssertionError, match=r"Nothing like this was to be published to orders.events, but there is:"):
        pubsub.assert_nothing_published("orders.events", key=1)
    with pytest.raises(ValueError, match="count must be at least 1, not 0; there is assert_nothing_published"):
        pubsub.assert_published("orders.events", count=0)


def test_typing_mistakes_are_refused(pubsub):
    with pytest.raises(UnknownTopic, match=r'Did you mean "orders.events"'):
        pubsub.published("order.events")
    with pytest.raises(TypeError, match="an event has no playload to compare; it has created_at"):
        pubsub.assert_published("orders.events", playload={})


def test_asynchronous_handlers_are_run(pubsub):
    seen = []

    @subscribe("default", group="async")
    async def handle(event):
        seen.append(event.payload)

    with transaction.atomic():
        publish("default", 1)
    pubsub.drain()
    assert seen == [1]


def test_a_batch_is_one_call(pubsub):
    seen = []

    @subscribe("default", group="batches", batch=True)
    def handle(events):
        seen.append([event.payload for event in events])

    with transaction.atomic():
        publish_many("default", [{"payload": 1}, {"payload": 2}])
    assert len(pubsub.drain().handled) == 2
    assert seen == [[1, 2]]


def test_the_database_filters(pubsub):
    @subscribe("orders.events", group="large", where={"payload__total__gte": 100})
    def handle(event): ...

    with transaction.atomic():
        publish_many("orders.events", [{"payload": {"id": n, "total": n * 60}} for n in (1, 2, 3)])
        publish("orders.events", {"total": 500}, deliver_at=timezone.now() + dt.timedelta(hours=1))
    assert [event.payload["total"] for event in pubsub.drain(groups=["large"]).handled] == [120, 180]
    later = pubsub.drain(groups=["large"], advance=dt.timedelta(hours=2)).handled
    assert [event.payload["total"] for event in later] == [500]


def test_a_pattern_means_every_matching_topic_and_a_name_takes_precedence(pubsub):
    seen = []

    @subscribe("*", group="all")
    def handle(event):
        seen.append((event.topic, event.group))

    @subscribe("default", group="all")
    def handle_by_name(event):
        seen.append("by name")

    place(1)
    with transaction.atomic():
        publish("default", 1)
    pubsub.drain(groups=["all"])
    assert sorted(seen, key=str) == [("orders.events", "all"), "by name"]
    assert not pubsub.drain(groups=["all"], topics=["orders.events"]).handled
