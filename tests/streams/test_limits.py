"""What one listener or client may cost the others: memory, time, parameters, and an unreadable event."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, connections
from django.test import override_settings

import pubsub
from pubsub.errors import UnreadableEvent
from pubsub.streams import listen
from pubsub.streams.catch_up import choose
from pubsub.streams.compose import PARAMETERS, chunks
from pubsub.streams.scan import MOST_BYTES, SLOW_S, Interest, ReadSize, Scanner
from pubsub.subscriptions.filters import compile
from tests.sessions import connect, connected_to, wait_until

from .say import say_together as say
from .say import store

pytestmark = pytest.mark.django_db(transaction=True)

TOO_LONG = '{"n": 1' + "0" * 5000 + "}"
TOO_DEEP = "[" * 1500 + "]" * 1500


@pytest.fixture(autouse=True)
def short_period() -> Iterator[None]:
    with override_settings(PUBSUB={"wait_period_ms": 50}):
        yield


@pytest.mark.parametrize("payload", [TOO_LONG, TOO_DEEP])
def test_an_event_that_python_cannot_represent_fails_alone(payload: str) -> None:
    with pubsub.listen("default") as events, pubsub.listen("orders.events") as others:
        say("before")
        store(payload)
        say("behind")
        say("other", topic="orders.events")
        assert next(events).payload == "before"
        with pytest.raises(UnreadableEvent, match='offset 2 of topic "default"'):
            next(events)
        assert next(events).payload == "behind"
        assert next(others).payload == "other"
    with pubsub.listen("*", start="earliest") as new:
        assert next(new).payload == "before"


def test_a_buffer_holds_so_many_bytes() -> None:
    with pubsub.listen("default", buffer_bytes=100_000) as slow, pubsub.listen("default") as quick:
        for n in range(40):
            say({"n": n, "values": [{}] * 500})
            assert quick.get(timeout=15) is not None
        assert 1 <= len(slow._items) < 40
        assert sum(item.size for item in slow._items) <= 100_000
        taken = [slow.get(timeout=15) for _ in range(40)]
        assert [event.payload["n"] for event in taken if event] == list(range(40))
    with pubsub.listen("default", start="earliest", buffer_bytes=1) as events:
        assert next(events).payload["n"] == 0  # one always fits


def test_a_read_ends_where_its_events_are_large() -> None:
    say(*({"n": n, "values": [{}] * 60_000} for n in range(6)))
    say(*range(10))
    with connect() as session:
        scanner = Scanner(session)
        tip = scanner.tip()
        interest = Interest(("default",), compile(None))
        position, counts, sizes = 1, [], []
        while position < tip.position:
            matches, position = scanner.read([interest], tip, position, tip.position)
            counts.append(len(matches))
            sizes.append(sum(match.item.size for match in matches[:-1]))
        assert sum(counts) == 16
        assert len(counts) > 3
        assert max(sizes) < MOST_BYTES
        assert session.execute("SELECT 1").fetchone() == (1,)  # what was not read does not stand in its way


def test_one_statement_has_only_so_many_parameters() -> None:
    wheres: list[dict[str, Any]] = [{"any": [{"payload__a": m, "key": n}] * 500} for m in range(3) for n in range(9)]
    interests = [Interest(("default",), compile(where)) for where in wheres]
    for some in chunks(interests):
        assert sum(one.parameters for one in some) <= PARAMETERS or len(some) == 1
    options = {**connections["default"].settings_dict["OPTIONS"], "server_side_binding": True}
    with connected_to(OPTIONS=options):
        wheres = [{"any": [{"key": str(k)} for k in range(6000)], "type": f"t{n}"} for n in range(12)]
        listeners = [pubsub.listen("default", where=where) for where in wheres]
        wait_until(lambda: all(one.opened_at for one in listeners), "all are open")
        for n in range(12):
            say(n, type=f"t{n}", key="5999")
        for n, one in enumerate(listeners):
            assert next(one).payload == n
        for one in listeners:
            one.close()


def test_a_costly_filter_is_evaluated_apart_from_the_others() -> None:
    costly = {"any": [{"payload__text__contains": f"{n} "} for n in range(60)]}
    with pubsub.listen("default", where=costly) as events, pubsub.listen("default", where={"type": "t"}) as light:
        reader = listen._readers["default"]
        for n in range(30):
            say({"text": f"{n} "}, type="t")
            event = light.get(timeout=15)
            assert event is not None
            assert [interest.is_costly for interest in reader._current] == [False]
        taken = [events.get(timeout=15) for _ in range(30)]
        assert [event.payload["text"] for event in taken if event] == [f"{n} " for n in range(30)]
        tip = reader.reached
        assert tip is not None
        # It is known of it, too, how far it has come: a quiet stream need not be read again.
        say({"text": "not"})
        wait_until(
            lambda: events.passed and events.passed.position > tip.position, "it has passed what it did not want"
        )


def test_with_a_costly_filter_the_oldest_are_dropped_too() -> None:
    costly = {"any": [{"payload": n} for n in range(30)]}
    with pubsub.listen("default", where=costly, buffer=3, overflow="drop_oldest") as events:
        wait_until(lambda: events.reached, "it follows along")
        say(*range(10))
        wait_until(lambda: events.dropped == 7, "seven were dropped")
        assert [next(events).payload for _ in range(3)] == [7, 8, 9]


def test_who_is_far_behind_does_not_keep_others_waiting() -> None:
    say(*range(3000))
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(position) FROM log_entry")
        (last,) = cursor.fetchone()
    far = pubsub.listen("default", start="earliest", buffer=10_000)
    near = pubsub.listen("default", start=2900, buffer=10_000)
    wait_until(lambda: near._items or far._items, "one of them is read for")
    wait_until(lambda: len(far._items) == 3000 and len(near._items) == 101, "both have come to the tip")
    assert last == 3000
    far.close()
    near.close()


def test_what_takes_long_is_read_in_smaller_pieces() -> None:
    size = ReadSize(least=1)
    before = size.positions
    size.adapt(0, SLOW_S * 2)
    assert size.positions == before // 2
    for _ in range(20):
        size.adapt(0, SLOW_S * 2)
    assert size.positions == 1
    size.adapt(1, 0.0)
    assert size.positions == 2


def test_a_role_that_may_only_read_listens() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP ROLE IF EXISTS pubsub_test_reader")
        cursor.execute("CREATE ROLE pubsub_test_reader")
        cursor.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO pubsub_test_reader")
    options = connections["default"].settings_dict["OPTIONS"]
    try:
        with connected_to(OPTIONS={**options, "assume_role": "pubsub_test_reader"}), pubsub.listen("default") as events:
            with connect() as owner:
                owner.execute("INSERT INTO outbox_message_t (payload) VALUES ('1')")
                owner.execute("SELECT pubsub_sequence_v1()")
            assert next(events).payload == 1
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP OWNED BY pubsub_test_reader; DROP ROLE pubsub_test_reader")


def test_a_session_that_may_only_read_listens() -> None:
    known = connections["default"].settings_dict["OPTIONS"]
    options = f"{known.get('options', '')} -c default_transaction_read_only=on"
    with connected_to(OPTIONS={**known, "options": options}), pubsub.listen("default") as events:
        with connect() as owner:
            owner.execute("SET default_transaction_read_only = off")
            owner.execute("INSERT INTO outbox_message_t (payload) VALUES ('1')")
            owner.execute("SELECT pubsub_sequence_v1()")
        assert next(events).payload == 1


def test_eight_costly_clients_do_not_delay_the_others(record_property: Any) -> None:
    """Filters as large as a request may have, on payloads of a megabyte, which each condition reads again."""
    costly = [{"any": [{"payload__text__contains": f"{m} {n} "} for n in range(40)]} for m in range(8)]
    listeners = [pubsub.listen("default", where=where) for where in costly]
    _, chosen = choose(listeners, 1, 1)
    assert len(chosen) == 1, "one statement has the filter of one of them"
    reader = listen._readers["default"]
    with pubsub.listen("default", where={"type": "t"}) as light:
        wait_until(lambda: all(one.opened_at for one in listeners), "all are open")
        begun = time.perf_counter()
        for _ in range(2):
            say({"text": "x" * 1_000_000}, type="t")
            assert light.get(timeout=15) is not None
        record_property("seconds_per_event_beside_costly_filters", round((time.perf_counter() - begun) / 2, 3))
        assert len(reader._current) == 1
    for one in listeners:
        one.close()
