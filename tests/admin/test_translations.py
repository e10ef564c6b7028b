"""What the code below the admin has to say reaches operators in their language."""

import ast
import gettext
from pathlib import Path

import pytest
from django.urls import reverse
from django.utils.translation import trans_real

import pubsub
from pubsub.errors import InvalidTopic
from pubsub.topic_options import checked
from tests.admin.pages import text_of
from tests.factories import DeadLetterFactory, LogPartitionCounterFactory, SubscriptionFactory, TopicFactory

PACKAGE = Path(pubsub.__file__).parent
MODULES = [
    *sorted((PACKAGE / "control").glob("*.py")),
    *(
        PACKAGE / f"{name}.py"
        for name in (
            "dead_letters/edit",
            "dead_letters/actions",
            "publishing/encode",
            "publishing/publish",
            "topic_options",
            "topics/names",
            "topics/registry",
        )
    ),
]
NOT_SHOWN = {"AssertionError", "InvalidSetting", "NotInTransaction", "WrongDatabase"}
"""Raised to programmers: about their settings, and about where they call publish()."""


class Marking(gettext.NullTranslations):
    """A language in which everything is said in English, between «these»."""

    def gettext(self, message):
        return f"«{message}»"

    def ngettext(self, singular, plural, n):
        return f"«{singular if n == 1 else plural}»"

    def to_language(self):
        return "xx"


@pytest.fixture
def marking(settings, monkeypatch):
    settings.LANGUAGE_CODE = "xx"
    monkeypatch.setitem(trans_real._translations, "xx", Marking())


@pytest.fixture
def topic():
    topic = TopicFactory(name="parcels", zero_subscribers="refuse")
    LogPartitionCounterFactory(topic=topic, entries=1234)
    return topic


@pytest.fixture
def subscription(topic):
    return SubscriptionFactory(topic=topic, group_id="mail")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("action", "form", "told"),
    [
        ("remove", {}, '«Group "mail" on topic "parcels" is ACTIVE: '),
        ("seek", {"to": "offset", "offset": "9999"}, '«Offset 9999 is beyond the tip of topic "parcels", which is 0. '),
        (
            "seek",
            {"to": "latest", "partitions": "7"},
            '«Group "mail" has no partition 7 of topic "parcels"; it has «none».»',
        ),
    ],
)
def test_a_refusal_about_a_group(marking, admin_client, subscription, action, form, told):
    address = reverse("admin:pubsub_subscription_do", args=[subscription.pk, action])
    assert told in text_of(admin_client.post(address, {"confirmed": "yes", **form}))


@pytest.mark.django_db
def test_what_would_be_lost_with_a_topic(marking, admin_client, subscription):
    page = text_of(admin_client.get(reverse("admin:pubsub_topic_delete", args=[subscription.topic_id])))
    assert "parcels: «1,234 events are in its log»" in page
    assert "parcels: «groups are subscribed to it: mail»" in page


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"payload": r'{"a\u0000": 1}'}, r"««a key of payload» contains the character \u0000, "),
        ({"metadata": "[1]"}, "«metadata must be a mapping, not [1].»"),
        ({}, '«Topic "parcels" refuses events while no group is subscribed to it, '),
    ],
)
def test_a_refusal_to_publish(marking, admin_client, topic, form, told):
    form = {"topic": topic.name, "payload": "1", "metadata": "{}", "confirmed": "yes", **form}
    assert told in text_of(admin_client.post(reverse("admin:pubsub_outboxmessage_publish"), form))


@pytest.mark.django_db
def test_a_fault_in_a_payload(marking, admin_client, topic):
    address = reverse("admin:pubsub_deadletter_edit", args=[DeadLetterFactory(topic=topic).pk])
    page = admin_client.post(address, {"text": '{"a": 1, "a": 2}', "seen": "", "show": "x"})
    assert '«The key "a" stands twice in one object; remove one.»' in text_of(page)


def test_what_is_expected_of_a_topics_option(marking):
    with pytest.raises(InvalidTopic, match=r"«max_bytes .* must be «a whole number of at least 1, or None», not 0.»"):
        checked("parcels", {"max_bytes": 0})


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_every_error_message_is_marked_for_translation(module):
    unmarked = [
        f"line {text.lineno}: {text.value}"
        for raised in ast.walk(ast.parse(module.read_text()))
        if isinstance(raised, ast.Raise) and isinstance(raised.exc, ast.Call) and raised.exc.args
        if ast.unparse(raised.exc.func) not in NOT_SHOWN
        for text in getattr(raised.exc.args[0], "values", [raised.exc.args[0]])
        if isinstance(text, ast.Constant) and text.value.strip()
    ]
    assert not unmarked
