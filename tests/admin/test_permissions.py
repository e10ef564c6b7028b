"""Every address of the admin, tried by those who may not: nothing changes, and no payload is shown."""

import io
import re
import uuid
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.urls import reverse

from pubsub import publish
from pubsub.admin import actions
from pubsub.admin.dead_letters import DeadLetterAdmin
from pubsub.admin.groups import ADMINISTRATOR
from pubsub.admin.hanging import REMEDIES
from pubsub.admin.subscriptions import SubscriptionAdmin
from pubsub.dead_letters import edit
from pubsub.models import DeadLetter, Topic
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
    "worker": "w1",
    "partition": "0",
    "offset": "1",
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
                if pattern.name == "pubsub_subscription_remedy":
                    names = list(REMEDIES)
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


@pytest.fixture
def only_the_north(monkeypatch):
    """A project's own admin, in which a clerk sees the letters of one tenant."""

    def get_queryset(self, request):
        return admin.ModelAdmin.get_queryset(self, request).filter(host_id="north")

    monkeypatch.setattr(DeadLetterAdmin, "get_queryset", get_queryset)


LETTER_PERMISSIONS = (
    "view_deadletter",
    "view_payload_deadletter",
    "replay_deadletter",
    "discard_deadletter",
    "edit_payload_deadletter",
)


@pytest.mark.usefixtures("only_the_north")
@pytest.mark.parametrize("action", ["replay", "discard"])
@pytest.mark.parametrize("how", ["selected", "all", "page", "whole", "signed", "signed, in batches"])
def test_an_admin_that_shows_some_letters_changes_only_those(sign_in, monkeypatch, action, how):
    client = sign_in(*LETTER_PERMISSIONS)
    monkeypatch.setattr(actions, "AT_ONCE", 0 if how == "signed, in batches" else 500)
    topic = Topic.objects.create(name="parcels", total_partitions=1)
    south, north = (DeadLetterFactory(topic=topic, group_id="mail", host_id=host) for host in ("south", "north"))
    address = reverse(f"admin:pubsub_deadletter_{action}")
    if how in ("selected", "all"):
        across = {"select_across": "1"} if how == "all" else {}
        data = {"action": f"{action}_selected", "_selected_action": [south.pk, north.pk], **across}
        asked = client.post(reverse("admin:pubsub_deadletter_changelist"), data, follow=True)
        client.post(address, {"progress": asked.context["progress"]})
    elif how in ("page", "whole"):
        given = {"letter": south.pk, **({"whole": "1"} if how == "whole" else {})}
        assert client.post(address, given).status_code in (302, 404)
        asked = client.post(address, {"letter": north.pk})
        client.post(address, {"progress": asked.context["progress"]})
    else:
        found = {"ids": [south.pk, north.pk]}
        client.post(address, {"progress": actions.Progress(action=action, filter=found, events=2).sign()})
    assert DeadLetter.objects.get(pk=south.pk).state == "dead"
    assert DeadLetter.objects.get(pk=north.pk).state == ("retrying" if action == "replay" else "discarded")


@pytest.mark.usefixtures("only_the_north")
def test_an_admin_that_shows_some_letters_shows_nothing_of_the_others(sign_in):
    client = sign_in(*LETTER_PERMISSIONS)
    topic, together = Topic.objects.create(name="parcels", total_partitions=1), uuid.uuid4()
    south, north = (
        DeadLetterFactory(
            topic=topic,
            group_id="mail",
            partition_id=0,
            host_id=host,
            transaction_id=together,
            payload={"of": f"the {host}"},
        )
        for host in ("south", "north")
    )
    AttemptFactory(letter=south, exception_message="said in the south")
    for name, arguments in (("edit", []), ("json", ["payload"]), ("change", [])):
        page = client.get(reverse(f"admin:pubsub_deadletter_{name}", args=[south.pk, *arguments]))
        assert page.status_code in (302, 403, 404), name
        assert "the south" not in page.content.decode()
        page = client.get(reverse(f"admin:pubsub_deadletter_{name}", args=[north.pk, *arguments]))
        assert page.status_code == 200, name
        assert "the north" in page.content.decode()
        assert "the south" not in page.content.decode()
        assert f"/{south.pk}/" not in page.content.decode()
    stored = {"text": "{}", "seen": "", "replay": "yes"}
    client.post(reverse("admin:pubsub_deadletter_edit", args=[south.pk]), stored)
    assert DeadLetter.objects.get(pk=south.pk).payload == {"of": "the south"}


def test_permissions_may_depend_on_the_letter(sign_in, monkeypatch):
    asked = []

    def may(self, request, obj=None):
        asked.append(obj)
        return obj is None or obj.host_id == "north"

    for name in ("replay", "discard", "edit_payload", "view_payload"):
        monkeypatch.setattr(DeadLetterAdmin, f"has_{name}_permission", may)
    client = sign_in("view_deadletter")
    topic = Topic.objects.create(name="parcels", total_partitions=1)
    for host, code in (("north", 200), ("south", 403)):
        letter = DeadLetterFactory(topic=topic, group_id="mail", host_id=host)
        pages = [
            client.post(reverse("admin:pubsub_deadletter_replay"), {"letter": letter.pk}),
            client.post(reverse("admin:pubsub_deadletter_discard"), {"letter": letter.pk}),
            client.get(reverse("admin:pubsub_deadletter_edit", args=[letter.pk])),
            client.get(reverse("admin:pubsub_deadletter_json", args=[letter.pk, "payload"])),
        ]
        assert [page.status_code for page in pages] == [code] * 4
        assert letter in asked


@pytest.mark.parametrize("name", ["pause", "cancel", "seek"])
def test_an_admin_that_shows_some_subscriptions_changes_only_those(sign_in, letter, monkeypatch, name):
    def get_queryset(self, request):
        return admin.ModelAdmin.get_queryset(self, request).exclude(group_id="mail")

    monkeypatch.setattr(SubscriptionAdmin, "get_queryset", get_queryset)
    client = sign_in("view_subscription", "pause_subscription", "seek_subscription", "delete_subscription")
    subscription = apps.get_model("pubsub.Subscription").objects.get()
    before = everything_stored()
    address = reverse("admin:pubsub_subscription_do", args=[subscription.pk, name])
    assert client.post(address, EVERYTHING).status_code == 302
    assert everything_stored() == before


def test_each_permission_means_something():
    """These are the ones to grant; Django's four for each table would be a hundred."""
    found = set(Permission.objects.filter(content_type__app_label="pubsub").values_list("codename", flat=True))
    assert found == set(ADMINISTRATOR)
    page = (Path(__file__).resolve().parents[2] / "docs" / "admin.md").read_text()
    assert [name for name in ADMINISTRATOR if f"`{name}`" not in page] == []


def test_groups_are_made_once_and_then_left_alone():
    call_command("pubsub_admin_groups", stdout=io.StringIO())
    viewers, operators, administrators = (Group.objects.get(name=f"Pub/sub {who}") for who in GROUP_NAMES)
    assert set(viewers.permissions.values_list("codename", flat=True)) == set(VIEW)
    assert administrators.permissions.count() == len(ADMINISTRATOR)
    operators.permissions.clear()
    viewers.delete()
    out = io.StringIO()
    call_command("pubsub_admin_groups", stdout=out)
    assert out.getvalue().splitlines() == [
        "Pub/sub viewers: created",
        "Pub/sub operators: exists, left as it is",
        "Pub/sub administrators: exists, left as it is",
    ]
    assert operators.permissions.count() == 0


def test_groups_are_not_made_without_their_permissions():
    permission = Permission.objects.get(codename="seek_subscription")
    permission.delete()
    try:
        with pytest.raises(CommandError, match="lacks the permission seek_subscription"):
            call_command("pubsub_admin_groups")
        assert not Group.objects.exists()
    finally:
        permission.save(force_insert=True)


GROUP_NAMES = ("viewers", "operators", "administrators")


@pytest.mark.parametrize("who", GROUP_NAMES)
def test_a_member_of_a_group_may_do_what_the_group_is_for(client, letter, who):
    call_command("pubsub_admin_groups", stdout=io.StringIO())
    user = User.objects.create_user("olivia", is_staff=True)
    user.groups.add(Group.objects.get(name=f"Pub/sub {who}"))
    client.force_login(user)
    for name in ("overview", "topic", "subscription", "outboxmessage", "deadletter", "operatorevent", "finding"):
        assert client.get(reverse(f"admin:pubsub_{name}_changelist")).status_code == 200
    subscription = apps.get_model("pubsub.Subscription").objects.get()
    is_operator, is_administrator = who != "viewers", who == "administrators"
    for address, may in (
        (reverse("admin:pubsub_deadletter_json", args=[letter.pk, "payload"]), is_operator),
        (reverse("admin:pubsub_subscription_do", args=[subscription.pk, "pause"]), is_operator),
        (reverse("admin:pubsub_deadletter_edit", args=[letter.pk]), is_operator),
        (reverse("admin:pubsub_subscription_do", args=[subscription.pk, "cancel"]), is_administrator),
        (reverse("admin:pubsub_outboxmessage_publish"), is_administrator),
        (reverse("admin:pubsub_topic_add"), is_administrator),
    ):
        assert client.get(address).status_code == (200 if may else 403), address
