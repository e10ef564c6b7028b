"""Dead letters in the admin: found, looked into, harmless whatever is in them."""

import re
import uuid

import pytest
from django.urls import reverse

from pubsub.admin import showing
from pubsub.models import DeadLetter
from tests.admin.pages import LETTERS, press, text_of
from tests.factories import DeadLetterFactory, SubscriptionFactory, TopicFactory

pytestmark = pytest.mark.django_db


def test_somebody_who_may_only_replay_sees_nothing(sign_in):
    assert sign_in("replay_deadletter").get(reverse(LETTERS)).status_code == 403


@pytest.mark.parametrize("page", ["add", "change", "delete"])
def test_dead_letters_cannot_be_written_by_hand(sign_in, page):
    letter = DeadLetterFactory()
    client = sign_in("view_deadletter", "add_deadletter", "change_deadletter", "delete_deadletter")
    arguments = [] if page == "add" else [letter.pk]
    response = client.post(reverse(f"admin:pubsub_deadletter_{page}", args=arguments), {"state": "resolved"})
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
    payload = r"&quot;: [\s]*&quot;&lt;script&gt;"
    assert re.search(payload, pages[2].content.decode())


def test_the_detail_page_tells_everything(operator):
    letter, sibling = DeadLetterFactory.create_batch(
        2, topic=TopicFactory(), transaction_id=uuid.uuid4(), retrying=True, payload={"größe": 3}
    )
    page = operator.get(reverse("admin:pubsub_deadletter_change", args=[letter.pk]))
    text = text_of(page)
    for shown in ('{ "größe": 3 }', letter.exception_class, "line 12, in send_confirmation", str(letter.event_id)):
        assert shown in text
    assert reverse("admin:pubsub_deadletter_change", args=[sibling.pk]) in page.content.decode()


@pytest.mark.parametrize("column", ["event_id", "transaction_id", "key"])
def test_search_finds_exactly(operator, column):
    wanted, _ = DeadLetterFactory.create_batch(2)
    page = operator.get(reverse(LETTERS), {"q": f" {getattr(wanted, column)} "})
    assert list(page.context["cl"].result_list) == [wanted]
    assert not operator.get(reverse(LETTERS), {"q": str(getattr(wanted, column))[:-1]}).context["cl"].result_list


def test_the_list_counts_and_pages_no_further_than_a_limit(operator, monkeypatch):
    monkeypatch.setattr(showing, "COUNT_LIMIT", 150)
    DeadLetterFactory.create_batch(160, topic=TopicFactory())
    page = operator.get(reverse(LETTERS))
    assert "more than 150 dead letters" in text_of(page)
    assert "Select all that match" in text_of(page)
    assert len(operator.get(reverse(LETTERS), {"p": 2}).context["cl"].result_list) == 50
    asked = press(operator, "replay", page.context["cl"].result_list[:1], select_across="1")
    assert "160 events of 160 transactions" in text_of(asked), "what is asked before acting is exact"
