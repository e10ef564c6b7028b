"""A failed event, from the list to its replay, as an operator does it."""

import pytest
from django.db import transaction
from playwright.sync_api import expect

from pubsub import publish
from pubsub.models import DeadLetter, Subscription, Topic
from pubsub.subscriptions.declare import Declaration
from pubsub.worker.worker import Worker

pytestmark = pytest.mark.django_db(transaction=True)


class MailServer:
    """Fails until it is up."""

    up = False

    def send(self, event):
        if not self.up:
            raise ConnectionRefusedError("[Errno 111] Connection refused: mail.example.org:587")


def drain(handler):
    Worker(
        [Declaration(topic="orders.events", group="email-service", handler=handler)], using="default", drain=True
    ).run()


def test_a_failed_event_is_found_replayed_and_handled(signed_in, picture):
    page, server = signed_in, MailServer()
    Topic.objects.get_or_create(name="orders.events")
    drain(server.send)
    for number in range(1, 13):
        with transaction.atomic():
            for type_ in ("order.created", "order.paid"):
                order = {"order": number, "customer": {"name": "Zoë <Admin>", "city": "Köln"}, "total": "49.90"}
                publish("orders.events", order, type=type_, key=f"customer-{number}", metadata={"trace": "4bf92f35"})
    drain(server.send)
    assert DeadLetter.objects.filter(state="dead").count() == 24
    Subscription.objects.create(topic_id=1, group_id="billing", status="PAUSED")
    with transaction.atomic():
        publish("orders.events", {"order": 13}, type="order.created", key="customer-13")

    page.click("text=Dead letters")
    page.click("#changelist-filter >> text=dead: waiting for an operator")
    expect(page.locator("#result_list tbody tr")).to_have_count(24)
    picture("dead-letters")

    page.fill("#searchbar", "customer-7")
    page.keyboard.press("Enter")
    expect(page.locator("#result_list tbody tr")).to_have_count(2)
    page.locator("#result_list tbody th a").first.click()
    expect(page.locator("text=Connection refused").first).to_be_visible()
    expect(page.locator(".field-payload_shown", has_text="Zoë <Admin>")).to_be_visible()
    picture("dead-letter")

    page.click("text=Replay…")
    expect(page.locator("text=2 events of 1 transaction").first).to_be_visible()
    picture("dead-letter-replay")
    page.click("input[value=Replay]")
    expect(page.locator(".messagelist .success")).to_contain_text("2 events of 1 transaction will be handled again")
    picture("dead-letter-replayed")

    server.up = True
    drain(server.send)
    page.reload()
    expect(page.locator(".field-state .readonly")).to_have_text("handled at a later attempt")
    expect(page.locator("text=Replay…")).to_have_count(0)
    assert DeadLetter.objects.filter(key="customer-7", state="resolved").count() == 2
    assert DeadLetter.objects.filter(state="dead").count() == 22

    page.goto("/admin/pubsub/subscription/")
    picture("subscriptions")
    page.click("text=email-service")
    picture("subscription")
    page.goto("/admin/pubsub/topic/")
    picture("topics")
    page.goto("/admin/pubsub/topic/add/")
    picture("topic-add")
    page.goto("/admin/pubsub/deadletter/")
    page.click("#action-toggle")
    page.select_option("select[name=action]", "discard_selected")
    page.click("button[name=index]")
    picture("dead-letter-discard")
    page.click("text=No, take me back")
    expect(page.locator("#result_list")).to_be_visible()
    assert not DeadLetter.objects.filter(state="discarded").exists()
