"""Whatever a receiver of webhooks answers, the event is delivered, or fails in words, within the time that it has."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import strategies as st

from pubsub import Reject, RetryLater
from pubsub.streams.webhooks.send import LONGEST_WAIT_S, WebhookFailed, deliver
from tests.hostile import any_text, attack

from .test_webhooks import endpoint, event

pytestmark = pytest.mark.long

TIMEOUT_S = 0.4
SLACK_S = 5

words = st.one_of(any_text.map(lambda text: text[:3000].encode("latin-1", "replace")), st.binary(max_size=50))
starts = st.one_of(
    st.sampled_from([100, 101, 103, 199, 200, 204, 299, 300, 302, 304, 400, 410, 422, 429, 500, 503, 599, 999]).map(
        lambda status: f"HTTP/1.1 {status} Said\r\n".encode()
    ),
    st.sampled_from(
        [b"HTTP/1.1 2000 x\r\n", b"HTTP/9.9 200\r\n", b"HTTP/1.1 \xb2\xb2\r\n", b"ICY 200 OK\r\n", b"\r\n", b""]
    ),
    words,
)
headers = st.one_of(
    st.builds(
        lambda value: b"retry-after: " + value + b"\r\n",
        st.one_of(
            words,
            st.integers().map(lambda seconds: str(seconds).encode()),
            st.sampled_from(
                [
                    b"Wed, 21 Oct 2099 07:28:00 GMT",
                    b"Wed, 21 Oct 0000 07:28:00 GMT",
                    b"Wed, 21 Oct 2015 00:00:99999999999999999999 GMT",
                    b"Wed, 21 Oct 9999 23:59:59 -9999",
                    b"Wed, 21 Oct 0001 00:00:00 +2359",
                    b"21 Oct 99 1:1 +99999",
                    "٣".encode(),
                    b"1" * 5000,
                ]
            ),
        ),
    ),
    st.builds(
        lambda value: b"content-length: " + value + b"\r\n", st.sampled_from([b"0", b"-1", b"9" * 30, b"x", b"5"])
    ),
    st.sampled_from(
        [b"transfer-encoding: chunked\r\n", b"content-encoding: gzip\r\n", b" folded\r\n", b": \r\n", b"x\r\n"]
    ),
    st.builds(lambda name, value: name + b": " + value + b"\r\n", words, words),
)
bodies = st.one_of(
    words,
    st.sampled_from(
        [b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffff\r\nx", b"-1\r\n", b"zz\r\n", b"\x00" * 5000, b"x" * 2_000_000]
    ),
)
ends = st.sampled_from(["closes", "cuts", "waits", "repeats the start", "repeats a header", "repeats the body"])


class Hostile:
    """A receiver that reads a request, sends these bytes, and goes on or ends as the last word of the answer says."""

    def __init__(self) -> None:
        self.answer: tuple[bytes, bytes, bytes, str] = (b"", b"", b"", "closes")
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}/"

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                with client, suppress(OSError):
                    self._answer(client)

    def _answer(self, client: socket.socket) -> None:
        start, head, body, end = self.answer
        client.settimeout(SLACK_S)
        client.recv(65536)
        if end == "cuts":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(start + head + b"\r\n" + body)
        again = {"repeats the start": start, "repeats a header": b"x-more: 1\r\n", "repeats the body": body}.get(end)
        if end == "waits":
            client.recv(1)
        while again:
            client.sendall(again)


@contextmanager
def hostile() -> Iterator[Hostile]:
    receiver = Hostile()
    thread = threading.Thread(target=receiver.serve, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.listening.shutdown(socket.SHUT_RDWR)
        receiver.listening.close()
        thread.join()


@pytest.mark.timeout(120)
def test_any_answer() -> None:
    with hostile() as receiver:
        sender = endpoint(receiver.url, timeout_s=TIMEOUT_S)
        cancelled: list[str] = []

        @attack(1500, start=starts, head=st.lists(headers, max_size=4).map(b"".join), body=bodies, end=ends)
        def run(start: bytes, head: bytes, body: bytes, end: str) -> None:
            receiver.answer = start, head, body, end
            begun = time.monotonic()
            try:
                deliver(sender, event(), 3, lambda event, why: cancelled.append(why))
            except RetryLater as later:
                wait_s = later.delay
            except (WebhookFailed, Reject):
                wait_s = 0
            else:
                wait_s = 0
            assert 0 <= wait_s <= LONGEST_WAIT_S
            assert time.monotonic() - begun < TIMEOUT_S + SLACK_S

        run()
        assert all("410" in why for why in cancelled)
