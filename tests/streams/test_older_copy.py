"""A database restored to an older state that has grown since: readers of the lost events learn it."""

import json
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import override_settings

import pubsub
from pubsub.errors import CannotResume
from pubsub.streams import listen
from tests.sessions import connect, wait_until

from .say import say
from .stream_client import Server, Stream, serving

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(transactional_db: None) -> Iterator[Server]:
    with serving() as running:
        yield running


def lose_all_behind(offset: int) -> None:
    """The log as a copy has it that was made when `offset` was its tip."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM log_entry WHERE c_offset > %s", [offset])
        cursor.execute("DELETE FROM outbox_message_t WHERE id NOT IN (SELECT message_id FROM log_entry)")
        cursor.execute("UPDATE log_counter SET next_offset = %s", [offset + 1])
        cursor.execute("UPDATE log_sequencer SET next_position = %s", [offset + 1])


@pytest.mark.parametrize("address", ["/default/", "/all/"])
def test_a_client_that_has_read_lost_events_learns_it(server: Server, address: str) -> None:
    say(1)
    stream = Stream(server, address, start="earliest")
    assert stream.take(1) == [1]
    shared = stream.last_id
    say(2, 3)
    assert stream.take(2) == [2, 3]
    stream.cut()
    lose_all_behind(1)
    say("other 2", "other 3", "other 4")
    assert Stream(server, address, last_id=stream.last_id).status == 204
    assert Stream(server, address, last_id=shared).take(3) == ["other 2", "other 3", "other 4"]


@pytest.mark.parametrize("address", ["/default/", "/all/"])
def test_also_one_whose_stream_was_silent(server: Server, address: str) -> None:
    rare = json.dumps({"type": "rare"})
    begun = Stream(server, address, where=rare).open()
    say(1)
    late = Stream(server, address, where=rare).open()
    say(2, 3)
    while not (begun.last_id or "").removeprefix("@").startswith("3-"):
        begun.wait_for_comment()
    for stream in (begun, late):
        stream.cut()
    lose_all_behind(1)
    say("other 2", "other 3", type="rare")
    assert Stream(server, address, last_id=begun.last_id, where=rare).status == 204
    assert Stream(server, address, last_id=late.last_id, where=rare).take(2) == ["other 2", "other 3"]


def test_a_listener_learns_that_its_connection_returned_to_another_log() -> None:
    with override_settings(PUBSUB={"wait_period_ms": 50}), pubsub.listen("default") as events, connect() as operator:
        say(1)
        assert next(events).payload == 1
        reader = listen._readers["default"]
        operator.execute("UPDATE outbox_message_t SET event_id = gen_random_uuid()")  # as long, and yet another one
        operator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'pubsub'"
        )
        with pytest.raises(CannotResume, match="older state"):
            next(events)
        with pubsub.listen("default", start=1) as again:
            assert next(again).payload == 1
        wait_until(lambda: not reader._behind, "the one that failed is not read for")
