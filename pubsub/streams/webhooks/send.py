"""A webhook's request, and what its answer means."""

import datetime as dt
import email.utils
import gzip
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pubsub.errors import InvalidSubscription, PubSubError, Reject, RetryLater
from pubsub.events import Event
from pubsub.payloads.visible import json_line, visible_facts

from . import addresses
from .sign import decode_secret, sign

COMPRESSED_FROM = 1024
"""A body of at least this many bytes is compressed."""

LONGEST_WAIT_S = 24 * 3600
"""The longest time that a receiver gets, even if it asks for more."""

SHOWN = 500
"""At most this many bytes of an answer are shown."""


HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[!-~]+([ \t]+[!-~]+)*")
OWN_HEADERS = {"connection", "content-encoding", "content-length", "host", "idempotency-key", "transfer-encoding"} | {
    f"webhook-{name}" for name in ("id", "timestamp", "signature")
}


class WebhookFailed(PubSubError):
    """A receiver did not accept an event. It is retried while attempts are left."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A receiver: its address, how requests to it are signed, and what is allowed."""

    url: str = field(repr=False)
    secrets: Sequence[str] = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 10
    allow_private: bool = False
    allow_http: bool = False
    raw: bool = False
    """Whether it gets what PUBSUB redacts."""

    def __post_init__(self) -> None:
        if not self.secrets:
            raise InvalidSubscription("A webhook needs a secret; pubsub.streams.webhooks.generate_secret() makes one.")
        for secret in self.secrets:
            decode_secret(secret)
        if not isinstance(self.timeout_s, int | float) or isinstance(self.timeout_s, bool) or not self.timeout_s > 0:
            raise InvalidSubscription(f"timeout_s must be a number of seconds above 0, not {self.timeout_s!r}.")
        self._check_url()
        self._check_headers()

    def _check_url(self) -> None:
        if not isinstance(self.url, str):
            raise InvalidSubscription(f"A webhook's URL must be a string, not {self.url!r}.")
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            # Without the URL: its path may be a secret.
            raise InvalidSubscription(f"A webhook's URL must be one: {error}.") from error
        if parts.scheme == "http" and not self.allow_http:
            raise InvalidSubscription(
                f"A webhook's URL must begin with https://, not {self.shown}. With allow_http=True, anyone on "
                f"the way can read the events."
            )
        is_plain = self.url.isascii() and not any(char <= " " or char == "\x7f" for char in self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not is_plain:
            raise InvalidSubscription(
                f'A webhook\'s URL must be like "https://example.com/hooks", in ASCII, not {self.shown}.'
            )
        if parts.username is not None or parts.fragment:
            raise InvalidSubscription(f"A webhook's URL has no password and no fragment; {self.shown} has.")
        try:
            is_public = addresses.is_public(parts.hostname)
        except ValueError:
            return  # a name: the address that it leads to is checked for each request
        if not is_public and not self.allow_private:
            raise InvalidSubscription(
                f"{parts.hostname} is not a public address. To use it anyway, give allow_private=True."
            )

    def _check_headers(self) -> None:
        """What could not be sent would fail for each event, with the header's value, often a secret, in its error."""
        for name, value in self.headers.items():
            if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
                raise InvalidSubscription(f"A webhook's header must have a name such as 'authorization', not {name!r}.")
            if name.lower() in OWN_HEADERS:
                raise InvalidSubscription(f"A webhook's header {name} is its own: leave it out.")
            if not isinstance(value, str) or not HEADER_VALUE.fullmatch(value):
                raise InvalidSubscription(
                    f"The value of a webhook's header {name} must be one line of ASCII, without spaces around it."
                )
        if len({name.lower() for name in self.headers}) < len(self.headers):
            raise InvalidSubscription("A webhook's header is given twice, in capitals and not: leave one out.")

    @property
    def shown(self) -> str:
        """For people: without what may be secret, such as the path, by which many services know their customers."""
        parts = urlsplit(self.url)
        rest = "/…" if parts.path.strip("/") or parts.query else ""
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{rest}"

    def send(self, event: Event) -> tuple[int, Mapping[str, str], bytes]:
        """Sends one request. Returns the answer's status, headers, and the beginning of its body."""
        body = body_of(event, raw=self.raw)
        timestamp = int(time.time())
        headers = {
            "content-type": "application/json",
            "user-agent": "django-outbox-pubsub",
            **{name.lower(): value for name, value in self.headers.items()},
            "webhook-id": str(event.id),
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self.secrets, str(event.id), timestamp, body),
            "idempotency-key": str(event.id),
        }
        if len(body) >= COMPRESSED_FROM:
            headers["content-encoding"] = "gzip"
            body = gzip.compress(body, mtime=0)
        return self._exchange(body, headers)

    def _exchange(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname or ""
        deadline = time.monotonic() + self.timeout_s
        sock = addresses.connect(host, port, deadline, allow_private=self.allow_private)
        connection = http.client.HTTPConnection(host, port)
        connection.sock = sock
        # A socket's timeout is per read, and a receiver may send one byte at a time.
        cut = threading.Timer(max(0.0, deadline - time.monotonic()), lambda: _shut(connection.sock))
        cut.daemon = True
        cut.start()
        try:
            if parts.scheme == "https":
                context = ssl.create_default_context()
                connection.sock = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
                connection.sock.do_handshake()
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body, {**headers, "host": parts.netloc, "connection": "close"})
            with connection.getresponse() as answer:
                answered = answer.status, dict(answer.headers.items()), answer.read(SHOWN)
            if time.monotonic() >= deadline:
                raise TimeoutError("the answer did not end")  # what was cut off looks like one that did
            return answered
        finally:
            cut.cancel()
            connection.close()
            sock.close()


def _shut(sock: socket.socket | None) -> None:
    if sock is not None:
        with suppress(OSError):
            # Shut down the plain socket: TLS would first send a farewell.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


def body_of(event: Event, *, raw: bool) -> bytes:
    """The body of a request, byte for byte the same at each attempt."""
    facts = visible_facts(event, raw=raw)
    del facts["partition"]
    # The names that receivers of Standard Webhooks expect.
    body = {"type": facts.pop("type"), "timestamp": facts.pop("created_at"), "data": facts.pop("payload")}
    return json_line(body | facts).encode()


def deliver(endpoint: Endpoint, event: Event, retries: int, cancel: Callable[[Event, str], None]) -> None:
    """Sends an event. Returns if the receiver accepted it; otherwise raises an error that decides what happens next."""
    try:
        status, headers, body = endpoint.send(event)
    except (OSError, http.client.HTTPException) as error:
        raise WebhookFailed(
            f"{endpoint.shown} could not be reached within {endpoint.timeout_s:g} s: {error!r}"
        ) from error
    if 200 <= status < 300:
        return
    said = f"{endpoint.shown} answered {status}: {body.decode(errors='replace')}"
    if status == 410:
        cancel(event, f"{endpoint.shown} answered 410 Gone")
        raise Reject(said)
    if status == 422:
        raise Reject(said)
    wait_s = _wait_asked_for({name.lower(): value for name, value in headers.items()}.get("retry-after"))
    # A receiver may ask for more time as often as there are retries; after that it counts as failed.
    if status >= 400 and wait_s is not None and event.attempt <= retries:
        raise RetryLater(wait_s, said)
    if 300 <= status < 400:
        said = f"{said} (redirects are not followed: declare the URL that it leads to)"
    raise WebhookFailed(said)


def _wait_asked_for(text: str | None) -> float | None:
    """Seconds, from a header that has a number or a date."""
    if not text:
        return None
    if text.strip().isdecimal():
        return float(min(int(text.strip()[:9]), LONGEST_WAIT_S))
    try:
        until = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=dt.UTC)
    return min(max(0.0, until.timestamp() - time.time()), LONGEST_WAIT_S)
