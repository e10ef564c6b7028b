"""Streams of events over a real server: exact over every break, bounded, and closed unless a permission opens them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import AsyncClient, Client

from pubsub import checks, publish
from pubsub.models import Topic
from pubsub.sequencing.sequencer import sequence
from tests.sessions import Running, wait_until

from .say import say
from .stream_client import Server, Stream, serving

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(transactional_db: None) -> Iterator[Server]:
    with serving() as running:
        yield running


def number_of(stream: Stream) -> str:
    """The offset in an id, without the mark of the event there."""
    return (stream.last_id or "").partition("-")[0]


def test_events_as_they_are_published(server: Server) -> None:
    say("before")
    stream = Stream(server, "/default/").open()
    assert (stream.status, number_of(stream)) == (200, "1")
    assert stream.response.getheader("Content-Type") == "text/event-stream"
    assert "no-cache" in (stream.response.getheader("Cache-Control") or "")
    say({"n": 1, "text": "zwei\nZeilen\r\u2028"}, type="t", key="k", metadata={"m": 1}, host_id=3, user_id=4)
    event = next(stream.events())
    assert event["payload"] == {"n": 1, "text": "zwei\nZeilen\r\u2028"}
    assert [event[name] for name in ("topic", "offset", "type", "key", "metadata", "host_id", "user_id")] == [
        *("default", 2, "t", "k", {"m": 1}, "3", "4")
    ]
    assert number_of(stream) == "2"


def test_what_is_redacted_is_sent_only_where_the_view_says_raw(server: Server) -> None:
    streams = {path: Stream(server, f"/{path}/").open() for path in ("default", "raw")}
    say({"card": "4111", "total": 1.5}, metadata={"card": "x"})
    seen = {path: next(stream.events()) for path, stream in streams.items()}
    assert seen["default"]["payload"] == {"card": "[redacted]", "total": 1.5}
    assert seen["default"]["metadata"] == {"card": "[redacted]"}
    assert (seen["raw"]["payload"], seen["raw"]["metadata"]) == ({"card": "4111", "total": 1.5}, {"card": "x"})


REDACTED_FILTERS = [
    {"payload__card__startswith": "4"},
    {"payload__card__isnull": True},
    {"metadata__card__exact": "x"},
    {"payload__card__number__in": ["4111"]},
    {"payload__contains": {"card": "4111"}},
    {"payload": {"card": "4111", "total": 1.5}},
    {"any": [{"type": "paid"}, {"not": {"payload__card__gte": "4"}}]},
]


def test_what_is_redacted_cannot_be_guessed_by_filters(server: Server) -> None:
    for where in REDACTED_FILTERS:
        refused = Stream(server, "/default/", where=json.dumps(where))
        assert refused.status == 400, where
        assert "compares what is redacted here" in refused.response.read().decode()
        assert Stream(server, "/raw/", where=json.dumps(where)).status == 200
    streams = [
        Stream(server, "/default/", where=json.dumps(where)).open()
        for where in ({"payload__total__gte": 1}, {"payload__contains": {"total": 1.5}}, {"payload__isnull": False})
    ]
    say({"card": "4111", "total": 1.5})
    assert [next(stream.events())["payload"]["total"] for stream in streams] == [1.5] * 3


def test_after_every_disconnect_it_continues_exactly_where_it_was(server: Server) -> None:
    """A publisher goes on all the time; the connection is cut anywhere, and so is the server."""
    total = 400

    def publish_all() -> None:
        for n in range(total):
            say(n)

    stream = Stream(server, "/default/").open()
    publisher = Running(publish_all)
    seen: list[int] = []
    breaks = 0
    while len(seen) < total:
        assert stream.status == 200
        coming = stream.events()
        for _ in range(37):
            seen.append(next(coming)["payload"])
            if len(seen) == total:
                break
        stream.cut()
        breaks += 1
        if breaks == 4:
            server.kill()
            server.start()
        if breaks == 7:
            server.stop()
            server.start()
        stream = Stream(server, "/default/", last_id=stream.last_id)
    publisher.result()
    assert seen == list(range(total))


def test_a_connection_cut_before_the_first_event_misses_none(server: Server) -> None:
    stream = Stream(server, "/default/").open()
    stream.cut()
    say(1, 2)
    assert Stream(server, "/default/", last_id=stream.last_id).take(2) == [1, 2]


def test_several_topics_have_an_id_of_their_own(server: Server) -> None:
    stream = Stream(server, "/all/").open()
    assert stream.last_id == "@0"
    for n in range(6):
        say(n, topic=("default", "orders.events")[n % 2])
    assert stream.take(4) == [0, 1, 2, 3]
    stream.cut()
    again = Stream(server, "/all/", last_id=stream.last_id)
    Topic.objects.create(name="later")
    say(6, topic="later")
    assert again.take(3) == [4, 5, 6]
    orders = Stream(server, "/all/", start="earliest", topic="orders.*")
    assert orders.take(3) == [1, 3, 5]


def test_heartbeats_fill_silence_and_move_the_id(server: Server) -> None:
    stream = Stream(server, "/default/", where=json.dumps({"type": "rare"})).open()
    say(*range(20), type="common")
    while number_of(stream) != "20":
        stream.wait_for_comment()
    stream.cut()
    say("found", type="rare")
    assert Stream(server, "/default/", last_id=stream.last_id, where=json.dumps({"type": "rare"})).take(1) == ["found"]


def test_a_stream_is_bounded_and_the_next_one_continues(server: Server) -> None:
    say(*range(8))
    stream = Stream(server, "/short/", start="earliest")
    assert [event["payload"] for event in stream.events()] == [0, 1, 2]
    stream = Stream(server, "/short/", last_id=stream.last_id, start="earliest")
    assert [event["payload"] for event in stream.events()] == [3, 4, 5]
    assert list(Stream(server, "/brief/").events()) == []


def test_a_client_that_reads_slowly_misses_nothing(server: Server) -> None:
    stream = Stream(server, "/default/").open()
    with transaction.atomic():
        for n in range(600):
            publish("default", {"n": n, "filling": "x" * 20_000})
    sequence("default")
    assert [payload["n"] for payload in stream.take(600)] == list(range(600))


@pytest.mark.parametrize("last_id", ["100", "@1", "nonsense", "-1", "9" * 30])
def test_an_invalid_id_cannot_be_resumed(server: Server, last_id: str) -> None:
    say(1)
    assert Stream(server, "/default/", last_id=last_id).status == 204


def test_a_dropped_offset_cannot_be_resumed(server: Server) -> None:
    say(1, 2)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE log_entry")
    say(3)
    assert Stream(server, "/default/", last_id="1").status == 204
    assert Stream(server, "/default/", last_id="2").take(1) == [3]


def test_permission_opens_and_limits(server: Server) -> None:
    assert Stream(server, "/closed/").status == 403
    assert Stream(server, "/own/").status == 403
    assert Stream(server, "/method/").status == 403
    say("others", user_id="2")
    say("own", user_id="1")
    say("own, too", user_id="1", type="t")
    say("directed", user_id="1", to_group="billing")
    say("method", user_id="1")
    mine = {"user": "1", "start": "earliest"}
    assert Stream(server, "/own/", **mine).take(3) == ["own", "own, too", "method"]
    assert Stream(server, "/own/", where='{"type": "t"}', **mine).take(1) == ["own, too"]
    widened = {"any": [{"user_id": "2"}, {"payload": "method"}]}
    assert Stream(server, "/own/", where=json.dumps(widened), **mine).take(1) == ["method"]
    assert Stream(server, "/method/", secret="", start="5").take(1) == ["method"]


@pytest.mark.parametrize(
    ("address", "query", "expected"),
    [
        ("/default/", {"where": "{"}, "filter as JSON"),
        ("/default/", {"where": "[1]"}, "filter as JSON"),
        ("/default/", {"where": '{"tpye": 1}'}, "Did you mean"),
        ("/default/", {"start": "soon"}, "start must be"),
        ("/default/", {"start": "0"}, "start must be"),
        ("/all/", {"start": "5"}, "one topic"),
        ("/default/", {"topic": "orders.events"}, "no topic 'orders.events' here"),
        ("/default/", {"topic": "*"}, "no topic '*' here"),
        ("/all/", {"topic": "defualt"}, 'Did you mean "default"'),
        ("/orders/default/", {}, "no topic 'default' here"),
        ("/of/*/", {}, "cannot be the name"),
    ],
)
def test_an_invalid_request_is_explained(server: Server, address: str, query: dict[str, str], expected: str) -> None:
    stream = Stream(server, address, **query)
    assert stream.status == 400
    assert expected in stream.response.read().decode()


def test_the_url_chooses_the_topic(server: Server) -> None:
    say(1, topic="orders.events")
    assert Stream(server, "/of/orders.events/", start="1").take(1) == [1]
    assert Stream(server, "/orders/orders.events/", start="1").take(1) == [1]


def test_cut_streams_leave_nothing_behind(server: Server) -> None:
    streams = [Stream(server, "/default/").open() for _ in range(20)]
    assert _sessions() == 1
    for stream in streams:
        stream.cut()
    wait_until(lambda: _sessions() == 0, "the server has closed what it read by")


def test_streams_beyond_the_limit_are_refused(server: Server) -> None:
    streams = [Stream(server, "/default/").open() for _ in range(20)]
    refused = Stream(server, "/default/")
    assert (refused.status, refused.response.getheader("Retry-After")) == (503, "30")
    assert Stream(server, "/closed/").status == 403  # one that may not follow does not learn how busy it is
    streams.pop().cut()

    def there_is_room() -> bool:
        again = Stream(server, "/default/", start="soon")  # what is asked wrongly takes no room itself
        return again.status == 400

    wait_until(there_is_room, "there is room again")
    say("still served")
    assert Stream(server, "/default/", start="earliest").take(1) == ["still served"]
    assert [stream.take(1) for stream in streams] == [["still served"]] * 19


def _sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pubsub'"
        )
        return int(cursor.fetchone()[0])


def test_the_projects_own_stream_needs_a_permission() -> None:
    user = User.objects.create(username="reader")

    async def follow() -> None:
        client = AsyncClient()
        assert (await client.get("/events/")).status_code == 403
        await client.aforce_login(user)
        assert (await client.get("/events/")).status_code == 403
        await user.user_permissions.aadd(await Permission.objects.aget(codename="view_outboxmessage"))
        assert (await client.get("/events/")).status_code == 403  # the admin would hide the payloads
        await user.user_permissions.aadd(await Permission.objects.aget(codename="view_payload_outboxmessage"))
        response = await client.get("/events/", {"start": "earliest"})
        assert response.status_code == 200
        body = response.streaming_content
        assert "retry: 1000" in (await anext(body)).decode()
        await body.aclose()

    async_to_sync(follow)()


def test_a_wsgi_server_is_refused(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    response = client.get("/events/")
    assert response.status_code == 501
    assert b"uvicorn" in response.content


def test_a_project_without_asgi_is_warned(settings: Any) -> None:
    assert checks.check_event_streams() == []  # this project has an asgi.py
    settings.ASGI_APPLICATION = None
    settings.ROOT_URLCONF = "tests.streams.stream_urls"
    (warning,) = checks.check_event_streams()
    assert warning.id == "pubsub.W011"
    settings.ASGI_APPLICATION = "project.asgi.application"
    assert checks.check_event_streams() == []
    settings.ASGI_APPLICATION = None
    settings.ROOT_URLCONF = "django.contrib.auth.urls"  # leads to no stream
    assert checks.check_event_streams() == []
