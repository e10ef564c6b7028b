"""Topics in the admin: added, kept as they were named, deleted if nothing refers to them."""

import datetime as dt

import pytest
from django.contrib.admin.models import LogEntry
from django.db import transaction
from django.urls import reverse

from pubsub import publish
from pubsub.admin import TopicAdmin
from pubsub.models import OperatorEvent, Topic
from pubsub.sequencing.sequencer import sequence
from tests.admin.pages import hidden_fields, said, text_of
from tests.factories import (
    ConsumerOffsetFactory,
    DeadLetterFactory,
    LogCounterFactory,
    LogPartitionCounterFactory,
    SubscriptionFactory,
    TopicFactory,
)

pytestmark = pytest.mark.django_db

TOPIC = {
    "name": "parcels.events",
    "total_partitions": "4",
    "retention": "7 00:00:00",
    "semantics": "PUB_SUB",
    "zero_subscribers": "keep",
}


def test_a_topic_is_added(admin_client):
    page = admin_client.get(reverse("admin:pubsub_topic_add"))
    assert page.context["adminform"].form.initial["total_partitions"] == 8
    admin_client.post(reverse("admin:pubsub_topic_add"), TOPIC)
    topic = Topic.objects.get(name="parcels.events")
    assert topic.total_partitions == 4
    LogCounterFactory(topic=topic, next_offset=2)
    assert OperatorEvent.objects.get(action="create", topic="parcels.events").actor == "admin"
    assert LogEntry.objects.get().object_id == str(topic.pk)
    assert "pub/sub 4 7 days 1" in text_of(admin_client.get(reverse("admin:pubsub_topic_changelist")))


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("name", "orders events", "cannot be the name of a topic"),
        ("name", "", "This field is required"),
        ("name", "default", "already exists"),
        ("total_partitions", "0", "at least one partition"),
        ("retention", "-1 00:00:00", "can’t be negative"),
        ("retention", "soon", "Enter a valid duration"),
    ],
)
def test_a_topic_that_cannot_work_is_refused(admin_client, field, value, error):
    before = Topic.objects.count()
    page = admin_client.post(reverse("admin:pubsub_topic_add"), {**TOPIC, field: value})
    assert error in text_of(page)
    assert Topic.objects.count() == before


def change(client, topic, **form):
    return client.post(reverse("admin:pubsub_topic_change", args=[topic.pk]), {**TOPIC, **form})


def test_a_topic_is_changed_but_keeps_its_name(admin_client):
    topic = TopicFactory(name="before", total_partitions=4, max_age=dt.timedelta(days=1))
    assert change(
        admin_client, topic, name="after", total_partitions=9, retention="8 00:00:00", max_age="2 00:00:00"
    ).url
    topic.refresh_from_db()
    assert (topic.name, topic.total_partitions, topic.retention.days, topic.max_age.days) == ("before", 9, 8, 2)
    assert set(OperatorEvent.objects.filter(topic="before").values_list("action", flat=True)) == {"resize", "configure"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"total_partitions": "1"}, "4 partitions become 1: events published from then on go there, and at most"),
        ({"retention": "1 00:00:00"}, "kept for 24 h instead of 7 days"),
        ({"retention": "0"}, "3 events are already older than that"),
        ({"max_age": "2 00:00:00"}, "older than 2 days loses them unread"),
        ({"max_bytes": "5000"}, "holds back more than 5,000 bytes"),
        ({"semantics": "QUEUE"}, "no second group can subscribe"),
        ({"zero_subscribers": "refuse"}, "publishers get an error from now on"),
    ],
)
def test_a_change_that_may_lose_something_is_explained_first(admin_client, form, told):
    topic = TopicFactory(total_partitions=4)
    with transaction.atomic():
        for number in range(3):
            publish(topic.name, number)
    sequence("default")
    before = Topic.objects.filter(pk=topic.pk).values().get()
    asked = change(admin_client, topic, **form)
    assert told in text_of(asked)
    assert Topic.objects.filter(pk=topic.pk).values().get() == before
    assert not OperatorEvent.objects.filter(topic=topic.name).exists()

    done = change(admin_client, topic, **hidden_fields(asked), reason="the disk is full")
    assert done.url == reverse("admin:pubsub_topic_changelist")
    (option,) = form
    assert Topic.objects.filter(pk=topic.pk).values().get()[option] != before[option]
    assert OperatorEvent.objects.get(topic=topic.name).reason == "the disk is full"


def test_a_change_that_now_means_something_else_is_confirmed_again(admin_client):
    topic = TopicFactory(total_partitions=8)
    asked = change(admin_client, topic, total_partitions="2")
    topic.total_partitions = 6
    topic.save()
    again = change(admin_client, topic, **hidden_fields(asked))
    assert "6 partitions become 2" in text_of(again)
    assert change(admin_client, topic, **hidden_fields(again)).status_code == 302


def test_a_read_only_user_is_asked_nothing(sign_in):
    topic = TopicFactory(total_partitions=8)
    assert change(sign_in("view_topic"), topic, total_partitions="2").status_code == 403


def test_a_queue_for_several_groups_is_refused_and_says_why(admin_client):
    topic = TopicFactory()
    SubscriptionFactory.create_batch(2, topic=topic)
    address = reverse("admin:pubsub_topic_change", args=[topic.pk])
    assert "cannot become a QUEUE" in text_of(admin_client.post(address, {**TOPIC, "semantics": "QUEUE"}))
    topic.refresh_from_db()
    assert topic.semantics == "PUB_SUB"


def test_the_grid_shows_every_group_by_every_partition(admin_client, sign_in):
    topic = TopicFactory(total_partitions=2)
    for partition in range(2):
        LogPartitionCounterFactory(topic=topic, partition_id=partition, entries=2000)
        ConsumerOffsetFactory(topic=topic, group_id="mail", partition_id=partition, passed=partition)
    SubscriptionFactory(topic=topic, group_id="mail")
    SubscriptionFactory(topic=topic, group_id="never-ran")
    address = reverse("admin:pubsub_topic_change", args=[topic.pk])
    text = text_of(admin_client.get(address))
    assert "mail active 3,999 2,000 1,999 never-ran active 0 – –" in text
    assert "never-ran" not in text_of(sign_in("view_topic").get(address))


def test_a_topic_that_nothing_refers_to_is_deleted(admin_client):
    topic = TopicFactory()
    admin_client.post(reverse("admin:pubsub_topic_delete", args=[topic.pk]), {"post": "yes"})
    assert not Topic.objects.filter(pk=topic.pk).exists()


@pytest.mark.parametrize(
    ("refer", "reason"),
    [
        (lambda topic: publish(topic.name, {}), "events wait for their offsets"),
        (lambda topic: LogPartitionCounterFactory(topic=topic, entries=1234), "1,234 events are in its log"),
        (lambda topic: SubscriptionFactory(topic=topic), "groups are subscribed to it"),
        (lambda topic: DeadLetterFactory(topic=topic), "dead letters from it are open"),
    ],
    ids=["message", "log", "subscription", "dead letter"],
)
@pytest.mark.parametrize("several", [False, True])
def test_a_topic_that_something_refers_to_stays(admin_client, refer, reason, several):
    topic = TopicFactory()
    refer(topic)
    if several:
        address = reverse("admin:pubsub_topic_changelist")
        form = {"action": "delete_selected", "_selected_action": [topic.pk, TopicFactory().pk]}
    else:
        address, form = reverse("admin:pubsub_topic_delete", args=[topic.pk]), {}
    assert f"{topic}: {reason}" in text_of(admin_client.post(address, form))
    admin_client.post(address, {**form, "post": "yes"})
    assert Topic.objects.filter(pk=topic.pk).exists()


@pytest.mark.parametrize("several", [False, True])
def test_a_change_that_became_impossible_after_the_confirmation_page_is_refused(admin_client, monkeypatch, several):
    """It is checked for the page, and again when it is done: an event is published in between."""
    free, taken = TopicFactory(name="a"), TopicFactory(name="b")
    LogPartitionCounterFactory(topic=taken, entries=1)
    monkeypatch.setattr(TopicAdmin, "get_deleted_objects", lambda *arguments: ([], {}, set(), []))
    if several:
        address = reverse("admin:pubsub_topic_changelist")
        form = {"action": "delete_selected", "_selected_action": [free.pk, taken.pk]}
    else:
        address, form = reverse("admin:pubsub_topic_delete", args=[taken.pk]), {}
    answer = admin_client.post(address, {**form, "post": "yes"})
    assert answer.url == address
    assert said(answer) == ['Topic "b" was not removed: 1 event is in its log. Force it if none of that is needed.']
    assert Topic.objects.filter(pk__in=(free.pk, taken.pk)).count() == 2, "all of it, or nothing"
    assert not LogEntry.objects.exists()


def test_the_default_topic_stays(admin_client):
    admin_client.post(reverse("admin:pubsub_topic_delete", args=[1]), {"post": "yes"})
    assert Topic.objects.filter(pk=1).exists()
