"""What a client may cost the server and the other clients, over a real server: time, room, filters, bad events."""

import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import AsyncClient, override_settings

from pubsub.models import Topic
from tests.sessions import wait_until

from .say import say_together as say
from .say import store
from .stream_client import Server, Stream, serving

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(transactional_db: None) -> Iterator[Server]:
    with serving() as running:
        yield running


def test_an_event_that_is_no_json_is_named_and_passed(server: Server) -> None:
    """It stops no other stream, and no new one; who comes back continues behind it."""
    stream, other = Stream(server, "/default/").open(), Stream(server, "/all/").open()
    say("before")
    store('{"n": 1' + "0" * 5000 + "}")
    store("[" * 1500 + "]" * 1500)
    say("behind")
    say("other", topic="orders.events")
    # Either as it is, or named in an event of its own. (What can be represented is for the decoder to say.)
    lines = iter(lambda: stream.response.readline().decode().strip(), None)
    seen = list(itertools.takewhile(lambda line: '"behind"' not in line, lines))
    assert [line.partition("-")[0] for line in seen if line.startswith("id: ")] == ["id: 1", "id: 2", "id: 3", "id: 4"]
    coming = other.events()
    while next(coming)["topic"] != "orders.events":
        pass
    again = Stream(server, "/default/", last_id="3")
    assert again.take(1) == ["behind"]


def test_a_client_that_does_not_read_is_cut_off(server: Server) -> None:
    """When its time is over, another client may open a stream."""
    idle = [_open_without_reading(server) for _ in range(20)]
    assert Stream(server, "/default/").status == 503
    for _ in range(6):
        say("x" * 1_000_000)
    wait_until(lambda: Stream(server, "/default/", start="soon").status == 400, "there is room again", 30)
    assert Stream(server, "/default/", start=6).status == 200
    for one in idle:
        one.close()


def _open_without_reading(server: Server) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", server.port))
    client.sendall(b"GET /unread/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert client.recv(1) == b"H"
    return client


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"where": json.dumps({"key__in": ["x" * 100] * 99})}, "10,309 characters"),
        ({"where": json.dumps({"any": [{"payload__a__contains": n} for n in range(150)]})}, "compares too much"),
        ({"topic": [f"a{n}" for n in range(101)]}, "topic is given 101 times"),
    ],
)
def test_a_request_may_ask_for_little_at_a_time(server: Server, query: dict[str, Any], expected: str) -> None:
    stream = Stream(server, "/all/", **query)
    assert stream.status == 400
    assert expected in stream.response.read().decode()


def test_a_topic_that_is_not_there_is_answered_with_those_of_the_view(server: Server) -> None:
    Topic.objects.create(name="secret.plans")
    stream = Stream(server, "/orders/orders.no/")
    assert (stream.status, stream.response.read().decode()) == (
        400,
        'There is no topic "orders.no" here. Did you mean "orders.events"?\n',
    )
    for address in ("/orders/orders.zzzzzzzzz/", "/of/zzz/"):
        assert "secret" not in Stream(server, address).response.read().decode()


def test_one_user_has_only_so_many_streams(server: Server) -> None:
    streams = [Stream(server, "/users/", user="1").open() for _ in range(5)]
    refused = Stream(server, "/users/", user="1")
    assert (refused.status, refused.response.getheader("Retry-After")) == (429, "30")
    assert Stream(server, "/users/", user="2").status == 200
    assert [Stream(server, "/users/").status for _ in range(6)] == [200] * 6  # of users that are not known
    streams.pop().cut()
    wait_until(lambda: Stream(server, "/users/", user="1", start="soon").status == 400, "there is room again")
    assert Stream(server, "/users/", user="1").status == 200


def test_a_user_is_who_has_signed_in() -> None:
    user = User.objects.create_superuser("root")

    async def follow() -> None:
        client = AsyncClient()
        await client.aforce_login(user)
        first = await client.get("/events/", {"start": "earliest"})
        assert first.status_code == 200
        assert (await client.get("/events/", {"start": "earliest"})).status_code == 429

    with override_settings(PUBSUB={"max_streams_per_user": 1}):
        async_to_sync(follow)()
