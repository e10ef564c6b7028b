"""The log in the admin: searched in bounded segments of offsets, whatever its length; an event with its groups."""

import datetime as dt
import re
import uuid

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from pubsub import control, publish
from pubsub.models import ConsumerOffset, LogView, OperatorEvent, OutboxMessage, Subscription
from pubsub.monitoring.search import LOOKED_AT, Conditions, offset_at, search
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from tests.admin.pages import hidden_fields, said, text_of
from tests.control.helpers import GROUP, TOPIC, WHO, make_topic, reread, subscribe
from tests.control.helpers import fill as fill_log
from tests.factories import DeadLetterFactory, SubscriptionFactory, TopicFactory
from tests.handlers import declare

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "admin:pubsub_outboxmessage_changelist"
EVENT = "admin:pubsub_outboxmessage_event"
PUBLISH = "admin:pubsub_outboxmessage_publish"
EVENTS = "admin:pubsub_outboxmessage_tail_events"


@pytest.fixture
def topic():
    return TopicFactory(name="parcels", total_partitions=2)


def fill(topic, count=120, **options):
    for number in range(count):
        with transaction.atomic():
            publish(topic.name, {"number": number}, type=f"type-{number % 3}", key=f"key-{number % 7}", **options)
    sequence("default")


def offsets(response):
    return [found.offset for found, _, _ in response.context["rows"]]


def test_pages_lead_through_the_whole_log_and_back(admin_client, topic):
    fill(topic)
    page = admin_client.get(reverse(LIST))
    seen, newest = offsets(page), offsets(page)
    assert newest == list(range(120, 70, -1))
    while page.context["links"]["older"]:
        page = admin_client.get(reverse(LIST) + page.context["links"]["older"])
        seen += offsets(page)
    assert seen == list(range(120, 0, -1))
    back = offsets(page)
    while page.context["links"]["newer"]:
        page = admin_client.get(reverse(LIST) + page.context["links"]["newer"])
        back = offsets(page) + back
    assert back == list(range(120, 0, -1))


def test_a_jump_shows_what_follows_from_there(admin_client, topic):
    fill(topic)
    assert min(offsets(admin_client.get(reverse(LIST), {"topic": topic.pk, "offset": 30}))) == 30
    page = admin_client.get(reverse(LIST), {"topic": topic.pk, "offset": 121})
    assert "the log ends at offset 120" in text_of(page)
    moment = LogView.objects.get(topic_id=topic.pk, c_offset=42).created_at
    # A browser's field knows no fraction of a second.
    asked = {"topic": topic.pk, "at": f"{moment + dt.timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}"}
    assert admin_client.get(reverse(LIST), asked).status_code == 200
    assert offset_at(topic.pk, moment, "default") == 42


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"type": "type-1"}, lambda found: found.type == "type-1"),
        ({"key": "key-3"}, lambda found: found.key == "key-3"),
        ({"partition": "1"}, lambda found: found.partition == 1),
        ({"type": "type-1", "key": "key-3"}, lambda found: (found.type, found.key) == ("type-1", "key-3")),
    ],
)
def test_filters_find_all_that_match_and_nothing_else(admin_client, topic, monkeypatch, query, wanted):
    monkeypatch.setattr("pubsub.monitoring.search.LOOKED_AT", 55)
    fill(topic)
    everything = search(topic.pk, limit=200, using="default").found
    page = admin_client.get(reverse(LIST), {"topic": topic.pk, **query})
    assert "Searched 55 events" in text_of(page) or len(page.context["rows"]) == 50
    seen = offsets(page)
    while page.context["links"]["older"]:
        page = admin_client.get(reverse(LIST) + page.context["links"]["older"])
        seen += offsets(page)
    assert seen == [found.offset for found in everything if wanted(found)]


def test_an_event_and_its_transaction_are_found_by_id(admin_client, topic):
    fill(topic, 20)
    with transaction.atomic():
        event_id, _ = publish(topic.name, 1), publish(topic.name, 2)
    sequence("default")
    assert offsets(admin_client.get(reverse(LIST), {"topic": topic.pk, "identifier": event_id})) == [21]
    together = LogView.objects.get(event_id=event_id).transaction_id
    assert offsets(admin_client.get(reverse(LIST), {"topic": topic.pk, "identifier": together})) == [22, 21]
    assert not offsets(admin_client.get(reverse(LIST), {"topic": topic.pk, "identifier": uuid.uuid4()}))


def test_bad_input_is_explained(admin_client, topic):
    page = admin_client.get(reverse(LIST), {"topic": topic.pk, "identifier": "no uuid", "offset": "0"})
    assert "Enter a valid UUID" in text_of(page)
    assert "greater than or equal to 1" in text_of(page)


def test_payloads_are_for_those_who_may_see_them(sign_in, topic):
    with transaction.atomic():
        publish(topic.name, {"secret": "strictly confidential"}, metadata={"trace": "metadata too"})
    sequence("default")
    addresses = [
        reverse(LIST),
        reverse(EVENT, args=[topic.pk, 1]),
        reverse(EVENTS) + f"?topic={topic.pk}&after=0",
    ]
    client = sign_in("view_outboxmessage")
    for address in addresses:
        response = client.get(address)
        assert response.status_code == 200
        assert b"strictly confidential" not in response.content
        assert b"metadata too" not in response.content
    assert client.get(addresses[1] + "payload/").status_code == 403
    client = sign_in("view_outboxmessage", "view_payload_outboxmessage")
    for address in addresses:
        assert b"strictly confidential" in client.get(address).content
    assert b"strictly confidential" in client.get(addresses[1] + "payload/").content
    with override_settings(PUBSUB={"redact_paths": ["**.secret"]}):
        for address in [*addresses, addresses[1] + "payload/"]:
            response = client.get(address)
            assert b"strictly confidential" not in response.content
            assert b"[redacted]" in response.content


def test_what_publishers_say_is_escaped(admin_client, topic):
    attack = "<script>alert(1)</script>"
    with transaction.atomic():
        publish(topic.name, {attack: attack}, type=attack, key=attack, host_id=attack, metadata={attack: attack})
    sequence("default")
    for address in (reverse(LIST), reverse(EVENT, args=[topic.pk, 1])):
        response = admin_client.get(address)
        assert "<script>alert" not in response.content.decode()
        assert attack in text_of(response) or "&lt;script&gt;" in response.content.decode()
    response = admin_client.get(reverse(EVENT, args=[topic.pk, 1]) + "payload/")
    assert response["Content-Type"].startswith("text/plain")


def test_an_event_shows_its_delivery_to_each_group(admin_client, topic):
    for group in ("passed", "failed", "waiting"):
        register_subscription(Declaration(topic=topic.name, group=group, handler=print), using="default")
    SubscriptionFactory(topic=topic, group_id="never-ran")
    with transaction.atomic():
        publish(topic.name, 1, type="first")
        publish(topic.name, 2, type="second")
    with transaction.atomic():
        publish(topic.name, 3, type="third")
    sequence("default")
    ConsumerOffset.objects.exclude(group_id="waiting").update(next_offset=3, next_position=10**9)
    letter = DeadLetterFactory(topic=topic, group_id="failed", c_offset=1)
    page = admin_client.get(reverse(EVENT, args=[topic.pk, 1]))
    assert deliveries(page) == {
        "passed": "✔ handled",
        "failed": "✖ failed: waiting for an operator",
        "waiting": "… waiting: the group is at offset 1",
        "never-ran": "… waiting: no consumer of the group has run yet",
    }
    assert reverse("admin:pubsub_deadletter_change", args=[letter.pk]) in page.content.decode()
    assert [found.type for found, _ in page.context["siblings"]] == ["second"]
    assert admin_client.get(reverse(EVENT, args=[topic.pk, 4])).status_code == 404


def deliveries(page):
    return {group["group"]: f"{group['sign']} {group['status']}" for group in page.context["groups"]}


@pytest.fixture
def delivered(admin_client):
    """What the page of an event says of each group."""
    topic = make_topic(partitions=1)

    def of(offset):
        return deliveries(admin_client.get(reverse(EVENT, args=[topic.pk, offset])))

    return of


def test_what_was_skipped_is_not_handled(delivered):
    subscribe()
    fill_log(4)
    control.seek(TOPIC, GROUP, to=3, **WHO)
    reread()
    assert re.fullmatch(r"– skipped: olivia moved the group past it at \d{4}-\d\d-\d\d [\d:]{8}", delivered(2)[GROUP])
    assert delivered(3)[GROUP] == "✔ handled"
    control.seek(TOPIC, GROUP, to=1, **WHO)
    reread()
    assert delivered(2)[GROUP] == "✔ handled", "it came again"
    control.rename_group(TOPIC, GROUP, "post", **WHO)
    assert delivered(2)["post"] == "✔ handled"


def test_what_was_there_before_the_group_is_not_handled(delivered):
    fill_log(2)
    subscribe(start="latest")
    fill_log(1)
    reread()
    assert delivered(2)[GROUP] == "– before the group’s start, which was offset 3"
    assert delivered(3)[GROUP] == "✔ handled"
    OperatorEvent.objects.all().delete()
    assert delivered(3)[GROUP] == "– passed: handled, or before the group’s start, which is not recorded"


def test_the_filter_is_asked_about_this_event(delivered):
    for group, wanted in (("small", 5), ("large", 50)):
        register_subscription(declare(print, topic=TOPIC, group=group, where={"payload__lt": wanted}), using="default")
    fill_log(1, start=7)
    ConsumerOffset.objects.update(next_offset=2, next_position=10**9)
    assert delivered(1) == {"small": "– left out by the group’s filter", "large": "✔ handled"}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("PAUSED", "… waiting: the group is paused at offset 1"),
        ("DEAD", "– not handled: the group was given up"),
        ("CANCELLED", "– not handled: the group is cancelled"),
    ],
)
def test_what_a_group_will_not_get_is_not_still_to_come(delivered, status, said):
    subscribe()
    fill_log(1)
    Subscription.objects.update(status=status)
    assert delivered(1)[GROUP] == said


def test_what_may_have_failed_long_ago_is_not_called_handled(delivered):
    subscribe()
    fill_log(1)
    reread()
    OutboxMessage.objects.update(created_at=timezone.now() - dt.timedelta(days=90))
    assert delivered(1)[GROUP] == "– passed: whether it failed is no longer recorded"


def test_publishing_asks_first_and_is_logged(admin_client, topic):
    SubscriptionFactory(topic=topic, group_id="mail")
    form = {"topic": topic.name, "payload": '{"a": 1}', "type": "test", "key": "k", "metadata": "", "to_group": ""}
    assert "invalid" not in text_of(admin_client.get(reverse(PUBLISH)))
    asked = admin_client.post(reverse(PUBLISH), form)
    assert "mail" in text_of(asked)
    assert not OutboxMessage.objects.exists()
    again = admin_client.post(reverse(PUBLISH), {**hidden_fields(asked), "change": "Change it"})
    assert 'name="payload"' in again.content.decode()
    done = admin_client.post(reverse(PUBLISH), {**hidden_fields(asked), "confirmed": "Publish"})
    message = OutboxMessage.objects.get()
    assert (message.payload, message.type, message.key, message.to_group) == ({"a": 1}, "test", "k", None)
    assert str(message.event_id) in said(done)[0]
    assert LogEntry.objects.get().object_id == str(message.event_id)


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("payload", "{a: 1}", "Not valid JSON"),
        ("payload", "", "This field is required"),
        ("metadata", "[1]", "metadata must be a mapping"),
        ("topic", "nowhere", "Select a valid choice"),
        ("payload", '"\\u0000"', "\\u0000"),
    ],
)
def test_what_cannot_be_published_is_refused(admin_client, topic, field, value, error):
    form = {"topic": topic.name, "payload": "1", "metadata": "{}", "confirmed": "yes", field: value}
    assert error in text_of(admin_client.post(reverse(PUBLISH), form))
    assert not OutboxMessage.objects.exists()


def test_publishing_needs_its_permission(sign_in, topic):
    client = sign_in("view_outboxmessage", "view_payload_outboxmessage")
    form = {"topic": topic.name, "payload": "1", "confirmed": "yes"}
    assert client.post(reverse(PUBLISH), form).status_code == 403
    assert "Publish a message" not in text_of(client.get(reverse(LIST)))
    assert not OutboxMessage.objects.exists()


@pytest.mark.parametrize("permission", ["publish_outboxmessage", "view_payload_outboxmessage", "view_topic"])
def test_a_user_who_may_not_see_events_sees_none(sign_in, topic, permission):
    fill(topic, 1)
    client = sign_in(permission)
    pages = [reverse(name) for name in (LIST, PUBLISH, EVENTS, "admin:pubsub_outboxmessage_tail")]
    for address in [*pages, reverse(EVENT, args=[topic.pk, 1])]:
        assert client.get(address).status_code == 403


def test_the_tail_shows_each_event_once(admin_client, topic, monkeypatch):
    monkeypatch.setattr("pubsub.admin.events.TAIL_AT_ONCE", 7)
    fill(topic, 30)
    seen, after = [], 0
    for _ in range(8):
        answer = admin_client.get(reverse(EVENTS), {"topic": topic.pk, "after": after}).json()
        seen += [event["offset"] for event in answer["events"]]
        after = answer["next"]
    assert seen == list(range(1, 31))
    assert (after, answer["tip"], answer["dropped"]) == (30, 30, 0)
    assert admin_client.get(reverse(EVENTS), {"topic": "x"}).status_code == 400


def test_a_tail_shows_that_retention_has_dropped_events(admin_client, topic):
    fill(topic, 30)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM log_entry WHERE c_offset <= 10")
    answer = admin_client.get(reverse(EVENTS), {"topic": topic.pk, "after": 4}).json()
    assert (answer["dropped"], answer["events"][0]["offset"], answer["next"]) == (6, 11, 30)


def test_no_page_counts_or_takes_more_than_a_few_queries(sign_in, topic):
    fill(topic, 60)
    client = sign_in("view_outboxmessage", "view_payload_outboxmessage")
    for address in (
        reverse(LIST),
        reverse(LIST) + f"?topic={topic.pk}&type=type-1",
        reverse(LIST) + f"?topic={topic.pk}&before=40",
        reverse(EVENT, args=[topic.pk, 30]),
    ):
        client.get(address)
        with CaptureQueriesContext(connection) as captured:
            assert client.get(address).status_code == 200
        assert len(captured) <= 8, [query["sql"][:80] for query in captured]
        assert not [query for query in captured if "count(" in query["sql"].lower()]


def test_a_search_reads_a_bounded_part_of_a_large_log(topic):
    """By its plan, on a log that statistics know nothing about: index scans, and no more rows than asked for."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO outbox_message_t (topic_id, type, key, payload) "
            "SELECT %s, 'type-' || n %% 3, 'key-' || n %% 7, '{}' FROM generate_series(1, 30000) AS n",
            [topic.pk],
        )
        # Autovacuum may have learnt something of another test's log.
        cursor.execute(
            "DELETE FROM pg_statistic WHERE starelid IN (SELECT relid FROM pg_partition_tree('log_entry')"
            " UNION ALL SELECT relid FROM pg_partition_tree('outbox_message_t'))"
        )
    sequence("default")
    with CaptureQueriesContext(connection) as captured:
        assert search(topic.pk, Conditions(type="nowhere"), using="default").found == []
    (sql,) = [query["sql"] for query in captured if "entry.c_offset BETWEEN" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF, FORMAT JSON) " + sql.partition("; ")[2])
        plan = cursor.fetchone()[0][0]["Plan"]
    looked_at = [node for node in _nodes(plan) if node["Node Type"] in ("Seq Scan", "Index Scan", "Index Only Scan")]
    whole = [node for node in looked_at if node["Node Type"] == "Seq Scan" and node["Actual Rows"]]
    assert not [(node["Relation Name"], node["Actual Rows"], node["Actual Loops"]) for node in whole]
    most = max(node["Actual Rows"] * node["Actual Loops"] for node in looked_at)
    assert most == LOOKED_AT


def _nodes(plan):
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


ODD = {
    "a number of 5,000 digits": f'{{"n": {"9" * 5000}}}',
    "5,000 levels": "[" * 5000 + "]" * 5000,
    "a number beyond a float's range": f'{{"n": {"1" * 400}.5}}',
}


@pytest.mark.parametrize("redact_paths", [[], ["n"]], ids=["open", "redacted"])
@pytest.mark.parametrize("payload", ODD.values(), ids=ODD)
def test_a_page_shows_what_python_cannot_hold(admin_client, topic, settings, payload, redact_paths):
    settings.PUBSUB = {"redact_paths": redact_paths}
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO outbox_message_t (topic_id, payload) VALUES (%s, %s)", [topic.pk, payload])
    fill(topic, 1)
    for address in (
        reverse(LIST),
        reverse(EVENTS) + f"?topic={topic.pk}&after=0",
        reverse(EVENT, args=[topic.pk, 1]),
        reverse("admin:pubsub_outboxmessage_payload", args=[topic.pk, 1]),
    ):
        shown = admin_client.get(address)
        assert shown.status_code == 200
        assert ("11111" in shown.content.decode() or "99999" in shown.content.decode()) <= (not redact_paths)
        assert len(shown.content) < 2_000_000
    assert shown["X-Content-Type-Options"] == "nosniff"  # the payload alone
    assert "sandbox" in shown["Content-Security-Policy"]


def test_no_text_of_a_publisher_turns_the_page_round(admin_client, topic):
    odd = "invoice\u202egnp.exe\u2066\x1b[31m"
    fill(topic, 1, host_id=odd, user_id=odd)
    with transaction.atomic():
        publish(topic.name, {odd: odd}, type=odd, key=odd, host_id=odd, user_id=odd)
        publish(topic.name, {}, type=odd, key=odd)
    sequence("default")
    addresses = [reverse(LIST), reverse(EVENT, args=[topic.pk, 2]), reverse(EVENTS) + f"?topic={topic.pk}"]
    for address in addresses:
        page = admin_client.get(address).content.decode()
        assert r"invoice\u202egnp.exe\u2066" in page.replace("\\\\", "\\")
        assert not set("\u202e\u2066\x1b") & set(page)
