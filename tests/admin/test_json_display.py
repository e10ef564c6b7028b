"""JSON on the admin's pages: everything readable, nothing dangerous, never too much."""

import json
import re
import time
from decimal import Decimal
from html import unescape

import pytest

from pubsub.admin.json_display import CHARACTERS_SHOWN, ITEMS_SHOWN, LINES_SHOWN, show_json
from pubsub.payloads.decode import LongNumber, decode
from pubsub.payloads.write import write_json


def text(html):
    sizes_out = re.sub(r'<span class="pubsub-json-size">.*?</span>', "", html)
    return unescape(re.sub(r"<[^>]*>", " ", sizes_out))


@pytest.mark.parametrize(
    "value", [None, True, 7, "text", [], {}, [1, [2, {"a": None}]], {"größe": [], "b": {"c": "d", "": 0.5}}]
)
def test_a_small_value_is_shown_in_full_as_json(value):
    assert json.loads(text(show_json(value, whole="/all"))) == value
    assert "/all" not in show_json(value, whole="/all")


def test_numbers_keep_their_digits():
    value = {"price": Decimal("1.10"), "small": Decimal("0.0000000001"), "long": LongNumber("9" * 5000)}
    html = show_json(value)
    assert "1.10" in html
    assert "0.0000000001" in html
    assert "9" * CHARACTERS_SHOWN in html
    assert "9" * 5000 in write_json(value)


def test_html_is_text():
    html = show_json({"<script>alert(1)</script>": ["<img src=x onerror=alert(1)>", "</ul>"]})
    assert "<script>" not in html
    assert "<img" not in html
    assert html.count("</ul>") == 2


def test_nothing_on_it_is_forbidden_by_a_strict_policy():
    html = show_json({"a": [1, {"b": "javascript:alert(1)"}]})
    assert not re.search(r"<script|<style|\bstyle=|\bon\w+=", html)


@pytest.mark.parametrize(
    "value",
    [
        list(range(300_000)),
        [{"name": f"customer {n}", "items": [{"sku": "x" * 20}] * 5} for n in range(10_000)],
        "x" * 5_000_000,
        {"k" * 100_000 + str(n): n for n in range(50)},
        decode("[" * 3000 + "]" * 3000),
    ],
    ids=["numbers", "objects", "text", "keys", "depth"],
)
def test_a_huge_value_makes_a_small_page_at_once(value):
    started = time.perf_counter()
    html = show_json(value, whole="/all")
    assert time.perf_counter() - started < 1
    assert len(html) < 500_000
    assert html.count("<li>") <= LINES_SHOWN + ITEMS_SHOWN
    assert html.endswith('<p class="pubsub-json-more"><a href="/all">Show all as plain text</a></p>')


def test_what_is_left_out_has_a_note():
    html = show_json(list(range(1234)))
    assert "1,234 items" in html
    assert "… and 1,134 more" in html
    assert "… and 3,002 more characters" in show_json("x" * 5000)


@pytest.mark.parametrize("depth", [1, 5000])
def test_the_text_reads_as_the_value(depth):
    text = "[" * depth + '{"a": [1.50, "b", null], "c": {}}' + "]" * depth
    assert decode(write_json(decode(text))) is not None
    assert re.sub(r"\s", "", write_json(decode(text))) == re.sub(r"\s", "", text)
