"""Declaring a webhook: one subscription per URL, so that each URL is served at its own pace."""

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
    """Subscribes other servers to a topic. Returns the names of the groups that it makes.

    Each event is one signed POST request. The answer decides what happens next. 2xx: the event is delivered. 410: the
    subscription is cancelled. 422: the event becomes a dead letter at once. ``Retry-After``: it is sent again at that
    time. Anything else, including a redirect or no answer: it is sent again later, and becomes a dead letter when the
    retries are used up.

    - ``urls``: one URL, whose group is ``group``; or several, as a mapping of names or a list. Each of several is a
      group of its own, ``group:name``, with its own cursors and dead letters, and can be paused alone. In a list, the
      name is derived from the URL, so it stays the same when others are added or removed.
    - ``secret``: made by :func:`~pubsub.streams.webhooks.generate_secret`. While you replace a secret, give both.
    - ``retry``: by default twelve further attempts over a day and a half.
    - ``timeout_s``: for the whole request, resolving the name included.
    - ``headers``: additional headers, such as an authorization.
    - ``allow_http``, ``allow_private``: for receivers that are not on the public internet.
    - ``raw``: also send what ``PUBSUB["redact_paths"]`` and ``PUBSUB["redact"]`` take out.
    - ``options``: other options of :func:`pubsub.subscribe`, such as ``where``, ``start`` and ``on_failure``.
    """
    if not isinstance(group, str) or not group.strip():
        raise InvalidSubscription(f"group must be a name such as 'partner', not {group!r}.")
    for name in ("delivery", "batch"):
        if name in options:
            raise InvalidSubscription(f"A webhook delivers at least once, one event at a time: omit {name}.")
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
    """An ordinary handler, whose name shows where it sends events."""

    def cancel(event: Event, reason: str) -> None:
        with connections[using].cursor() as cursor:
            parameters = {"topic": event.topic, "group_id": event.group, "reason": reason}
            cursor.execute(load("streams/cancel_gone"), parameters)
            if cursor.rowcount:
                logger.warning("group %s no longer reads topic %s: %s", event.group, event.topic, reason)

    def handler(event: Event) -> None:
        deliver(endpoint, event, retries, cancel)

    # The registry knows handlers by their names: those of two paths on one host differ.
    handler.__qualname__ = f"webhook({endpoint.shown} {_digest(endpoint.url)})"
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
        # Without the URLs: their paths may be secrets.
        given = f"with the names {', '.join(map(repr, named))}" if named else f"a {type(urls).__name__}"
        raise InvalidSubscription(f"urls must be a URL, a list of them, or a mapping of names to them, not {given}.")
    return {f"{group}:{name}": url for name, url in named.items()}


def _name_of(url: Any) -> str:
    digest = _digest(url)
    try:
        return f"{urlsplit(str(url)).hostname}-{digest}"
    except ValueError:
        return digest  # the endpoint says what is wrong with it


def _digest(url: Any) -> str:
    return hashlib.sha256(str(url).encode()).hexdigest()[:8]
