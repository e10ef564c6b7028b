"""Declaring a webhook: a subscription of its own for each URL, so that each goes on at its own pace."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.db import DEFAULT_DB_ALIAS, connections

from pubsub.db.sql import load
from pubsub.delivery import Delivery
from pubsub.errors import InvalidSubscription
from pubsub.events import Event
from pubsub.retry import Backoff, RetryPolicy, retry_policy
from pubsub.subscriptions.declare import subscribe

from .send import Endpoint, deliver

logger = logging.getLogger(__name__)

RETRY = Backoff(retries=12, first_s=5, factor=3, longest_s=6 * 3600, jitter=0.2)
"""About a day and a half in all."""


def webhook(
    topic: str,
    *,
    group: str,
    urls: str | Sequence[str] | Mapping[str, str],
    secret: str | Sequence[str],
    retry: Sequence[float] | RetryPolicy = RETRY,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 10,
    allow_http: bool = False,
    allow_private: bool = False,
    raw: bool = False,
    using: str = DEFAULT_DB_ALIAS,
    **options: Any,
) -> tuple[str, ...]:
    """Subscribes other people's servers to a topic. Returns the names of the groups that it makes.

    Each event is one signed POST request. What an answer means: 2xx, taken; 410, the subscription is cancelled; 422,
    this event goes to the dead letters at once; with ``Retry-After``, again then; anything else, redirects and silence
    included, again after a while, and a dead letter in the end.

    - ``urls``: one, which is the group's; or several, by names of your own or as a list. Of these each is a group of
      its own, ``group:name``: it has its own cursors, its own dead letters, and can be paused alone. In a list the name
      is made of the URL, so that it stays the same whatever becomes of the others.
    - ``secret``: as :func:`~pubsub.streams.webhooks.generate_secret` makes it; while one replaces another, both.
    - ``retry``: by default twelve further attempts over a day and a half.
    - ``timeout_s``: for the whole request, resolving the name included.
    - ``headers``: more of them, such as an authorization.
    - ``allow_http``, ``allow_private``: for receivers that are not on the public internet.
    - ``raw``: send what ``PUBSUB["redact_paths"]`` and ``PUBSUB["redact"]`` take out, too.
    - ``options``: what :func:`pubsub.subscribe` takes besides, such as ``where``, ``start`` and ``on_failure``.
    """
    if not isinstance(group, str) or not group.strip():
        raise InvalidSubscription(f"group must be a name such as 'partner', not {group!r}.")
    for name in ("delivery", "batch"):
        if name in options:
            raise InvalidSubscription(f"A webhook delivers at least once, an event at a time: {name} cannot be chosen.")
    policy = retry_policy(retry)
    secrets = (secret,) if isinstance(secret, str) else tuple(secret)
    groups = _groups(group, urls)
    endpoints = {
        name: Endpoint(
            url=url,
            secrets=secrets,
            headers=dict(headers or {}),
            timeout_s=timeout_s,
            allow_http=allow_http,
            allow_private=allow_private,
            raw=raw,
        )
        for name, url in groups.items()
    }
    options |= {"delivery": Delivery.AT_LEAST_ONCE, "retry": policy}
    for name, endpoint in endpoints.items():
        subscribe(topic, group=name, **options)(handler_for(endpoint, policy.retries, using))
    return tuple(endpoints)


def handler_for(endpoint: Endpoint, retries: int, using: str) -> Any:
    """An ordinary handler, under a name that tells people where it leads."""

    def cancel(event: Event, reason: str) -> None:
        with connections[using].cursor() as cursor:
            parameters = {"topic": event.topic, "group_id": event.group, "reason": reason}
            cursor.execute(load("streams/cancel_gone"), parameters)
            if cursor.rowcount:
                logger.warning("group %s no longer reads topic %s: %s", event.group, event.topic, reason)

    def handler(event: Event) -> None:
        deliver(endpoint, event, retries, cancel)

    handler.__qualname__ = f"webhook({endpoint.shown})"
    return handler


def _groups(group: str, urls: Any) -> dict[str, str]:
    if isinstance(urls, str):
        return {group: urls}
    if isinstance(urls, Mapping):
        named = dict(urls)
    elif isinstance(urls, Sequence):
        named = {_name_of(url): url for url in urls}
    else:
        named = {}
    if not named or not all(isinstance(name, str) and name.strip() for name in named):
        raise InvalidSubscription(f"urls must be a URL, a list of them, or a mapping of names to them, not {urls!r}.")
    return {f"{group}:{name}": url for name, url in named.items()}


def _name_of(url: Any) -> str:
    digest = hashlib.sha256(str(url).encode()).hexdigest()[:8]
    try:
        return f"{urlsplit(str(url)).hostname}-{digest}"
    except ValueError:
        return digest  # the endpoint says what is wrong with it
