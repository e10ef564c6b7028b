"""Dead letters in the admin: found, looked into, harmless whatever is in them."""

import datetime as dt
import json
import re
import uuid

import pytest
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from pubsub.models import DeadLetter
from pubsub.payloads.redact import REDACTED
from tests.admin.pages import LETTERS, press, text_of
from tests.factories import AttemptFactory, DeadLetterFactory, SubscriptionFactory, TopicFactory

pytestmark = pytest.mark.django_db


def test_a_user_who_may_only_replay_sees_nothing(sign_in):
    assert sign_in("replay_deadletter").get(reverse(LETTERS)).status_code == 403


@pytest.mark.parametrize("page", ["add", "change", "delete"])
def test_dead_letters_cannot_be_written_by_hand(admin_client, page):
    letter = DeadLetterFactory()
    arguments = [] if page == "add" else [letter.pk]
    response = admin_client.post(reverse(f"admin:pubsub_deadletter_{page}", args=arguments), {"state": "resolved"})
    assert response.status_code == 403
    assert DeadLetter.objects.get().state == "dead"


def test_what_publishers_and_handlers_say_is_escaped(operator):
    attack = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    letter, _ = DeadLetterFactory.create_batch(
        2,
        topic=TopicFactory(name="orders"),
        transaction_id=uuid.uuid4(),
        payload={attack: [attack]},
        metadata={"a": attack},
        **dict.fromkeys(
            ("group_id", "type", "key", "host_id", "user_id", "handler", "exception_class", "exception_message"),
            attack,
        ),
        traceback=attack,
    )
    SubscriptionFactory(group_id=attack)
    pages = [
        operator.get(reverse(LETTERS), {"q": attack}),
        operator.get(reverse(LETTERS), {"group": attack}),
        operator.get(reverse("admin:pubsub_deadletter_change", args=[letter.pk])),
        press(operator, "replay", [letter]),
    ]
    for page in pages:
        assert page.status_code == 200
        assert attack[8:20] in text_of(page), "the page shows it"
        assert "<script>alert" not in page.content.decode()
        assert "<img src=x" not in page.content.decode()
    assert '<span class="pubsub-json-text">&quot;&lt;script&gt;' in pages[2].content.decode()


def test_the_detail_page_tells_everything(operator):
    letter, sibling = DeadLetterFactory.create_batch(
        2, topic=TopicFactory(), transaction_id=uuid.uuid4(), retrying=True, payload={"größe": 3}
    )
    page = operator.get(reverse("admin:pubsub_deadletter_change", args=[letter.pk]))
    text = text_of(page)
    for shown in ('"größe" : 3', letter.exception_class, "line 12, in send_confirmation", str(letter.event_id)):
        assert shown in text
    assert reverse("admin:pubsub_deadletter_change", args=[sibling.pk]) in page.content.decode()


@pytest.mark.parametrize("column", ["event_id", "transaction_id", "key", "host_id"])
def test_search_finds_exactly(operator, column):
    wanted, _ = (DeadLetterFactory(host_id=host) for host in ("shop-1", "shop-2"))
    page = operator.get(reverse(LETTERS), {"q": f" {getattr(wanted, column)} "})
    assert list(page.context["cl"].result_list) == [wanted]
    assert not operator.get(reverse(LETTERS), {"q": str(getattr(wanted, column))[:-1]}).context["cl"].result_list


def shown(client, **parameters):
    page = client.get(reverse(LETTERS), parameters)
    assert page.status_code == 200
    return list(page.context["cl"].result_list)


@pytest.mark.parametrize("name", ["state", "group", "topic", "type", "exception", "host", "key", "failed"])
def test_each_filter_shows_what_matches_and_offers_what_there_is(operator, name):
    wanted, other = (
        DeadLetterFactory(
            topic=TopicFactory(name=f"{which}.events"), group_id=f"{which}-group", type=f"{which}.type",
            exception_class=f"errors.{which.title()}", host_id=f"{which}-host", key=f"{which}-key",
        )
        for which in ("wanted", "other")
    )  # fmt: skip
    for letter in (wanted, other):
        SubscriptionFactory(topic=letter.topic, group_id=letter.group_id)
    DeadLetter.objects.filter(pk=other.pk).update(state="resolved", created_at=timezone.now() - dt.timedelta(days=2))
    value = {
        "state": "dead", "group": "wanted-group", "topic": "wanted.events", "type": "wanted.type",
        "exception": "errors.Wanted", "host": "wanted-host", "key": "wanted-key", "failed": "hour",
    }[name]  # fmt: skip
    assert shown(operator, **{name: value}) == [wanted]
    assert len(shown(operator)) == 2
    assert shown(operator, **{name: "no\x00thing"}) == ([] if name != "failed" else [other, wanted])
    if name != "key":
        assert f"?{name}={value}" in operator.get(reverse(LETTERS)).content.decode()


def detail(client, letter):
    return client.get(reverse("admin:pubsub_deadletter_change", args=[letter.pk]))


def test_attempts_and_what_is_parked(operator):
    topic = TopicFactory()
    letter = DeadLetterFactory(topic=topic, key="one", payload={})
    AttemptFactory(letter=letter, attempt=1, exception_message="first time")
    AttemptFactory(letter=letter, attempt=2, exception_message="second time")
    behind = DeadLetterFactory(topic=topic, key="one", state="parked", attempts=0)
    DeadLetterFactory(topic=topic, key="another", state="parked", attempts=0)
    page = detail(operator, letter)
    text = text_of(page)
    assert text.index("Attempt 1") < text.index("first time") < text.index("Attempt 2") < text.index("second time")
    assert re.findall(r"deadletter/(\d+)/change/\">", page.content.decode()) == [str(behind.pk)]


SECRETS = {"card": "4111-1111-1111", "name": "Zoë"}


def quoting(**more):
    return DeadLetterFactory(
        payload=SECRETS, metadata={"trace": "4bf92f35"},
        exception_message="card 4111-1111-1111 of Zoë was refused", traceback=f"ValueError: {SECRETS}", **more,
    )  # fmt: skip


def test_without_the_permission_nothing_of_the_payload_is_shown(sign_in):
    letter = quoting(original_payload=SECRETS)
    AttemptFactory(letter=letter)
    client = sign_in("view_deadletter", "edit_payload_deadletter", "replay_deadletter", "discard_deadletter")
    html = detail(client, letter).content.decode()
    for secret in ("4111", "Zoë", "4bf92f35"):
        assert secret not in html
    assert "Hidden: you have no permission" in html
    assert REDACTED in html
    assert "was refused" not in html
    for name in ("payload", "metadata", "original_payload"):
        assert client.get(reverse("admin:pubsub_deadletter_json", args=[letter.pk, name])).status_code == 403
    edit = reverse("admin:pubsub_deadletter_edit", args=[letter.pk])
    assert edit not in html
    assert client.get(edit).status_code == 403


def test_redacted_values_are_redacted_everywhere(operator, settings):
    settings.PUBSUB = {"redact_paths": ["card"]}
    letter = quoting()
    AttemptFactory(letter=letter)
    raw = operator.get(reverse("admin:pubsub_deadletter_json", args=[letter.pk, "payload"])).content.decode()
    for text in (detail(operator, letter).content.decode(), raw):
        assert "4111" not in text
        assert "Zoë" in text
        assert REDACTED in text


def test_what_failed_together_is_redacted_in_the_texts_of_each(operator, settings):
    settings.PUBSUB = {"redact_paths": ["card"]}
    secret = {"payload": {"card": "4111-1111"}}
    texts = {"exception_message": "4111-1111 was refused", "traceback": "ValueError: 4111-1111 was refused"}
    together = {"topic": TopicFactory(), "group_id": "mail", "partition_id": 0, **texts}
    first, second = (
        DeadLetterFactory(transaction_id=transaction_id, **together, **given)
        for transaction_id in [uuid.uuid4()]
        for given in (secret, {"payload": {"card": None}})
    )
    AttemptFactory(letter=first, exception_message="4111-1111 was refused")
    batch = DeadLetterFactory(**together, payload={})  # what is tried only once fails with other transactions
    for letter in (second, batch):
        assert "4111" not in detail(operator, letter).content.decode()
        assert f"{REDACTED} was refused" in text_of(detail(operator, letter))


def test_texts_that_may_quote_too_much_are_hidden(operator, settings, monkeypatch):
    settings.PUBSUB = {"redact_paths": ["card"]}
    monkeypatch.setattr("pubsub.dead_letters.quoted.MOST_TOGETHER", 2)
    letter, *_ = DeadLetterFactory.create_batch(
        3,
        topic=TopicFactory(),
        group_id="mail",
        partition_id=0,
        transaction_id=uuid.uuid4(),
        traceback="a harmless text",
    )
    assert "a harmless text" not in text_of(detail(operator, letter))


def test_the_whole_payload_is_plain_text(operator):
    letter = DeadLetterFactory(payload={"attack": "<script>alert(1)</script>", "n": [1, 2]})
    response = operator.get(reverse("admin:pubsub_deadletter_json", args=[letter.pk, "payload"]))
    assert json.loads(response.content) == letter.payload
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert response["X-Content-Type-Options"] == "nosniff"
    for name in ("traceback", "nothing"):
        assert operator.get(reverse("admin:pubsub_deadletter_json", args=[letter.pk, name])).status_code == 404


@pytest.mark.parametrize("payload", ["1" * 20_000, "[" * 3000 + "]" * 3000, f'"{"x" * 5_000_000}"'])
def test_values_stored_by_plain_sql_are_shown_too(operator, payload):
    letter = DeadLetterFactory()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE dead_letter_queue SET payload = %s::jsonb", [payload])
    page = detail(operator, letter)
    assert page.status_code == 200
    assert len(page.content) < 500_000
    assert "Show all as plain text" in text_of(page)
    whole = operator.get(reverse("admin:pubsub_deadletter_json", args=[letter.pk, "payload"])).content.decode()
    assert re.sub(r"\s", "", whole) == payload
    assert shown(operator) == [letter]


def test_pages_work_under_the_strictest_policy(operator):
    """No script and no style is in the page itself; what the admin's own pages do is theirs."""
    letter = DeadLetterFactory()
    pages = [operator.get(reverse(LETTERS)), detail(operator, letter), press(operator, "replay", [letter])]
    for page in pages:
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page.content.decode())


def test_no_text_turns_the_page_round_or_hides_in_it(operator):
    topic = TopicFactory(name="orders")
    odd = "invoice\u202egnp.exe\u2066\x1b[31m\u200f"
    texts = dict.fromkeys(("type", "key", "host_id", "user_id", "exception_message", "traceback"), odd)
    together = uuid.uuid4()
    letter, *_ = DeadLetterFactory.create_batch(2, topic=topic, group_id="mail", transaction_id=together, **texts)
    DeadLetterFactory(topic=topic, group_id="mail", c_offset=letter.c_offset + 9, key=odd, state="parked")
    AttemptFactory(letter=letter, exception_message=odd, traceback=odd)
    for page in (detail(operator, letter), operator.get(reverse(LETTERS))):
        assert r"invoice\u202egnp.exe\u2066" in text_of(page)
        assert not set("\u202e\u2066\x1b\u200f") & set(page.content.decode())
