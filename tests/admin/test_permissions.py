"""Every address of the admin, tried by those who may not: nothing changes, and no payload is shown."""

import re

import pytest
from django.apps import apps
from django.contrib import admin
from django.db import connection, transaction
from django.urls import reverse

from pubsub import publish
from pubsub.dead_letters import edit
from pubsub.models import Topic
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from tests.factories import AttemptFactory, DeadLetterFactory, FindingFactory, MemberFactory

pytestmark = pytest.mark.django_db(transaction=True)

VIEW = (
    "view_deadletter",
    "view_finding",
    "view_operatorevent",
    "view_outboxmessage",
    "view_subscription",
    "view_topic",
)
SECRET = "the-secret-of-the-payload"
HARMLESS = {"Search", "Look", "Go"}
"""What may be pressed by who may only look: it looks."""

EVERYTHING = {
    "action": "replay_selected",
    "confirmed": "yes",
    "post": "yes",
    "to": "latest",
    "force": "on",
    "reason": "because",
    "replay": "yes",
    "store": "yes",
    "topic": "parcels",
    "payload": "{}",
    "text": "{}",
    "name": "another",
    "total_partitions": "1",
    "retention": "0",
    "semantics": "PUB_SUB",
    "zero_subscribers": "keep",
}
"""What would do something, wherever it is sent."""


LOOKING = {"changelist", "history", "event", "tail", "events"}
"""Pages that a user with view permission sees, by GET or POST."""


@pytest.fixture
def letter():
    """A failed event whose payload is quoted wherever it may turn up."""
    topic = Topic.objects.create(name="parcels", total_partitions=2)
    register_subscription(Declaration(topic=topic.name, group="mail", handler=print), using="default")
    with transaction.atomic():
        publish(topic.name, {"secret": SECRET}, metadata={"secret": SECRET}, type="parcel.sent", key="k")
    sequence("default")
    MemberFactory(topic=topic, group_id="mail")
    FindingFactory()
    letter = DeadLetterFactory(
        topic=topic,
        group_id="mail",
        c_offset=1,
        payload={"secret": SECRET},
        metadata={"secret": SECRET},
        exception_message=f"cannot handle {SECRET}",
        traceback=f"ValueError: cannot handle {SECRET}",
    )
    AttemptFactory(letter=letter, exception_message=SECRET, traceback=f"ValueError: {SECRET}")
    edit.edit_payload(letter.pk, f'{{"other": "{SECRET}"}}', using="default", actor="olga", reason="a repair")
    return letter


def addresses(letter):
    """All that the admin of this app answers to, by name."""
    given = {"pk": letter.pk, "topic_id": letter.topic_id, "offset": 1}
    subscription = apps.get_model("pubsub.Subscription").objects.get().pk
    found = {}
    for model, model_admin in admin.site._registry.items():
        if model._meta.app_label != "pubsub":
            continue
        for pattern in model_admin.get_urls():
            converters = pattern.pattern.converters
            if pattern.name is None:
                continue
            newest = model._default_manager.order_by("-pk").first() if "object_id" in converters else None
            here = given | {"object_id": newest and newest.pk}
            names = [""]
            if "name" in converters:
                names = ["pause", "resume", "seek", "cancel", "remove"]
                if pattern.name == "pubsub_deadletter_json":
                    names = ["payload", "metadata", "original_payload"]
                else:
                    here["pk"] = subscription
            for name in names:
                arguments = {key: name if key == "name" else here[key] for key in converters}
                found[f"{pattern.name} {name}".strip()] = reverse(f"admin:{pattern.name}", kwargs=arguments)
    found["pubsub_outboxmessage_tail_events"] += f"?topic={letter.topic_id}"
    assert len(found) > 35
    return found


def everything_stored():
    """Each row of each table of this app."""
    rows = {}
    for model in apps.get_app_config("pubsub").get_models():
        if model._meta.managed:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT it::text FROM {model._meta.db_table} AS it")
                rows[model._meta.db_table] = sorted(row for (row,) in cursor.fetchall())
    assert rows["dead_letter_queue"]
    return rows


@pytest.mark.parametrize("permissions", [(), VIEW], ids=["none", "view"])
def test_a_user_without_permissions_changes_nothing_anywhere(sign_in, letter, permissions):
    client = sign_in(*permissions)
    before = everything_stored()
    form = EVERYTHING | {"letter": letter.pk, "_selected_action": letter.pk, "seen": "x"}
    answers = {}
    for action in ("replay_selected", "discard_selected", "delete_selected"):
        for name, address in addresses(letter).items():
            answers[name, action] = client.post(address, form | {"action": action}).status_code
    assert everything_stored() == before
    answered = {name.rpartition("_")[2] for (name, _action), code in answers.items() if code != 403}
    assert answered == (LOOKING if permissions else set())


def test_a_read_only_page_has_no_buttons_and_no_payload(sign_in, letter):
    client, shown = sign_in(*VIEW), 0
    for name, address in addresses(letter).items():
        page = client.get(address)
        if page.status_code != 200:
            assert page.status_code in (403, 405), name
            continue
        shown += 1
        html = page.content.decode()
        assert SECRET not in html, name
        content = html.partition('id="content"')[2]
        pressed = re.findall(r'<(?:input|button)[^>]*type="submit"[^>]*>', content)
        values = {re.search(r'value="([^"]*)"', tag)[1] if "value=" in tag else tag for tag in pressed}
        assert values <= HARMLESS, name
        for link in re.findall(r'href="([^"]*)"', content):
            assert not re.search(r"/(add|edit|delete|do|publish|replay|discard)/", link), (name, link)
    assert shown >= 14


@pytest.mark.parametrize("may_see", [False, True])
def test_payloads_are_shown_nowhere_without_the_permission(sign_in, letter, may_see):
    """Whatever else the user may do."""
    others = {
        codename
        for model in apps.get_app_config("pubsub").get_models()
        for codename, _name in model._meta.permissions
        if not codename.startswith("view_payload")
    }
    payloads = ("view_payload_deadletter", "view_payload_outboxmessage")
    client = sign_in(*VIEW, *others, *(payloads if may_see else ()))
    told = {
        name
        for name, address in addresses(letter).items()
        for page in (client.get(address), client.post(address, {"letter": letter.pk}))
        if SECRET in page.content.decode()
    }
    assert bool(told) == may_see
    if may_see:
        assert told >= {
            "pubsub_deadletter_change",
            "pubsub_deadletter_edit",
            "pubsub_deadletter_json payload",
            "pubsub_deadletter_json original_payload",
            "pubsub_outboxmessage_changelist",
            "pubsub_outboxmessage_event",
            "pubsub_outboxmessage_payload",
            "pubsub_outboxmessage_tail_events",
        }
