"""Reading the admin's pages, and pressing what is on them."""

import re
from html import unescape

from django.contrib.messages import get_messages
from django.urls import reverse

LETTERS = "admin:pubsub_deadletter_changelist"


def text_of(response):
    without_style = re.sub(r"<style>.*?</style>", "", response.content.decode(), flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", without_style)).split())


def hidden_fields(response):
    """What the browser would send from the page that asks."""
    fields: dict[str, list[str]] = {}
    for tag in re.findall(r"<input[^>]*>", response.content.decode().split('class="pubsub-what"')[1]):
        if 'type="hidden"' in tag:
            name, value = (re.search(rf'{part}="([^"]*)"', tag)[1] for part in ("name", "value"))
            fields.setdefault(name, []).append(value)
    return fields


def press(client, verb, letters, query="", **more):
    chosen = [letter.pk for letter in letters]
    return client.post(reverse(LETTERS) + query, {"action": f"{verb}_selected", "_selected_action": chosen, **more})


def agree(client, asked, query=""):
    return client.post(reverse(LETTERS) + query, hidden_fields(asked))


def said(response):
    return [str(message) for message in get_messages(response.wsgi_request)]
