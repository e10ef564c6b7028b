"""Whatever stands in an address or a form, the admin answers; it never breaks."""

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.urls import reverse

from pubsub import publish
from pubsub.models import DeadLetter, Subscription, Topic
from pubsub.sequencing.sequencer import sequence
from tests.admin.pages import said
from tests.factories import DeadLetterFactory

pytestmark = pytest.mark.django_db(transaction=True)

ODD = [
    "",
    "x",
    "-1",
    "0",
    "2147483648",
    "9" * 20,
    "9" * 5000,
    "1e400",
    "\x00",
    b"\xed\xa0\x80",
    "٣",
    "{}",
    "a" * 10_000,
]

PAGES = {
    "admin:pubsub_outboxmessage_changelist": [
        *("topic", "topic_name", "offset", "at", "partition", "type", "key", "identifier", "before", "after"),
    ],
    "admin:pubsub_outboxmessage_tail": ["topic"],
    "admin:pubsub_outboxmessage_tail_events": ["topic", "after", "partition", "offset"],
    "admin:pubsub_outboxmessage_publish": ["topic"],
    "admin:pubsub_deadletter_changelist": [
        *(
            "before",
            "after",
            "q",
            "state",
            "failed",
            "group",
            "topic",
            "type",
            "exception",
            "host",
            "key",
            "p",
            "o",
            "all",
        ),
    ],
    "admin:pubsub_subscription_changelist": ["q", "p", "o", "status", "topic", "group"],
    "admin:pubsub_topic_changelist": ["q", "p", "o"],
    "admin:pubsub_operatorevent_changelist": ["q", "before", "after", "action", "topic"],
}


@pytest.fixture
def root(client):
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def topic():
    with transaction.atomic():
        publish("default", {"n": 1})
    sequence("default")
    return Topic.objects.get(name="default")


@pytest.mark.parametrize(("page", "names"), PAGES.items())
def test_every_parameter_of_every_page(root, topic, page, names):
    DeadLetterFactory()
    for name in names:
        for value in ODD:
            given = {"topic": topic.pk, name: value} if "outboxmessage" in page else {name: value}
            response = root.get(reverse(page), given)
            assert response.status_code < 500, (name, value)


def test_addresses_of_events_that_cannot_be(root, topic):
    for number, offset in ((topic.pk, 10**20), (10**20, 1), (2**31, 2**63)):
        assert root.get(f"/admin/pubsub/outboxmessage/{number}/{offset}/").status_code == 404
    for page in ("deadletter", "topic", "subscription"):
        assert root.get(f"/admin/pubsub/{page}/{10**20}/change/").status_code in (302, 404)
        assert root.get(f"/admin/pubsub/{page}/{10**20}/change/?_to_field=").status_code in (302, 404)


@pytest.mark.parametrize("field", ["payload", "metadata"])
def test_json_that_is_too_deep_is_an_error_of_the_form(root, topic, field):
    given = {"topic": "default", "payload": "{}", "metadata": "{}", field: "[" * 100_000 + "]" * 100_000}
    response = root.post(reverse("admin:pubsub_outboxmessage_publish"), given)
    assert response.status_code == 200
    assert response.context["form"].errors[field] == ["Expected JSON of a reasonable depth."]


@pytest.mark.parametrize("action", ["replay", "discard"])
def test_a_transaction_is_that_of_one_letter(root, action):
    letters = DeadLetterFactory.create_batch(2)
    address = reverse(f"admin:pubsub_deadletter_{action}")
    for chosen in ([], ["999999"], ["x"], ["9" * 30]):
        response = root.post(address, {"whole": "1", "letter": chosen})
        assert response.status_code == 302
        assert "Nothing to" in said(response)[-1]
    response = root.post(address, {"whole": "1", "letter": [letter.pk for letter in letters]})
    assert response.status_code == 200
    assert set(DeadLetter.objects.values_list("state", flat=True)) == {"dead"}


@pytest.mark.parametrize(
    ("to", "given"),
    [
        ("older", {"older": "1e18"}),
        ("older", {"older": "inf"}),
        ("offset", {"offset": "9" * 24}),
        ("offset", {"offset": "9" * 5000}),
        ("by", {"by": "-" + "9" * 24}),
        ("latest", {"partitions": "9" * 24}),
        ("latest", {"partitions": "9" * 5000}),
        ("latest", {"partitions": "4294967296"}),
        ("time", {"time": "0001-01-01T00:00"}),
        ("time", {"time": "9999-12-31T23:59"}),
    ],
)
def test_a_move_that_cannot_be_is_an_error_of_the_form(root, topic, to, given):
    subscription = Subscription.objects.create(topic=topic, group_id="readers")
    address = reverse("admin:pubsub_subscription_do", args=[subscription.pk, "seek"])
    for more in ({}, {"confirmed": "1", "as_of": "9" * 5000}):
        assert root.post(address, {"to": to, **given, **more}).status_code in (200, 302)


def test_more_partitions_than_allowed_are_an_error_of_the_form(root, topic):
    address = reverse("admin:pubsub_topic_change", args=[topic.pk])
    form = root.get(address).context["adminform"].form
    given = {name: form.initial.get(name) or "" for name in form.fields} | {"retention": "7 00:00:00"}
    for partitions, expected in ((2_000_000, "4,096 at most"), (10**20, "less than or equal")):
        response = root.post(address, given | {"total_partitions": partitions})
        assert response.status_code == 200
        assert expected in str(response.context["errors"])
