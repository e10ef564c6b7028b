"""Numbers are written for people as their language wants them, and for programs as they are."""

import re

import pytest
from django.urls import reverse

from pubsub.models import DeadLetter
from tests.admin.pages import agree, hidden_fields, press_on_page, text_of
from tests.factories import DeadLetterFactory, LogCounterFactory, SubscriptionFactory, TopicFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def thousands_apart(settings):
    settings.USE_THOUSAND_SEPARATOR = True
    settings.LANGUAGE_CODE = "de"


def test_numbers_in_scripts_and_forms_have_no_separators(admin_client):
    topic = TopicFactory(id=1234567)
    SubscriptionFactory(id=1234567, topic=topic, group_id="mail", status="PAUSED")
    DeadLetterFactory(id=1234567, topic=topic, group_id="mail")
    address = reverse("admin:pubsub_overview_changelist")
    page = admin_client.get(address).content.decode()
    assert 'data-every-ms="5000"' in page
    assert 'id="group-1234567"' in page
    page = admin_client.get(reverse("admin:pubsub_outboxmessage_tail") + "?topic=1234567").content.decode()
    assert 'data-topic="1234567"' in page
    assert '<option value="1234567" selected>' in page
    page = admin_client.get(reverse("admin:pubsub_deadletter_change", args=[1234567]))
    assert hidden_fields(page)["letter"] == ["1234567"]
    for link in re.findall(r'href="([^"]*)"', page.content.decode()):
        assert "1.234.567" not in link


def test_a_dead_letter_is_replayed_whatever_its_number_looks_like(admin_client):
    letter = DeadLetterFactory(id=1234567)
    page = admin_client.get(reverse("admin:pubsub_deadletter_change", args=[letter.pk]))
    (number,) = hidden_fields(page)["letter"]
    letter.pk = number
    agree(admin_client, press_on_page(admin_client, "replay", letter))
    assert DeadLetter.objects.get().state == "retrying"


def test_displayed_numbers_have_separators(admin_client):
    LogCounterFactory(topic=TopicFactory(name="orders"), next_offset=12346)
    assert "12.345" in text_of(admin_client.get(reverse("admin:pubsub_overview_changelist")))
