"""Webhooks against a real server: what is sent, what each answer means, and where they never lead."""

import contextlib
import dataclasses
import datetime as dt
import email.utils
import json
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from pubsub import Event, Reject, RetryLater, publish
from pubsub.errors import InvalidSubscription
from pubsub.models import DeadLetter, Subscription
from pubsub.streams.webhooks import InvalidSignature, addresses, generate_secret, send, verify, webhook
from pubsub.streams.webhooks.declare import _groups, handler_for
from pubsub.streams.webhooks.send import Endpoint, WebhookFailed
from pubsub.subscriptions.declare import Registry
from tests.audit import journal
from tests.handlers import drain
from tests.sessions import wait_until

from .receiver import Receiver

SECRET = generate_secret()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as running:
        yield running


def endpoint(url: str, **options: Any) -> Endpoint:
    options.setdefault("secrets", (SECRET,))
    return Endpoint(url=url, **{"allow_http": True, "allow_private": True, "timeout_s": 5, **options})


def handler(receiver: Receiver, retries: int = 3, **options: Any) -> Any:
    return handler_for(endpoint(receiver.url, **options), retries, "default")


def event(payload: Any = None, **options: Any) -> Event:
    known: dict[str, Any] = {
        "topic": "default",
        "offset": 7,
        "partition": 0,
        "id": uuid.uuid4(),
        "type": "order.created",
        "key": "k",
        "payload": payload if payload is not None else {"total": 1},
        "metadata": {"trace": "x"},
        "host_id": None,
        "user_id": "4",
        "transaction_id": uuid.uuid4(),
        "created_at": dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC),
        "attempt": 1,
        "group": "partner",
    }
    return Event(**(known | options))


def test_a_request_is_signed_and_has_the_event(receiver: Receiver) -> None:
    sent = event({"total": "zwölf"})
    handler(receiver, headers={"authorization": "Bearer b"})(sent)
    (request,) = receiver.requests
    assert request.path == "/hooks?token=hidden"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == "Bearer b"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["webhook-id"] == request.headers["idempotency-key"] == str(sent.id)
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 60
    verify(SECRET, request.headers, request.body)
    assert json.loads(request.body) == {
        "type": "order.created",
        "timestamp": "2026-01-02T03:04:05.678901+00:00",
        "data": {"total": "zwölf"},
        "id": str(sent.id),
        "topic": "default",
        "offset": 7,
        "key": "k",
        "host_id": None,
        "user_id": "4",
        "transaction_id": str(sent.transaction_id),
        "metadata": {"trace": "x"},
    }


def test_each_attempt_sends_the_same_body(receiver: Receiver) -> None:
    sent = event()
    handler(receiver)(sent)
    handler(receiver)(dataclasses.replace(sent, attempt=2))
    first, second = receiver.requests
    assert first.body == second.body
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_large_bodies_are_compressed_and_signed_uncompressed(receiver: Receiver) -> None:
    for size, compressed in ((10, False), (2000, True)):
        handler(receiver)(event({"text": "x" * size}))
        request = receiver.requests.pop()
        assert (request.headers.get("content-encoding") == "gzip") is compressed
        assert (len(request.raw) < len(request.body)) is compressed
        verify(SECRET, request.headers, request.body)
        assert json.loads(request.body)["data"] == {"text": "x" * size}


@pytest.mark.parametrize("raw", [False, True])
def test_what_is_redacted_is_sent_only_where_it_is_asked_for_raw(receiver: Receiver, settings: Any, raw: bool) -> None:
    settings.PUBSUB = {"redact_paths": ["card", "trace"]}
    handler(receiver, raw=raw)(event({"card": "4111", "total": 1.5}))
    (request,) = receiver.requests
    told = json.loads(request.body)
    assert told["data"] == {"card": "4111" if raw else "[redacted]", "total": 1.5}
    assert told["metadata"] == {"trace": "x" if raw else "[redacted]"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer s3cret\n"},  # as it is read from a file
        {"Authorization": "s3cret\r\nX-Forged: 1"},
        {"Authorization": "s3cret\n continued"},
        {"Authorization": b"s3cret"},
        {"Authorization": "s3cret€"},
        {"X-A: 1\r\nX-B": "s3cret"},
        {"Webhook-Signature": "s3cret"},
        {"Content-Length": "7"},
        {"X-A": "s3cret", "x-a": "2"},
    ],
)
def test_headers_that_cannot_be_sent_are_refused_without_their_values(headers: dict[str, Any]) -> None:
    with pytest.raises(InvalidSubscription) as refused:
        endpoint("https://example.com/", headers=headers)
    assert "s3cret" not in str(refused.value)


def test_a_header_may_be_written_in_capitals_and_replace_a_usual_one(receiver: Receiver) -> None:
    handler(receiver, headers={"Content-Type": "application/cloudevents+json", "X-Token": "a  b\tc"})(event())
    (request,) = receiver.requests
    assert request.headers["content-type"] == "application/cloudevents+json"
    assert request.headers["x-token"] == "a  b\tc"


def test_secrets_are_replaced_without_a_gap(receiver: Receiver) -> None:
    old, new = generate_secret(), generate_secret()
    handler(receiver, secrets=(new, old))(event())
    (request,) = receiver.requests
    for secret in (old, new, [generate_secret(), old]):
        verify(secret, request.headers, request.body)
    with pytest.raises(InvalidSignature, match="not signed with this secret"):
        verify(generate_secret(), request.headers, request.body)
    with pytest.raises(InvalidSignature):
        verify(old, request.headers, request.body + b" ")
    with pytest.raises(InvalidSignature, match="ago"):
        verify(old, request.headers | {"webhook-timestamp": "1614265330"}, request.body)
    with pytest.raises(InvalidSignature):
        verify(old, request.headers | {"webhook-id": "other"}, request.body)


@pytest.mark.parametrize("sent", ["", "-1", "1e9", "soon", "9" * 18, "9" * 400, "9" * 5000])
def test_an_impossible_time_is_refused(sent: str) -> None:
    headers = {"webhook-id": "1", "webhook-timestamp": sent, "webhook-signature": "v1,x"}
    with pytest.raises(InvalidSignature, match="ago, or its time is wrong"):
        verify(SECRET, headers, b"{}")


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_answers_that_mean_delivered(receiver: Receiver, status: int) -> None:
    receiver.status = status
    handler(receiver)(event())
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 418, 429, 500, 502, 503])
def test_answers_that_mean_retry(receiver: Receiver, status: int) -> None:
    receiver.status, receiver.body = status, b"what happened"
    with pytest.raises(WebhookFailed, match=f"answered {status}: what happened") as failed:
        handler(receiver)(event())
    assert "hidden" not in str(failed.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(receiver: Receiver, status: int) -> None:
    receiver.status, receiver.headers = status, {"location": f"http://127.0.0.1:{receiver.port}/elsewhere"}
    with pytest.raises(WebhookFailed, match="not followed"):
        handler(receiver)(event())
    assert len(receiver.requests) == 1


def test_an_event_that_the_receiver_cannot_use_is_rejected(receiver: Receiver) -> None:
    receiver.status, receiver.body = 422, b"no such order"
    with pytest.raises(Reject, match="no such order"):
        handler(receiver)(event())


@pytest.mark.django_db
def test_a_receiver_that_is_gone_cancels_its_subscription_alone(receiver: Receiver) -> None:
    for group in ("partner", "other"):
        Subscription.objects.create(topic_id=1, group_id=group)
    receiver.status = 410
    for _ in range(2):
        with pytest.raises(Reject, match="410"):
            handler(receiver)(event())
    gone, other = Subscription.objects.get(group_id="partner"), Subscription.objects.get(group_id="other")
    assert (gone.status, other.status) == ("CANCELLED", "ACTIVE")
    assert gone.status_reason == f"http://127.0.0.1:{receiver.port}/… answered 410 Gone"
    (told,) = journal().all()
    assert (told.actor, told.action, told.topic, told.group_id) == ("webhook", "cancel", "default", "partner")


def test_a_receiver_may_ask_for_time(receiver: Receiver) -> None:
    receiver.status = 503
    for said, least, most in (
        ("120", 120, 120),
        (" 0 ", 0, 0),
        (email.utils.format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(minutes=5), usegmt=True), 290, 300),
        (email.utils.format_datetime(dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5), usegmt=True), 0, 0),
        ("9" * 50, 24 * 3600, 24 * 3600),
    ):
        receiver.headers = {"Retry-After": said}
        with pytest.raises(RetryLater, match="answered 503") as later:
            handler(receiver)(event())
        assert least <= later.value.delay <= most
    for nonsense in ("soon", "Mon, 01 Jan 2035 00:00:99999999999999999999 GMT", "Mon, 01 Jan 99999 00:00:00 GMT"):
        receiver.headers = {"Retry-After": nonsense}
        with pytest.raises(WebhookFailed):
            handler(receiver)(event())


def test_a_receiver_cannot_ask_for_time_for_ever(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 503, {"Retry-After": "1"}
    with pytest.raises(RetryLater):
        handler(receiver, retries=3)(event(attempt=3))
    with pytest.raises(WebhookFailed):
        handler(receiver, retries=3)(event(attempt=4))


def test_a_silent_receiver_times_out(receiver: Receiver) -> None:
    receiver.stalls = threading.Event()
    begun = time.monotonic()
    with pytest.raises(WebhookFailed, match=r"could not be reached within 0\.3 s"):
        handler(receiver, timeout_s=0.3)(event())
    assert time.monotonic() - begun < 3
    receiver.stalls.set()


def test_an_answer_that_never_ends_is_cut(receiver: Receiver) -> None:
    receiver.drips = True
    begun = time.monotonic()
    with pytest.raises(WebhookFailed):
        handler(receiver, timeout_s=0.5)(event())
    assert time.monotonic() - begun < 3


class Resolver:
    """Stands for the system's one, which Python asks by getaddrinfo(): it hangs until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()
        system = socket.getaddrinfo

        def getaddrinfo(host: str, port: int, *rest: Any, **options: Any) -> list[Any]:
            self.asked.append(host)
            self.answers.wait(30)
            return [found for address in addresses for found in system(address, port, *rest, **options)]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_a_resolver_that_hangs_is_not_waited_for(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = Resolver(monkeypatch, "127.0.0.1")
    deliver = handler_for(endpoint(f"http://partner.test:{receiver.port}/", timeout_s=0.2), 3, "default")
    for _ in range(3):
        begun = time.monotonic()
        with pytest.raises(WebhookFailed, match=r"within 0\.2 s.*partner\.test was not resolved in time"):
            deliver(event())
        assert time.monotonic() - begun < 3
    assert resolver.asked == ["partner.test"]  # one thread hangs, however often it is tried
    resolver.answers.set()
    wait_until(lambda: not addresses._asked, "the resolver has answered")
    endpoint_in_time = endpoint(f"http://partner.test:{receiver.port}/")
    handler_for(endpoint_in_time, 3, "default")(event())
    assert resolver.asked == ["partner.test"] * 2
    assert receiver.requests[0].headers["host"] == f"partner.test:{receiver.port}"


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(WebhookFailed, match="could not be reached"):
        handler_for(endpoint("http://nowhere.invalid/"), 3, "default")(event())
    wait_until(lambda: not addresses._asked, "nothing is asked any more")


def test_the_timeout_is_for_all_addresses_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes no connections: clients are left waiting, at each of its addresses."""
    Resolver(monkeypatch, "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4").answers.set()
    with socket.socket() as deaf, contextlib.ExitStack() as closing:
        deaf.bind(("0.0.0.0", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        for _ in range(3):
            waiting = closing.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        begun = time.monotonic()
        with pytest.raises(WebhookFailed, match="could not be reached"):
            handler_for(endpoint(f"http://partner.test:{port}/", timeout_s=1), 3, "default")(event())
        assert 0.9 < time.monotonic() - begun < 2


def test_a_receiver_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(WebhookFailed, match="could not be reached"):
        handler_for(endpoint(f"http://127.0.0.1:{port}/"), 3, "default")(event())


def test_no_thread_and_no_socket_is_left_behind(receiver: Receiver) -> None:
    before = threading.active_count()
    for _ in range(5):
        handler(receiver)(event())
    assert threading.active_count() <= before + 5  # the server's own, at most


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_certificates_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver()
    trusted = receiver.use_tls(tmp_path, "localhost")
    with receiver.serving():
        secure = endpoint(f"https://localhost:{receiver.port}/", allow_http=False)
        with pytest.raises(WebhookFailed, match="CERTIFICATE_VERIFY_FAILED"):
            handler_for(secure, 3, "default")(event())
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        handler_for(secure, 3, "default")(event())
        with pytest.raises(WebhookFailed, match="CERTIFICATE_VERIFY_FAILED"):
            other_name = endpoint(f"https://127.0.0.1:{receiver.port}/", allow_http=False)
            handler_for(other_name, 3, "default")(event())
        assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.8.8.8",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
        ),
        *(
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "fe80::1%eth0",
            "fec0::1",
            "fc00::1",
            "fd12::1",
        ),
        *(
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b::127.0.0.1",
            "64:ff9b:1::1.1.1.1",
            "2002:a00:1::",
            "ff02::1",
            "192.0.2.1",
            "2001:db8::1",
        ),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not addresses.is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"]
)
def test_addresses_that_are_public(address: str) -> None:
    assert addresses.is_public(address)


def test_a_name_that_leads_inside_is_refused_when_it_is_used(receiver: Receiver) -> None:
    """`localhost` passes as a name; what it resolves to when it is connected to does not."""
    inside = endpoint(f"http://localhost:{receiver.port}/", allow_private=False)
    with pytest.raises(addresses.PrivateAddress, match=r"127\.0\.0\.1.*allow_private"):
        handler_for(inside, 3, "default")(event())
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"url": "http://example.com/"}, "must begin with https"),
        ({"url": "ftp://example.com/"}, 'like "https'),
        ({"url": "example.com"}, 'like "https'),
        ({"url": "https:///hooks"}, 'like "https'),
        ({"url": "https://example.com:99999/"}, "must be one"),
        ({"url": "https://example.com:0/"}, 'like "https'),
        ({"url": "https://ex ample.com/"}, 'like "https'),
        ({"url": "https://example.com/\r\nx: y"}, 'like "https'),
        ({"url": "https://exämple.com/"}, "in ASCII"),
        ({"url": "https://me:secret@example.com/"}, "no password"),
        ({"url": "https://127.0.0.1/"}, "not a public address"),
        ({"url": "https://[::1]/"}, "not a public address"),
        ({"url": None}, "must be"),
        ({"secrets": ()}, "needs a secret"),
        ({"secrets": ("hunter2",)}, "must be"),
        ({"secrets": ("whsec_c2hvcnQ=",)}, "24 to 64 bytes"),
        ({"timeout_s": 0}, "above 0"),
    ],
)
def test_addresses_that_are_refused_when_declared(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidSubscription, match=expected) as refused:
        Endpoint(**{"url": "https://example.com/", "secrets": (SECRET,), **options})
    assert "hunter2" not in str(refused.value)
    assert "secret@" not in str(refused.value)


def test_each_of_several_urls_is_a_group_of_its_own() -> None:
    assert _groups("partner", "https://a.example/") == {"partner": "https://a.example/"}
    assert _groups("partner", {"eu": "https://a.example/"}) == {"partner:eu": "https://a.example/"}
    first = _groups("partner", ["https://a.example/", "https://a.example/2"])
    assert len(first) == 2
    assert all(name.startswith("partner:a.example-") for name in first)
    # Another one that comes or goes changes no name.
    assert list(_groups("partner", ["https://b.example/", "https://a.example/2"]))[1] == list(first)[1]
    for wrong in ([], {}, None, {"": "https://a.example/secret"}, {"https://a.example/secret"}):
        with pytest.raises(InvalidSubscription, match=r"urls must be (?!.*secret)"):
            _groups("partner", wrong)


def test_a_webhook_is_an_ordinary_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    monkeypatch.setattr("pubsub.subscriptions.declare.registry", registry)
    for _ in range(2):  # a module that is imported once more declares it again
        groups = webhook("default", group="partner", urls=["https://a.example/x", "https://b.example/"], secret=SECRET)
    declared = registry.select()
    assert [one.group for one in declared] == list(groups)
    assert {str(one.delivery) for one in declared} == {"at_least_once"}
    assert [one.handler_name.rpartition(" ")[0] for one in declared] == [
        "pubsub.streams.webhooks.declare.webhook(https://a.example/…",
        "pubsub.streams.webhooks.declare.webhook(https://b.example",
    ]


@pytest.mark.django_db(transaction=True)
def test_each_url_is_served_at_its_own_pace(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    monkeypatch.setattr("pubsub.subscriptions.declare.registry", registry)
    with Receiver().serving() as broken:
        urls = {"good": receiver.url, "bad": broken.url}
        options = {"allow_http": True, "allow_private": True, "start": "earliest", "retry": []}
        webhook("default", group="partner", urls=urls, secret=SECRET, where={"type": "t"}, **options)
        for n in range(3):
            with transaction.atomic():
                publish("default", n, type="t", key="one")
                publish("default", "not wanted", type="u", key="one")
        broken.status = 422
        drain(*registry.select())
        assert [json.loads(request.body)["data"] for request in receiver.requests] == [0, 1, 2]
        assert DeadLetter.objects.filter(group_id="partner:bad", exception_class__contains="Reject").count() == 3
        broken.status = 410
        with transaction.atomic():
            publish("default", 3, type="t", key="one")
        drain(*registry.select())
        with transaction.atomic():
            publish("default", 4, type="t", key="one")
        drain(*registry.select())
        assert len(receiver.requests) == 5
        assert len(broken.requests) == 4
        assert Subscription.objects.get(group_id="partner:bad").status == "CANCELLED"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"group": " "}, "group must be"),
        ({"urls": 5}, "urls must be"),
        ({"delivery": "at_most_once"}, "one event at a time: omit"),
        ({"batch": True}, "one event at a time: omit"),
        ({"retry": "often"}, "retry must be"),
        ({"urls": "http://a.example/"}, "must begin with https"),
        ({"secret": ""}, "secret must be"),
    ],
)
def test_invalid_declarations_are_refused(options: dict[str, Any], expected: str) -> None:
    arguments = {"group": "partner", "urls": "https://a.example/", "secret": SECRET, **options}
    with pytest.raises(InvalidSubscription, match=expected):
        webhook("default", **arguments)


def test_secrets_are_shown_nowhere() -> None:
    of_partner = endpoint("https://a.example/services/T0/hidden?token=hidden", headers={"authorization": "hidden"})
    assert SECRET not in repr(of_partner)
    assert "hidden" not in repr(of_partner) + of_partner.shown + handler_for(of_partner, 1, "default").__qualname__
    with pytest.raises(InvalidSubscription) as refused:
        endpoint("https://a.example:port/services/T0/hidden")
    assert "hidden" not in str(refused.value)
    assert send.SHOWN < 1000
