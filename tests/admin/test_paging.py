"""Keyset pages: every row once, in order, whichever way one goes, and nothing is counted."""

import re
from html import unescape

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pubsub.admin.paging import KeysetPages
from tests.admin.pages import LETTERS
from tests.factories import DeadLetterFactory, TopicFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    monkeypatch.setattr(KeysetPages, "list_per_page", 10)


def rows(page):
    return [letter.pk for letter in page.context["cl"].result_list]


def links(page):
    navigation = re.search(r'<nav class="paginator.*?</nav>', page.content.decode(), re.DOTALL)[0]
    return {
        unescape(name).strip("← →"): unescape(address)
        for address, name in re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', navigation)
    }


def flat(pages):
    return [row for page in pages for row in page]


def walk(client, page, name):
    seen = [rows(page)]
    while name in links(page):
        page = client.get(reverse(LETTERS) + links(page)[name])
        seen.append(rows(page))
    return page, seen


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 35])
def test_each_row_is_on_one_page_in_both_directions(operator, count):
    letters = [letter.pk for letter in DeadLetterFactory.create_batch(count, topic=TopicFactory())]
    newest_first = letters[::-1]
    first = operator.get(reverse(LETTERS))
    last, forth = walk(operator, first, "Older")
    assert flat(forth) == newest_first
    _, back = walk(operator, last, "Newer")
    assert flat(back[::-1]) == newest_first
    if count > 10:
        assert rows(operator.get(reverse(LETTERS) + links(first)["Oldest"])) == newest_first[-10:]
        assert rows(operator.get(reverse(LETTERS) + links(last)["Newest"])) == newest_first[:10]


def test_a_filter_stays_over_pages_and_a_new_one_begins_at_the_newest(operator):
    topic = TopicFactory()
    wanted = [DeadLetterFactory(topic=topic, state=state).pk for state in ("dead", "resolved") * 15][0::2]
    page, seen = walk(operator, operator.get(reverse(LETTERS), {"state": "dead"}), "Older")
    assert flat(seen) == wanted[::-1]
    choices = re.search(r'<nav id="changelist-filter".*?</nav>', page.content.decode(), re.DOTALL)[0]
    assert "before=" not in choices


def test_new_rows_do_not_shift_the_pages(operator):
    letters = DeadLetterFactory.create_batch(15, topic=TopicFactory())
    first = operator.get(reverse(LETTERS))
    DeadLetterFactory.create_batch(5, topic=letters[0].topic)
    assert rows(operator.get(reverse(LETTERS) + links(first)["Older"])) == [it.pk for it in letters[4::-1]]


@pytest.mark.parametrize("page", ["before=x", "after=-1", "before=" + "9" * 30])
def test_an_invalid_page_leads_to_the_first_one(operator, page):
    assert operator.get(f"{reverse(LETTERS)}?{page}").url == f"{reverse(LETTERS)}?e=1"


def test_no_page_counts_or_skips(operator):
    DeadLetterFactory.create_batch(35, topic=TopicFactory())
    with CaptureQueriesContext(connection) as captured:
        walk(operator, operator.get(reverse(LETTERS)), "Older")
    asked = [it["sql"] for it in captured.captured_queries if 'FROM "dead_letter_queue"' in it["sql"]]
    assert len(asked) >= 4
    for sql in asked:
        assert "COUNT(" not in sql
        assert "OFFSET" not in sql
        assert "LIMIT" in sql
