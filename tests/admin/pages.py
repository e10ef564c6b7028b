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
    for tag in re.findall(r"<input[^>]*>", response.content.decode().split("<form", 3)[-1]):
        if 'type="hidden"' in tag:
            name, value = (unescape(re.search(rf'{part}="([^"]*)"', tag)[1]) for part in ("name", "value"))
            fields.setdefault(name, []).append(value)
    return fields


def press(client, action, letters, query="", **more):
    """Chooses letters in the list, and an action."""
    chosen = [letter.pk for letter in letters]
    return client.post(reverse(LETTERS) + query, {"action": f"{action}_selected", "_selected_action": chosen, **more})


def press_on_page(client, action, letter, **more):
    """Presses a button on a letter's own page."""
    return client.post(reverse(f"admin:pubsub_deadletter_{action}"), {"letter": letter.pk, **more})


def agree(client, asked, reason="", **more):
    """Presses the button of a page that asks, or that tells how far it has come."""
    action = asked.context["action"].name
    return client.post(reverse(f"admin:pubsub_deadletter_{action}"), {**hidden_fields(asked), "reason": reason, **more})


def said(response):
    """What came of it: as a message on the next page, or on the page of results."""
    if response.status_code == 200:
        return [response.context["summary"]]
    return [str(message) for message in get_messages(response.wsgi_request)]
