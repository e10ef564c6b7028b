"""Replay and discard: who may, what is asked, what is done, and what is said about it."""

import uuid

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.urls import reverse

from pubsub.admin import actions
from pubsub.dead_letters import actions as dead_letter_actions
from pubsub.models import DeadLetter
from tests.admin.pages import LETTERS, agree, hidden_fields, press, press_on_page, said, text_of
from tests.audit import journal
from tests.factories import DeadLetterFactory, TopicFactory

pytestmark = pytest.mark.django_db

State = DeadLetter.State


def states():
    return list(DeadLetter.objects.order_by("pk").values_list("state", flat=True))


@pytest.mark.parametrize("actions", [(), ("replay",), ("discard",), ("replay", "discard")])
def test_each_action_has_a_permission_of_its_own(sign_in, actions):
    letter = DeadLetterFactory()
    client = sign_in("view_deadletter", *(f"{action}_deadletter" for action in actions))
    listed = client.get(reverse(LETTERS))
    detail = client.get(reverse("admin:pubsub_deadletter_change", args=[letter.pk]))
    for action, page_asks in (("replay", "will be replayed"), ("discard", "will be discarded")):
        address = reverse(f"admin:pubsub_deadletter_{action}")
        assert (f'value="{action}_selected"' in listed.content.decode()) == (action in actions)
        assert (address in detail.content.decode()) == (action in actions)
        asked = press(client, action, [letter])
        assert (page_asks in text_of(asked)) == (action in actions)
        asked = press_on_page(client, action, letter)
        assert asked.status_code == (200 if action in actions else 403)
        if action not in actions:
            signed = {"action": action, "filter": {"ids": [letter.pk]}, "events": 1}
            assert client.post(address, {"progress": actions_progress(signed)}).status_code == 403
    assert states() == [State.DEAD]


def actions_progress(values):
    return actions.Progress(**values).sign()


@pytest.mark.parametrize("action", ["replay", "discard"])
def test_only_a_post_with_what_was_on_the_page_changes_anything(operator, action):
    letter = DeadLetterFactory()
    address = reverse(f"admin:pubsub_deadletter_{action}")
    assert operator.get(address, {"letter": letter.pk}).status_code == 405
    assert operator.post(address, {"progress": "made-up"}).status_code == 400
    other = "discard" if action == "replay" else "replay"
    signed = actions_progress({"action": other, "filter": {"ids": [letter.pk]}, "events": 1})
    assert operator.post(address, {"progress": signed}).status_code == 400
    assert states() == [State.DEAD]


def test_replay_asks_first_and_takes_the_rest_of_the_transaction_along(operator):
    topic, together = TopicFactory(name="orders"), uuid.uuid4()
    first, *_ = DeadLetterFactory.create_batch(3, topic=topic, transaction_id=together)
    other = DeadLetterFactory(topic=topic)
    DeadLetterFactory(topic=topic, group_id="another-group", transaction_id=together)
    DeadLetterFactory(topic=topic)

    asked = press(operator, "replay", [first, other])
    assert (
        "4 events of 2 transactions will be replayed. For group email-service on orders: 4 events of 2 transactions"
        in text_of(asked)
    )
    assert set(states()) == {State.DEAD}, "asking changes nothing"

    done = agree(operator, asked, reason="the server is up")
    assert said(done) == ["4 events of 2 transactions will be handled again as soon as a consumer of the group runs."]
    assert text_of(done).count("✓ dead → retrying") == 4
    assert text_of(done).count("(with its transaction)") == 2
    assert states() == [State.RETRYING] * 4 + [State.DEAD] * 2
    replayed = sorted(DeadLetter.objects.filter(state=State.RETRYING).values_list("pk", flat=True))
    assert {log.object_id for log in LogEntry.objects.all()} == {str(pk) for pk in replayed}
    assert {log.change_message for log in LogEntry.objects.all()} == {"Replayed. the server is up"}
    event = journal().get()
    assert (event.actor, event.action) == (done.wsgi_request.user.username, "replay-dead-letters")
    assert (event.topic, event.group_id, event.reason) == ("orders", "email-service", "the server is up")
    assert event.after["ids"] == replayed


def test_a_whole_transaction_in_all_its_partitions(operator):
    topic, together = TopicFactory(), uuid.uuid4()
    letters = [DeadLetterFactory(topic=topic, transaction_id=together, partition_id=number) for number in range(3)]
    DeadLetterFactory(topic=topic, transaction_id=together, group_id="another-group")
    assert "1 event of 1 transaction" in text_of(press_on_page(operator, "replay", letters[0]))
    asked = press_on_page(operator, "replay", letters[0], whole="yes")
    assert "3 events of 1 transaction" in text_of(asked)
    agree(operator, asked)
    assert states() == [State.RETRYING] * 3 + [State.DEAD]


def test_discard_takes_what_waits_for_a_retry_too(operator):
    letters = [
        DeadLetterFactory(),
        DeadLetterFactory(retrying=True),
        DeadLetterFactory(state=State.RESOLVED),
    ]
    asked = press(operator, "discard", letters)
    assert "2 events of 2 transactions will be discarded" in text_of(asked)
    assert "1 of the selected events is in another state and stays as it is." in text_of(asked)
    done = agree(operator, asked)
    assert said(done) == ["2 events of 2 transactions discarded. The group will not receive them again."]
    assert "– not changed: resolved since" in text_of(done)
    assert states() == [State.DISCARDED, State.DISCARDED, State.RESOLVED]
    assert LogEntry.objects.filter(change_message="Discarded.").count() == 2


def test_nothing_to_do_is_said_at_once(operator):
    assert said(press(operator, "replay", [DeadLetterFactory(state=State.RESOLVED)])) == [
        "Nothing to replay: none of the selected events is waiting for an operator, or for a later attempt."
    ]


@pytest.mark.parametrize("query", ["", "?state=dead"])
@pytest.mark.parametrize(("before", "left"), [(3, 0), (1, 2)])
def test_someone_else_already_did_it(operator, before, left, query):
    letters = DeadLetterFactory.create_batch(3)
    asked = press(operator, "replay", letters, query)
    dead_letter_actions.replay([letter.pk for letter in letters[:before]], using="default")
    done = agree(operator, asked)
    assert f"{left} of 3" in said(done)[0]
    assert "already handled by someone else" in said(done)[0]
    assert text_of(done).count("✓ dead → retrying") == left
    assert text_of(done).count("– not changed: retrying since") == before
    assert LogEntry.objects.count() == left, "the history tells what this press changed"
    assert done.context["back"] == reverse(LETTERS) + query


@pytest.mark.parametrize("query", ["?group=email-service", "?state=dead&group=email-service&failed=hour", "?q=wanted"])
def test_selecting_across_pages_keeps_the_filter_and_takes_nothing_that_came_later(operator, query):
    wanted = DeadLetterFactory.create_batch(4, group_id="email-service", key="wanted")
    others = DeadLetterFactory.create_batch(2, group_id="billing", key="other")
    asked = press(operator, "replay", wanted[:1], query, select_across="1")
    assert "4 events of 4 transactions" in text_of(asked)
    later = DeadLetterFactory(group_id="email-service", key="wanted")
    assert "4 events of 4 transactions" in said(agree(operator, asked))[0]
    for letter in (*others, later):
        letter.refresh_from_db()
        assert letter.state == State.DEAD
    assert DeadLetter.objects.filter(state=State.RETRYING).count() == 4


@pytest.mark.parametrize("query", ["?attempts__gte=2", "?state__exact=dead", "?group_id=x"])
def test_a_filter_of_the_list_that_the_action_cannot_use_is_refused(operator, query):
    DeadLetterFactory()
    assert operator.get(reverse(LETTERS) + query).status_code == 400
    assert press(operator, "discard", [], query, select_across="1").status_code == 400


def test_many_are_processed_in_batches_with_progress(operator, monkeypatch):
    monkeypatch.setattr(actions, "AT_ONCE", 5)
    monkeypatch.setattr(actions, "SECONDS_OF_WORK", 0)
    monkeypatch.setattr(dead_letter_actions, "BATCH_SIZE", 4)
    topic = TopicFactory()
    letters = DeadLetterFactory.create_batch(10, topic=topic)
    DeadLetterFactory(topic=topic, transaction_id=letters[0].transaction_id, group_id="another-group")
    asked = press(operator, "replay", letters[:1], "?group=email-service", select_across="1")
    assert "This runs in batches while the page is open." in text_of(asked)

    page, progress = agree(operator, asked, reason="up again"), []
    while "data-pubsub-continue" in page.content.decode():
        progress.append(said(page)[0])
        page = operator.post(reverse("admin:pubsub_deadletter_replay"), hidden_fields(page))
    assert progress == [f"{done} of 10 events done." for done in (4, 8, 10)]
    assert said(page) == ["10 events of 10 transactions will be handled again as soon as a consumer of the group runs."]
    assert states() == [State.RETRYING] * 10 + [State.DEAD]
    assert [log.object_repr for log in LogEntry.objects.order_by("pk")] == [
        "4 dead letters", "4 dead letters", "2 dead letters"
    ]  # fmt: skip
    assert {event.reason for event in journal().all()} == {"up again"}
    assert [len(event.after["ids"]) for event in journal().order_by("pk")] == [4, 4, 2]


def test_an_action_that_takes_too_long_to_count_is_not_started(operator, monkeypatch):
    monkeypatch.setattr(actions, "COUNTING_MS", 1)
    monkeypatch.setattr(
        dead_letter_actions, "count", lambda *arguments, **options: connection.cursor().execute("SELECT pg_sleep(1)")
    )
    (message,) = said(press(operator, "replay", [DeadLetterFactory()]))
    assert message.startswith("Too many to count")


def test_an_action_pressed_on_the_detail_page_leads_back_to_it(operator):
    letter = DeadLetterFactory()
    asked = press_on_page(operator, "replay", letter)
    back = reverse("admin:pubsub_deadletter_change", args=[letter.pk])
    assert asked.context["back"] == back
    done = agree(operator, asked, reason="because")
    assert done.url == back
    page = operator.get(back)
    assert "replay-dead-letters: because" in text_of(page)


@pytest.mark.django_db(transaction=True)
def test_a_press_does_not_wait_for_a_worker_that_is_trying_the_same_events(operator, monkeypatch):
    monkeypatch.setattr(dead_letter_actions, "LOCK_TIMEOUT_S", 0.1)
    letter = DeadLetterFactory(retrying=True)
    worker = connection.copy()
    try:
        worker.set_autocommit(False)
        with worker.cursor() as cursor:
            cursor.execute("SELECT FROM dead_letter_queue FOR UPDATE")
        message = said(agree(operator, press(operator, "discard", [letter])))
        worker.rollback()
    finally:
        worker.close()
    assert message[0].startswith("Nothing was changed: a worker is trying")
    assert states() == [State.RETRYING]
    assert not LogEntry.objects.exists()
    assert not journal().exists()
