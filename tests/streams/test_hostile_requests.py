"""Whatever a client asks a stream for, it gets a stream or a refusal, and all others go on."""

import json
import socket
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import strategies as st

from tests.hostile import any_text, attack, names_anything, values
from tests.sessions import wait_until

from .say import say
from .stream_client import Server, Stream, serving

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long, names_anything]

BUSY = 503
fields = st.sampled_from(["type", "key", "payload__a", "payload__a__0", "created_at", "user_id", "metadata__x", "all"])
operators = st.sampled_from(["", "__in", "__gt", "__lte", "__startswith", "__contains", "__isnull", "__regex", "__"])
conditions = st.recursive(
    st.dictionaries(
        st.builds(lambda field, operator: field + operator, fields, operators) | any_text, values, max_size=3
    ),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["all", "any", "not", "none"]), st.one_of(inner, st.lists(inner, max_size=3))),
    ),
    max_leaves=6,
)


def as_json(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):
        return "{"


ids = st.one_of(
    st.from_regex(r"@?[0-9]{1,20}(-[0-9a-f]{8})?", fullmatch=True),
    any_text,
    st.sampled_from(["1-00000000", "@0", "-1"]),
)
topics = st.one_of(st.sampled_from(["default", "orders.events", "*", "or*", "[a-z]*"]), any_text)
asked = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.lists(topics, max_size=3),
        "start": st.one_of(st.sampled_from(["latest", "earliest", "1", "999999999999999999"]), any_text),
        "where": st.one_of(conditions.map(as_json), any_text, st.sampled_from(["[" * 9000, '{"all":' * 1600])),
        "last_event_id": ids,
    },
)
paths = st.one_of(
    st.sampled_from(["/default/", "/all/", "/own/", "/orders/orders.events/"]),
    any_text.map(lambda topic: f"/of/{quote(topic[:500], safe='', errors='surrogatepass')}/"),
)
headers = st.one_of(st.none(), ids, st.binary(max_size=30))


def status_of(server: Server, path: str, query: dict[str, Any], last_id: str | bytes | None) -> int:
    """As a program that follows no rules would ask."""
    target = f"{path}?{urlencode(query, doseq=True, errors='surrogatepass')}"[:60_000]
    request = f"GET {target} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n".encode("ascii")
    if last_id is not None:
        given = last_id if isinstance(last_id, bytes) else last_id.encode(errors="surrogatepass")
        request += b"Last-Event-ID: " + given.replace(b"\n", b" ").replace(b"\r", b" ")[:20_000] + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.sendall(request + b"\r\n")
        answer = client.recv(4096)
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer.split()[1])


@pytest.mark.timeout(180)
def test_any_request() -> None:
    with serving() as server:
        say(1)
        other = Stream(server, "/default/").open()

        @attack(1500, path=paths, query=asked, last_id=headers)
        def run(path: str, query: dict[str, Any], last_id: str | bytes | None) -> None:
            status = BUSY
            while status == BUSY:  # the streams before are about to end
                status = status_of(server, path, query, last_id)
            assert status in (200, 204, 400, 403, 404, 431), status

        run()
        say("still there")
        assert next(other.events())["payload"] == "still there"
        again = wait_until(lambda: Stream(server, "/default/", start="earliest"), "there is room")
        assert again.take(1) == [1]
