"""Every page there is: harmless under a strict policy, legible in light and dark, for all, and on a phone."""

import uuid

import pytest
from django.db import connection, transaction
from playwright.sync_api import expect

from pubsub import publish
from pubsub.models import DeadLetter, OperatorEvent, Subscription, Topic
from pubsub.sequencing.sequencer import sequence
from tests.browser.shop import a_lively_shop
from tests.factories import AttemptFactory, DeadLetterFactory, FindingFactory, OperatorEventFactory, TopicFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]  # all together, more than two minutes

PUBSUB = "/admin/pubsub"
LONG = "a-name-that-seemed-a-good-idea-to-a-user-" * 5


def test_an_empty_system(operator, look):
    page = operator
    for name, address in {
        "overview": "overview/",
        "events": "outboxmessage/",
        "tail": "outboxmessage/tail/",
        "publish": "outboxmessage/publish/",
        "letters": "deadletter/",
        "groups": "subscription/",
        "topics": "topic/",
        "topic": "topic/1/change/",
        "findings": "finding/",
        "audit-log": "operatorevent/",
    }.items():
        page.goto(f"{PUBSUB}/{address}")
        look(f"none-{name}")


def failures():
    """Letters in every state, a whole transaction, attempts, and what waits behind a key."""
    topic = Topic.objects.get(name="orders.events")
    together = uuid.uuid4()
    first = DeadLetterFactory(topic=topic, group_id="emails", c_offset=100, key="customer-7", transaction_id=together)
    DeadLetterFactory(topic=topic, group_id="emails", c_offset=101, transaction_id=together, partition_id=3)
    DeadLetterFactory(topic=topic, group_id="emails", c_offset=102, key="customer-7", state="parked")
    DeadLetterFactory(topic=topic, group_id="inventory", c_offset=103, retrying=True, key=LONG, host_id=LONG)
    DeadLetterFactory(topic=topic, group_id="inventory", c_offset=104, state="resolved", type=LONG)
    DeadLetterFactory(topic=topic, group_id="inventory", c_offset=105, state="discarded", exception_class=LONG)
    for number in (1, 2, 3):
        AttemptFactory(letter=first, attempt=number)
    OperatorEventFactory(
        topic=topic.name,
        group_id="emails",
        action="replay-dead-letters",
        reason="the mail server is up again",
        after={"ids": [first.pk]},
    )
    return first


def test_dead_letters(operator, look):
    a_lively_shop()
    letter = failures()
    page = operator
    page.goto(f"{PUBSUB}/deadletter/")
    look("letters")
    page.goto(f"{PUBSUB}/deadletter/?q=nothing-like-that")
    look("letters-not-found")
    page.goto(f"{PUBSUB}/deadletter/{letter.pk}/change/")
    look("letter")
    page.goto(f"{PUBSUB}/deadletter/{DeadLetter.objects.get(c_offset=103).pk}/change/")
    look("letter-long")
    page.goto(f"{PUBSUB}/deadletter/{letter.pk}/edit/")
    look("edit")
    page.fill("#id_text", "{oops")
    page.click("text=Show changes")
    look("edit-error")
    page.fill("#id_text", '{"order": 1, "total": 49.90}')
    page.click("text=Show changes")
    look("edit-difference")

    page.goto(f"{PUBSUB}/deadletter/{letter.pk}/change/")
    page.click("text=Replay whole transaction…")
    look("replay")
    page.click("input[value=Replay]")
    expect(page.locator(".messagelist .success")).to_contain_text("2 events of 1 transaction")
    look("letter-replayed")
    page.goto(f"{PUBSUB}/deadletter/{letter.pk}/history/")
    look("letter-history")

    page.goto(f"{PUBSUB}/deadletter/?state=dead&group=emails")
    page.click("#action-toggle")
    page.select_option("select[name=action]", "discard_selected")
    look("letters-selected")
    page.click("button[name=index]")
    look("discard")
    DeadLetter.objects.filter(state="dead").first().delete()
    page.click("input[value=Discard]")
    expect(page.locator(".messagelist .warning")).to_contain_text("already handled by someone else")
    look("discard-result")


def test_progress_of_many(operator, look, monkeypatch):
    monkeypatch.setattr("pubsub.admin.actions.AT_ONCE", 10)
    monkeypatch.setattr("pubsub.admin.actions.SECONDS_OF_WORK", 0)
    monkeypatch.setattr("pubsub.dead_letters.actions.BATCH_SIZE", 20)
    DeadLetterFactory.create_batch(60, topic=TopicFactory(name="busy.events"))
    page = operator
    page.route("**/continue.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    page.goto(f"{PUBSUB}/deadletter/")
    page.click("#action-toggle")
    page.click("text=Select all that match")
    page.select_option("select[name=action]", "discard_selected")
    page.click("button[name=index]")
    look("discard-many")
    page.click("input[value=Discard]")
    expect(page.locator("#content")).to_contain_text("of 60 events done")
    look("discard-progress")


def test_groups(operator, look):
    a_lively_shop()
    page = operator
    emails = Subscription.objects.get(group_id="emails")
    analytics = Subscription.objects.get(group_id="analytics")
    page.goto(f"{PUBSUB}/subscription/")
    look("groups")
    page.goto(f"{PUBSUB}/subscription/{emails.pk}/change/")
    look("group")
    for action in ("pause", "seek", "cancel", "remove"):
        page.goto(f"{PUBSUB}/subscription/{emails.pk}/do/{action}/")
        look(f"group-{action}")
    page.click(".pubsub-ask input[type=submit]")
    expect(page.locator(".errorlist")).to_contain_text("is ACTIVE")
    look("group-remove-refused")
    page.goto(f"{PUBSUB}/subscription/{analytics.pk}/do/resume/")
    look("group-resume")
    page.goto(f"{PUBSUB}/subscription/{analytics.pk}/do/seek/")
    page.select_option("#id_to", "offset")
    page.click("text=Preview…")
    look("group-seek-error")
    page.fill("#id_offset", "121")
    page.click("text=Preview…")
    look("group-seek-preview")
    page.click("input[name=confirmed]")
    look("group-moved")
    page.goto(f"{PUBSUB}/subscription/{analytics.pk}/history/")
    look("group-history")


def test_topics(operator, look):
    topic = a_lively_shop()
    unused = TopicFactory(name="unused.events")
    page = operator
    page.goto(f"{PUBSUB}/topic/")
    look("topics")
    page.goto(f"{PUBSUB}/topic/{topic.pk}/change/")
    look("topic")
    page.fill("#id_total_partitions", "2")
    page.fill("#id_retention", "0")
    page.click("input[name=_save]")
    expect(page.locator("#content")).to_contain_text("240 events are already older than that")
    look("topic-confirm")
    page.goto(f"{PUBSUB}/topic/add/")
    look("topic-add")
    page.fill("#id_name", "no name for a topic")
    page.click("input[name=_save]")
    expect(page.locator(".errorlist")).to_contain_text("cannot be the name of a topic")
    look("topic-add-error")
    page.goto(f"{PUBSUB}/topic/{topic.pk}/delete/")
    look("topic-delete-refused")
    page.goto(f"{PUBSUB}/topic/{unused.pk}/delete/")
    look("topic-delete")
    page.goto(f"{PUBSUB}/topic/{topic.pk}/history/")
    look("topic-history")
    page.goto(f"{PUBSUB}/topic/")
    page.click("#action-toggle")
    page.select_option("select[name=action]", "delete_selected")
    page.click("button[name=index]")
    look("topics-delete-refused")


def test_events(operator, look):
    topic = a_lively_shop()
    with transaction.atomic():
        for number in range(3):
            publish(topic.name, {LONG: [LONG, {LONG: number}]}, type=LONG[:100], key=LONG, host_id=LONG, user_id=LONG)
    sequence("default")
    page = operator
    page.goto(f"{PUBSUB}/outboxmessage/?topic={topic.pk}")
    look("events")
    page.goto(f"{PUBSUB}/outboxmessage/?topic={topic.pk}&type=nothing")
    look("events-not-found")
    page.goto(f"{PUBSUB}/outboxmessage/?topic={topic.pk}&offset=99999")
    look("events-beyond")
    page.goto(f"{PUBSUB}/outboxmessage/?topic={topic.pk}&offset=none&partition=-1")
    look("events-error")
    page.goto(f"{PUBSUB}/outboxmessage/{topic.pk}/4/")
    look("event")
    page.goto(f"{PUBSUB}/outboxmessage/{topic.pk}/242/")
    look("event-long")
    page.goto(f"{PUBSUB}/outboxmessage/tail/?topic={topic.pk}")
    expect(page.locator("#pubsub-tail li")).to_have_count(20)
    look("tail")
    page.goto(f"{PUBSUB}/outboxmessage/publish/?topic=orders.events")
    look("publish")
    page.fill("#id_payload", "{oops")
    page.click("input[type=submit]")
    look("publish-error")
    page.fill("#id_payload", '{"order": 4711}')
    page.click("text=Publish…")
    look("publish-confirm")
    page.click("input[name=confirmed]")
    look("published")


def test_all_other_pages(operator, look):
    a_lively_shop()
    FindingFactory(
        job="hot-keys", run_id=uuid.uuid4(), data={"key": LONG, "events": 3}, parameters={"report": "/reports/1.html"}
    )
    page = operator
    for name, address in {
        "overview": "overview/",
        "app": "",
        "findings": "finding/",
        "audit-log": "operatorevent/",
        "audit-log-row": f"operatorevent/{OperatorEvent.objects.first().pk}/change/",
    }.items():
        page.goto(f"{PUBSUB}/{address}")
        look(name)


def test_the_worst_case(operator, look):
    """Every kind of trouble at once, with the longest names there can be."""
    topic = a_lively_shop()
    Subscription.objects.filter(group_id="inventory").update(status="DEAD")
    Subscription.objects.filter(group_id="emails").update(group_id=LONG[:100])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE consumer_offsets SET group_id = %s WHERE group_id = 'emails'", [LONG[:100]])
    Topic.objects.filter(pk=topic.pk).update(name=LONG[:100])
    page = operator
    for name in ("overview", "subscription", "topic", "deadletter", "outboxmessage"):
        page.goto(f"{PUBSUB}/{name}/")
        look(f"worst-{name}")
