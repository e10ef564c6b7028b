"""Whatever stands in an address, a query or a form, every page of the admin answers; it never breaks."""

import re
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import transaction
from django.urls import NoReverseMatch, reverse
from hypothesis import strategies as st

from pubsub import publish
from pubsub.models import Subscription, Topic
from pubsub.sequencing.sequencer import sequence
from tests.factories import DeadLetterFactory, FindingFactory, OperatorEventFactory
from tests.hostile import any_text, attack

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]

NAMES = [
    *("topic", "topic_name", "offset", "at", "partition", "type", "key", "identifier", "before", "after", "q", "state"),
    *(
        "failed",
        "group",
        "exception",
        "host",
        "p",
        "o",
        "all",
        "status",
        "action",
        "e",
        "_popup",
        "_to_field",
        "_facets",
    ),
    *("_changelist_filters", "letter", "whole", "confirmed", "as_of", "transaction_id", "id__exact", "group_id__in"),
]
FORM = "application/x-www-form-urlencoded"
VERBS = ("pause", "resume", "cancel", "seek", "force-complete", "rename", "remove", "resize", "x")
DOCUMENTS = ("payload", "metadata", "original_payload", "x")
sensible = st.sampled_from(
    ["1", "2", "default", "emails", "dead", "on", "true", "latest", "offset", "time", "2024-01-01"]
)
numbers = st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**24]).map(str)
texts = st.one_of(sensible, numbers, any_text)
queries = st.dictionaries(st.one_of(st.sampled_from(NAMES), any_text.map(lambda text: text[:50])), texts, max_size=4)


def a_system():
    letter = DeadLetterFactory()
    OperatorEventFactory()
    FindingFactory()
    with transaction.atomic():
        for n in range(3):
            publish("default", {"n": n}, type="order.placed", key=n)
    sequence("default")
    topic = Topic.objects.get(name="default")
    group = Subscription.objects.create(topic=topic, group_id="emails")
    return [letter.pk, topic.pk, group.pk]


def addresses(ids):
    """Of every page that the app has, with numbers that are there and some that cannot be."""
    found = []
    numbers = [*ids, 0, 2**31, 2**63, 10**30]
    for pattern in admin.site.get_urls():
        for inner in getattr(pattern, "url_patterns", ()):
            name = inner.name or ""
            if not name.startswith("pubsub_"):
                continue
            for arguments in (
                [],
                *([n] for n in [*numbers, "x", "_3C", "%00"]),
                *([n, word] for n in ids for word in (1, 10**30, *VERBS, *DOCUMENTS)),
            ):
                try:
                    found.append(reverse(f"admin:{name}", args=arguments))
                except NoReverseMatch:
                    continue
    return sorted(set(found))


def encoded(given):
    return urlencode(given, errors="surrogatepass")


def fields(page):
    """The names in its forms, with the values that a browser would send."""
    tags = re.findall(r"<(?:input|select|textarea|button)[^>]*>", page)
    names = {found[1]: "" for tag in tags if (found := re.search(r' name="([^"]+)"', tag))}
    for tag in tags:
        name, value = re.search(r' name="([^"]+)"', tag), re.search(r' value="([^"]*)"', tag)
        if name and value:
            names[name[1]] = value[1]
    return names


@pytest.mark.timeout(120)
def test_any_query(client):
    client.force_login(User.objects.create_superuser("root"))
    pages = addresses(a_system())
    assert len(pages) > 50

    @attack(1200, 20, address=st.sampled_from(pages), query=queries)
    def run(address, query):
        assert client.get(f"{address}?{encoded(query)}").status_code < 500

    run()


@pytest.mark.timeout(120)
def test_any_form(client):
    client.force_login(User.objects.create_superuser("root"))
    pages = addresses(a_system())
    known = {}

    @attack(1200, 20, address=st.sampled_from(pages), given=queries, data=st.data())
    def run(address, given, data):
        if address not in known:
            response = client.get(address)
            known[address] = fields(response.content.decode(errors="replace")) if response.status_code == 200 else {}
        form = known[address] | given
        for name in data.draw(st.lists(st.sampled_from(sorted(form)), max_size=3)) if form else ():
            form[name] = data.draw(texts)
        assert client.post(address, encoded(form), FORM).status_code < 500

    run()
