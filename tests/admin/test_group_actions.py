"""Groups paused, resumed, moved, cancelled and removed in the admin: asked first, by those who may, and kept."""

import threading

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connections, transaction
from django.test import Client
from django.urls import reverse

from pubsub import publish
from pubsub.models import ConsumerOffset, OperatorEvent, Subscription, Topic
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from tests.admin.pages import hidden_fields, said, text_of
from tests.audit import journal

pytestmark = pytest.mark.django_db(transaction=True)

EVERYTHING = ("view_subscription", "pause_subscription", "seek_subscription", "delete_subscription")


@pytest.fixture
def subscription():
    topic = Topic.objects.create(name="parcels", total_partitions=2)
    register_subscription(Declaration(topic=topic.name, group="mail", handler=print), using="default")
    with transaction.atomic():
        for number in range(10):
            publish(topic.name, number, key=number)
    sequence("default")
    return Subscription.objects.get(group_id="mail")


def address(subscription, action):
    return reverse("admin:pubsub_subscription_do", args=[subscription.pk, action])


def press(client, subscription, action, **form):
    return client.post(address(subscription, action), {"confirmed": "yes", **form})


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("pause", "ACTIVE", "PAUSED"),
        ("resume", "PAUSED", "ACTIVE"),
        ("resume", "DEAD", "ACTIVE"),
        ("cancel", "ACTIVE", "CANCELLED"),
    ],
)
def test_an_action_asks_first_and_records_who_and_why(sign_in, subscription, action, before, after):
    Subscription.objects.update(status=before)
    client = sign_in(*EVERYTHING)
    page = client.get(reverse("admin:pubsub_subscription_change", args=[subscription.pk]))
    assert address(subscription, action) in page.content.decode()
    assert client.get(address(subscription, action)).status_code == 200
    assert client.post(address(subscription, action), {"reason": "mail is down"}).status_code in (200, 302)
    subscription.refresh_from_db()
    assert subscription.status == after
    event = OperatorEvent.objects.get(action=action)
    user = LogEntry.objects.get().user
    assert (event.actor, event.reason) == (user.get_username(), "mail is down")
    assert "mail is down" in LogEntry.objects.get().change_message
    page = text_of(client.get(reverse("admin:pubsub_subscription_change", args=[subscription.pk])))
    assert "mail is down" in page


def test_get_changes_nothing(sign_in, subscription):
    client = sign_in(*EVERYTHING)
    for action in ("pause", "seek", "cancel", "remove"):
        assert client.get(address(subscription, action), {"confirmed": "yes"}).status_code == 200
    subscription.refresh_from_db()
    assert subscription.status == "ACTIVE"
    assert not journal().filter(group_id="mail").exists()


@pytest.mark.parametrize("permissions", [(), ("pause_subscription",), ("seek_subscription",), ("delete_subscription",)])
def test_each_action_needs_its_permission(sign_in, subscription, permissions):
    client = sign_in("view_subscription", *permissions)
    page = client.get(reverse("admin:pubsub_subscription_change", args=[subscription.pk])).content.decode()
    needed = {"pause": "pause", "seek": "seek", "cancel": "delete", "remove": "delete"}
    for action, permission in needed.items():
        may = f"{permission}_subscription" in permissions
        assert (address(subscription, action) in page) == may
        assert client.get(address(subscription, action)).status_code == (200 if may else 403)
        if not may:
            assert press(client, subscription, action, to="latest", force="on").status_code == 403
    subscription.refresh_from_db()
    assert subscription.status == "ACTIVE"


def test_a_user_who_may_not_see_subscriptions_cannot_change_them(sign_in, subscription):
    client = sign_in("pause_subscription", "seek_subscription", "delete_subscription")
    for action in ("pause", "seek", "cancel", "remove"):
        assert press(client, subscription, action, to="latest").status_code == 403


def test_moving_shows_the_new_lag_first(sign_in, subscription):
    client = sign_in(*EVERYTHING)
    asked = client.post(address(subscription, "seek"), {"to": "offset", "offset": "7"})
    assert "The group is 10 events behind; it would be 4" in text_of(asked)
    assert set(ConsumerOffset.objects.values_list("passed", flat=True)) == {0}, "nothing has been moved yet"
    done = client.post(address(subscription, "seek"), {**hidden_fields(asked), "confirmed": "Move it"})
    assert "it is now 4 events behind" in said(done)[0]
    assert sum(ConsumerOffset.objects.values_list("passed", flat=True)) == 6
    back = client.post(address(subscription, "seek"), {"to": "by", "by": "-1", "partitions": "0"})
    assert len(back.context["moves"]) == 1
    assert OperatorEvent.objects.filter(action="seek").count() == 1


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"to": "offset"}, "Required for the choice above"),
        ({"to": "offset", "offset": "9999"}, "beyond the tip"),
        ({"to": "somewhere"}, "Select a valid choice"),
        ({"to": "latest", "partitions": "0; 1"}, "separated by commas, such as 0, 3"),
        ({"to": "latest", "partitions": "7"}, "has no partition 7"),
        ({"to": "older", "older": "24"}, "no event is that old"),
        ({"to": "older", "older": "1", "partitions": "0"}, "applies to all partitions"),
    ],
)
def test_an_impossible_move_is_explained(sign_in, subscription, form, error):
    response = sign_in(*EVERYTHING).post(address(subscription, "seek"), form)
    assert error in text_of(response)
    assert set(ConsumerOffset.objects.values_list("passed", flat=True)) == {0}


def test_old_events_are_skipped(sign_in, subscription):
    client = sign_in(*EVERYTHING)
    asked = client.post(address(subscription, "seek"), {"to": "older", "older": "0"})
    client.post(address(subscription, "seek"), {**hidden_fields(asked), "confirmed": "Move it"})
    assert sum(ConsumerOffset.objects.values_list("passed", flat=True)) == 10
    assert OperatorEvent.objects.filter(action="force-complete").exists()


def test_an_active_group_is_removed_only_by_force(sign_in, subscription):
    client = sign_in(*EVERYTHING)
    assert "is ACTIVE" in text_of(press(client, subscription, "remove"))
    assert Subscription.objects.exists()
    done = press(client, subscription, "remove", force="on", reason="gone")
    assert done.status_code == 302
    assert not Subscription.objects.exists()
    assert LogEntry.objects.get().is_deletion()
    for again in (client.get(address(subscription, "pause")), press(client, subscription, "remove")):
        assert again.url == reverse("admin:pubsub_subscription_changelist")
    assert said(press(client, subscription, "remove"))[-1] == "This subscription has been removed."


def test_an_impossible_transition_is_explained(sign_in, subscription):
    Subscription.objects.update(status="CANCELLED")
    assert "cancelled for good" in text_of(press(sign_in(*EVERYTHING), subscription, "resume"))


def at_once(presses):
    """Each press by a client of its own, all in the same moment."""
    answers, together = [None] * len(presses), threading.Barrier(len(presses))

    def run(number, client, *arguments, **form):
        try:
            together.wait()
            answers[number] = press(client, *arguments, **form)
        finally:
            connections.close_all()

    threads = [
        threading.Thread(target=run, args=(number, *arguments), kwargs=form)
        for number, (arguments, form) in enumerate(presses)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.fixture
def two_operators():
    clients = []
    for name in ("olga", "piet"):
        client = Client()
        client.force_login(User.objects.create_superuser(name))
        clients.append(client)
    return clients


def texts(answers):
    return [said(answer)[-1] for answer in answers]


@pytest.mark.parametrize(("action", "status"), [("pause", "PAUSED"), ("cancel", "CANCELLED")])
def test_two_operators_press_the_same_button_and_it_happens_once(two_operators, subscription, action, status):
    answers = at_once([((client, subscription, action), {"reason": "mail is down"}) for client in two_operators])
    assert [answer.status_code for answer in answers] == [302, 302]
    told = sorted(texts(answers))
    event = OperatorEvent.objects.get(action=action)
    assert told[0].startswith("Group mail on parcels is")
    assert told[1].startswith(
        f"Nothing changed, already done by someone else: mail on parcels is {status.lower()} already"
    )
    assert f"(mail is down ({event.actor}))" in told[1]
    subscription.refresh_from_db()
    assert subscription.status == status
    assert LogEntry.objects.get().user.username == event.actor


def test_two_operators_remove_a_group_at_once(two_operators, subscription):
    answers = at_once([((client, subscription, "remove"), {"force": "on"}) for client in two_operators])
    assert sorted(texts(answers)) == ["Group mail on parcels is removed.", "This subscription has been removed."]
    assert not Subscription.objects.exists()
    assert OperatorEvent.objects.filter(action="remove").count() == 1


def test_two_operators_move_a_group_at_once_and_it_moves_once(two_operators, subscription):
    forms = []
    for client in two_operators:
        asked = client.post(address(subscription, "seek"), {"to": "by", "by": "2", "partitions": "0", "force": "on"})
        forms.append(hidden_fields(asked))
    answers = at_once(
        [((client, subscription, "seek"), form) for client, form in zip(two_operators, forms, strict=True)]
    )
    assert sorted(answer.status_code for answer in answers) == [200, 302]
    (late,) = (answer for answer in answers if answer.status_code == 200)
    event = OperatorEvent.objects.get(action="seek")
    assert f"{event.actor} has moved the group meanwhile, and nothing else has changed" in text_of(late)
    assert late.context["moves"][0].lag_before == late.context["moves"][0].lag_after + 2, "it is previewed again"
    assert ConsumerOffset.objects.get(partition_id=0).passed == 2

    again = late.wsgi_request.user
    client = two_operators[["olga", "piet"].index(again.username)]
    assert press(client, subscription, "seek", **hidden_fields(late)).status_code == 302
    assert ConsumerOffset.objects.get(partition_id=0).passed == 4
