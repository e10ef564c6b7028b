"""A handler that hangs, from the admin: it is shown, its worker is stopped, its event is skipped; by those who may."""

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse

from pubsub.models import DeadLetter, OperatorEvent, Subscription
from pubsub.monitoring.workers import read_workers
from tests.admin.pages import said, text_of
from tests.consuming.helpers import number, publish_each
from tests.factories import SubscriptionFactory
from tests.worker.test_watch import hanging, in_hand

pytestmark = pytest.mark.django_db(transaction=True)

MAY = ("view_subscription", "seek_subscription", "stop_worker_subscription")


@pytest.fixture
def hangs(work):
    publish_each("a")
    number()
    with hanging():
        yield Subscription.objects.get(group_id="emails")


def address(subscription, remedy):
    return reverse("admin:pubsub_subscription_remedy", args=[subscription.pk, remedy])


def page_of(subscription):
    return reverse("admin:pubsub_subscription_change", args=[subscription.pk])


def test_a_groups_page_shows_what_it_has_in_hand_and_what_can_be_done(sign_in, hangs):
    page = sign_in(*MAY).get(page_of(hangs)).content.decode()
    (call,) = in_hand()
    assert 'id="in-hand"' in page
    assert "__main__.hang" in page
    assert str(call.session_pid) in page
    assert f"{address(hangs, 'stop-worker')}?worker=w1" in page
    assert f"{address(hangs, 'skip-event')}?partition=0&amp;offset=1" in page


def test_a_worker_is_stopped_after_a_preview(sign_in, hangs):
    client = sign_in(*MAY)
    assert 'value="w1"' in client.get(address(hangs, "stop-worker") + "?worker=w1").content.decode()
    (call,) = in_hand()
    preview = client.post(address(hangs, "stop-worker"), {"worker": "w1", "force": "on"})
    assert f"Database sessions that would be ended: {call.session_pid}." in text_of(preview)
    assert "emails (work) has been handling offset 1" in text_of(preview)
    assert read_workers("default")[0].stop_requested_at is None
    form = {"worker": "w1", "force": "on", "reason": "it hangs", "confirmed": "yes"}
    answer = client.post(address(hangs, "stop-worker"), form)
    assert said(answer) == ["Worker w1 was asked to stop."]
    event = OperatorEvent.objects.get(action="stop-worker")
    assert (event.reason, event.after["sessions"]) == ("it hangs", [call.session_pid])
    assert LogEntry.objects.get().change_message == "Worker w1 was asked to stop. it hangs"


def test_an_event_is_skipped_after_a_preview(sign_in, hangs):
    client = sign_in(*MAY)
    form = {"partition": "0", "offset": "1", "reason": "it hangs"}
    assert "0 events have to be handled before it." in text_of(client.post(address(hangs, "skip-event"), form))
    refused = client.post(address(hangs, "skip-event"), {**form, "confirmed": "yes"})
    assert "Worker w1 has been handling offset 1" in text_of(refused)
    assert not DeadLetter.objects.exists()
    answer = client.post(address(hangs, "skip-event"), {**form, "force": "on", "confirmed": "yes"})
    assert said(answer) == ["Group emails has passed offset 1: 1 event is a dead letter now."]
    assert DeadLetter.objects.get().exception_message.endswith(": it hangs")


def test_what_cannot_be_is_said_on_the_page(sign_in, hangs):
    client = sign_in(*MAY)
    answer = client.post(address(hangs, "stop-worker"), {"worker": "w9", "confirmed": "yes"})
    assert 'There is no worker "w9".' in text_of(answer)
    answer = client.post(address(hangs, "skip-event"), {"partition": "0", "offset": "99"})
    assert "reads no event at offset 99" in text_of(answer)
    assert client.get(reverse("admin:pubsub_subscription_remedy", args=[hangs.pk, "none"])).status_code == 404


def test_only_the_groups_own_workers_can_be_stopped_from_its_page(sign_in, hangs):
    other = SubscriptionFactory(topic=hangs.topic, group_id="others")
    client = sign_in(*MAY)
    for form in ({"worker": "w1"}, {"worker": "w1", "force": "on", "confirmed": "yes"}):
        assert "Worker w1 does not work for group others on work." in text_of(
            client.post(address(other, "stop-worker"), form)
        )
    assert read_workers("default")[0].stop_requested_at is None


@pytest.mark.parametrize("remedy", ["stop-worker", "skip-event"])
def test_who_may_only_look_can_do_neither(sign_in, hangs, remedy):
    client = sign_in("view_subscription", "pause_subscription")
    assert address(hangs, remedy) not in client.get(page_of(hangs)).content.decode()
    form = {"worker": "w1", "partition": "0", "offset": "1", "force": "on", "confirmed": "yes"}
    assert client.get(address(hangs, remedy)).status_code == 403
    assert client.post(address(hangs, remedy), form).status_code == 403
    assert not DeadLetter.objects.exists()
    assert read_workers("default")[0].stop_requested_at is None
