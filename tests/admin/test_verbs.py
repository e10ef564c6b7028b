"""Replay and discard: who may, what is asked, what is done, and what is said about it."""

import uuid

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.urls import reverse

from pubsub import dead_letters
from pubsub.admin import verbs
from pubsub.models import DeadLetter
from tests.admin.pages import LETTERS, agree, press, said, text_of
from tests.factories import DeadLetterFactory, TopicFactory

pytestmark = pytest.mark.django_db

State = DeadLetter.State


def states():
    return list(DeadLetter.objects.order_by("pk").values_list("state", flat=True))


@pytest.mark.parametrize("verbs", [(), ("replay",), ("discard",), ("replay", "discard")])
def test_each_verb_has_a_permission_of_its_own(sign_in, verbs):
    letter = DeadLetterFactory()
    client = sign_in("view_deadletter", *(f"{verb}_deadletter" for verb in verbs))
    listed = client.get(reverse(LETTERS))
    detail = client.get(reverse("admin:pubsub_deadletter_change", args=[letter.pk]))
    for verb, page_asks in (("replay", "will be replayed"), ("discard", "will be discarded")):
        offered = f'value="{verb}_selected"'
        assert (offered in listed.content.decode()) == (verb in verbs)
        assert (offered in detail.content.decode()) == (verb in verbs)
        asked = press(client, verb, [letter], confirmed="")
        assert (page_asks in text_of(asked)) == (verb in verbs)
        if verb not in verbs:
            press(client, verb, [letter], confirmed="yes", announced="1")
    assert states() == [State.DEAD]


def test_replay_asks_first_and_takes_the_rest_of_the_transaction_along(operator):
    topic, together = TopicFactory(), uuid.uuid4()
    first, *_ = DeadLetterFactory.create_batch(3, topic=topic, transaction_id=together)
    other = DeadLetterFactory(topic=topic)
    DeadLetterFactory(topic=topic, group_id="another-group", transaction_id=together)
    DeadLetterFactory(topic=topic)

    asked = press(operator, "replay", [first, other])
    assert (
        "4 events of 2 transactions will be replayed. For group email-service: 4 events of 2 transactions"
        in text_of(asked)
    )
    assert set(states()) == {State.DEAD}, "asking changes nothing"

    done = agree(operator, asked)
    assert done.status_code == 302
    assert said(done) == ["4 events of 2 transactions will be handled again, as soon as a consumer of the group runs."]
    assert states() == [State.RETRYING] * 4 + [State.DEAD] * 2
    assert {log.object_id for log in LogEntry.objects.all()} == {
        str(pk) for pk in DeadLetter.objects.filter(state=State.RETRYING).values_list("pk", flat=True)
    }
    assert {log.change_message for log in LogEntry.objects.all()} == {"Replayed."}


def test_discard_takes_what_waits_for_a_retry_too(operator):
    letters = [
        DeadLetterFactory(),
        DeadLetterFactory(retrying=True),
        DeadLetterFactory(state=State.RESOLVED),
    ]
    asked = press(operator, "discard", letters)
    assert "2 events of 2 transactions will be discarded" in text_of(asked)
    assert "1 of the chosen events is in another state and stays as it is." in text_of(asked)
    assert said(agree(operator, asked)) == [
        "2 events of 2 transactions discarded: the group won’t be given them again."
    ]
    assert states() == [State.DISCARDED, State.DISCARDED, State.RESOLVED]
    assert LogEntry.objects.filter(change_message="Discarded.").count() == 2


def test_nothing_to_do_is_said_at_once(operator):
    assert said(press(operator, "replay", [DeadLetterFactory(state=State.RESOLVED)])) == [
        "There is nothing to replay: none of the chosen events waits for somebody to act."
    ]


@pytest.mark.parametrize("query", ["", "?state__exact=dead"])
@pytest.mark.parametrize(("before", "left"), [(3, 0), (1, 2)])
def test_somebody_was_faster(operator, before, left, query):
    letters = DeadLetterFactory.create_batch(3)
    asked = press(operator, "replay", letters, query)
    dead_letters.replay([letter.pk for letter in letters[:before]], "default")
    (message,) = said(agree(operator, asked, query))
    assert f"{left} of 3" in message
    assert "somebody was faster" in message
    assert LogEntry.objects.count() == left, "the history tells what this press changed"


def test_selecting_across_pages_keeps_the_filter_and_takes_nothing_that_came_later(operator):
    wanted = DeadLetterFactory.create_batch(4, group_id="email-service")
    others = DeadLetterFactory.create_batch(2, group_id="billing")
    query = "?group=email-service"
    asked = press(operator, "replay", wanted[:1], query, select_across="1")
    assert "4 events of 4 transactions" in text_of(asked)
    later = DeadLetterFactory(group_id="email-service")
    assert "4 events of 4 transactions" in said(agree(operator, asked, query))[0]
    for letter in (*others, later):
        letter.refresh_from_db()
        assert letter.state == State.DEAD
    assert DeadLetter.objects.filter(state=State.RETRYING).count() == 4


def test_a_verb_pressed_on_the_detail_page_leads_back_to_it(operator):
    letter = DeadLetterFactory()
    asked = press(operator, "replay", [letter], from_letter=letter.pk)
    assert agree(operator, asked).url == reverse("admin:pubsub_deadletter_change", args=[letter.pk])


@pytest.mark.django_db(transaction=True)
def test_a_press_does_not_wait_for_a_worker_that_is_trying_the_same_events(operator, monkeypatch):
    monkeypatch.setattr(verbs, "LOCK_TIMEOUT_S", 0.1)
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
