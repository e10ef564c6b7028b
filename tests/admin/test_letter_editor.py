"""Edit and replay: who may, what is shown before, and what is stored."""

import hashlib
import json

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.urls import reverse

from pubsub.admin.letter_editor import difference
from pubsub.models import DeadLetter
from pubsub.payloads.write import write_json
from tests.admin.pages import said, text_of
from tests.factories import DeadLetterFactory

pytestmark = pytest.mark.django_db

ALL = ("view_deadletter", "view_payload_deadletter", "edit_payload_deadletter", "replay_deadletter")


def address(letter):
    return reverse("admin:pubsub_deadletter_edit", args=[letter.pk])


def seen():
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload::text FROM dead_letter_queue")
        return hashlib.md5(cursor.fetchone()[0].encode()).hexdigest()


@pytest.fixture
def letter():
    return DeadLetterFactory(payload={"total": "49,90", "größe": 1})


@pytest.mark.parametrize("missing", ALL[:3])
def test_each_permission_is_needed(sign_in, letter, missing):
    client = sign_in(*(it for it in ALL if it != missing))
    assert client.get(address(letter)).status_code == 403
    assert client.post(address(letter), {"text": "1", "seen": seen(), "store": "x"}).status_code == 403
    letter.refresh_from_db()
    assert letter.original_payload is None


def test_a_user_who_may_not_replay_may_only_save(sign_in, letter):
    client = sign_in(*ALL[:3])
    page = client.post(address(letter), {"text": '{"total": 49.9}', "seen": seen(), "show": "x"})
    assert 'name="replay"' not in page.content.decode()
    assert client.post(address(letter), {"text": "1", "seen": seen(), "replay": "x"}).status_code == 403
    client.post(address(letter), {"text": '{"total": 49.9}', "seen": seen(), "store": "x", "reason": "comma"})
    letter.refresh_from_db()
    assert (letter.payload, letter.original_payload) == ({"total": 49.9}, {"total": "49,90", "größe": 1})
    assert letter.state == DeadLetter.State.DEAD
    assert LogEntry.objects.get().change_message == "Payload changed. comma"


def test_the_difference_is_shown_before_anything_is_stored(sign_in, letter):
    client = sign_in(*ALL)
    page = client.get(address(letter))
    assert "Store" not in text_of(page)
    page = client.post(address(letter), {"text": '{"total": 49.90, "größe": 1}', "seen": seen(), "show": "x"})
    signs = [(sign, line.strip().rstrip(",")) for sign, line in page.context["difference"]]
    assert ("-", '"total": "49,90"') in signs
    assert ("+", '"total": 49.90') in signs
    assert not {sign for sign, line in signs if "größe" in line} - {" "}, "the order of keys is no difference"
    letter.refresh_from_db()
    assert letter.original_payload is None
    same = client.post(address(letter), {"text": '{"größe": 1, "total": "49,90"}', "seen": seen(), "show": "x"})
    assert "No changes" in text_of(same)


def test_errors_are_named_and_the_text_is_kept(sign_in, letter):
    page = sign_in(*ALL).post(address(letter), {"text": '{"total": 1,}', "seen": seen(), "replay": "x", "reason": "y"})
    assert "Expected JSON, but in line 1, column 13" in text_of(page)
    assert (page.context["text"], page.context["reason"]) == ('{"total": 1,}', "y")


def test_someone_else_already_did_it(sign_in, letter):
    client = sign_in(*ALL)
    before = seen()
    client.post(address(letter), {"text": "1", "seen": before, "store": "x"})
    page = client.post(address(letter), {"text": "2", "seen": before, "replay": "x"})
    assert "edited by someone else since" in text_of(page)
    letter.refresh_from_db()
    assert letter.payload == 1


def test_a_payload_that_cannot_be_edited_is_explained(sign_in, letter, settings):
    client = sign_in(*ALL)
    settings.PUBSUB = {"redact_paths": ["total"]}
    assert "redacted" in said(client.get(address(letter)))[-1]
    DeadLetter.objects.update(payload={"total": True, "paid": True})  # no text that could be looked for
    assert "redacted" in said(client.get(address(letter)))[-1]
    settings.PUBSUB = {}
    DeadLetter.objects.update(payload="x" * 600_000)
    assert "too large" in said(client.get(address(letter)))[-1]
    DeadLetter.objects.update(state="resolved")
    assert "another state" in said(client.get(address(letter)))[-1]


def test_a_large_payload_is_compared_where_it_differs_or_not_at_all(sign_in, letter):
    """Comparing all pairs of lines would take many seconds, and the publisher chooses how many there are."""
    numbers = list(range(60_000))
    changed = [*numbers[:30_000], -1, *numbers[30_001:]]
    before, after = (write_json(it) for it in (numbers, changed))
    told = difference(before, after)
    assert [line for sign, line in told if sign in "+-"] == ["  30000,", "  -1,"]
    assert len(told) == 8
    assert difference(before, before) == []
    assert [sign for sign, _ in difference("[\n  1\n]", "[\n  1,\n  1\n]")].count("+") >= 1
    DeadLetter.objects.update(payload=numbers[:5000])
    client = sign_in(*ALL)
    text = json.dumps(numbers[:5000][::-1])
    page = client.post(address(letter), {"text": text, "seen": seen(), "show": "x"})
    assert "changed too much" in text_of(page)
    assert 'name="store"' in page.content.decode()


def test_only_lines_round_a_change_are_shown():
    before = "\n".join(map(str, range(100)))
    after = before.replace("\n50\n", "\nfifty\n").replace("\n80\n", "\neighty\n")
    told = difference(before, after)
    assert ("…", "") in told
    assert len(told) == 17
