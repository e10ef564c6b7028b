"""Listeners: everything from where they begin, in order, once; shared reading; bounded; nothing left behind."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.test import override_settings

import pubsub
from pubsub import publish, publish_many
from pubsub.errors import CannotResume, InvalidSubscription, PubSubError, UnknownTopic
from pubsub.models import Topic
from pubsub.streams import listen
from pubsub.streams.listener import Listener
from pubsub.streams.start import Position
from tests.sessions import Running, connect, wait_until

from .say import say_together as say

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def short_period() -> Iterator[None]:
    with override_settings(PUBSUB={"wait_period_ms": 50}):
        yield


def take(listener: Listener, count: int) -> list[Any]:
    taken = []
    for _ in range(count):
        event = listener.get(timeout=15)
        assert event is not None, f"only {taken} came"
        taken.append(event.payload)
    return taken


def test_it_begins_with_events_published_after_it_was_opened() -> None:
    say("before")
    with pubsub.listen("default") as events:
        say("first", "second", type="t", key="k", metadata={"m": 1}, host_id=1, user_id=2)
        event = events.get(timeout=15)
        assert event is not None
        assert (event.topic, event.offset, event.payload, event.type, event.key) == ("default", 2, "first", "t", "k")
        assert (event.metadata, event.host_id, event.user_id, event.group, event.attempt) == ({"m": 1}, "1", "2", "", 1)
        assert take(events, 1) == ["second"]
        assert events.get(timeout=0.01) is None


def test_it_numbers_events_if_no_sequencer_runs() -> None:
    with pubsub.listen("default") as events:
        with transaction.atomic():
            publish("default", "alone")
        assert take(events, 1) == ["alone"]


def test_asynchronous_code_iterates_too() -> None:
    async def follow() -> list[Any]:
        seen: list[Any] = []
        async with pubsub.listen("default", where={"payload__n__gte": 2}) as events:
            await asyncio.to_thread(Running(say, *({"n": n} for n in range(5))).result)
            async for event in events:
                seen.append(event.payload["n"])
                if len(seen) == 3:
                    break
        return seen

    assert asyncio.run(follow()) == [2, 3, 4]


def test_a_pattern_includes_topics_created_later() -> None:
    Topic.objects.create(name="stock")
    with pubsub.listen(["orders.*", "stock"]) as events:
        say(1, topic="orders.events")
        Topic.objects.create(name="orders.new")
        say(2, topic="orders.new")
        say("not", topic="default")
        say(3, topic="stock")
        got = [events.get(timeout=15) for _ in range(3)]
        assert [(event.topic, event.payload) for event in got if event] == [
            ("orders.events", 1),
            ("orders.new", 2),
            ("stock", 3),
        ]


def test_events_are_in_log_order_across_partitions() -> None:
    with pubsub.listen("default") as events:
        with transaction.atomic():
            publish_many("default", ({"payload": n, "key": n} for n in range(2000)))
        assert take(events, 2000) == list(range(2000))


def test_listeners_do_not_get_events_for_one_group() -> None:
    with pubsub.listen("default") as events:
        say("secret", to_group="billing")
        say("open")
        assert take(events, 1) == ["open"]


def test_it_begins_in_the_past_and_continues_without_a_gap() -> None:
    say(*range(1, 1501))
    with pubsub.listen("default", start=1000) as events, pubsub.listen("default", start="earliest") as whole:
        say(*range(1501, 1521))
        assert take(events, 521) == list(range(1000, 1521))
        assert take(whole, 1520) == list(range(1, 1521))
        say("live")
        assert take(events, 1) == take(whole, 1) == ["live"]


def test_it_may_begin_with_the_next_offset_but_not_further() -> None:
    say(1, 2, 3)
    with pubsub.listen("default", start=4) as events:
        say(4)
        assert take(events, 1) == [4]
    with pytest.raises(CannotResume, match="never existed"), pubsub.listen("default", start=6):
        pass
    with pytest.raises(CannotResume), pubsub.listen("*", start=Position(100)):
        pass


def test_a_dropped_offset_is_refused() -> None:
    say(*range(1, 8))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE log_sequencer SET next_position = 1000001")  # the next segment
    say(*range(8, 11))
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE log_entry DETACH PARTITION log_entry_1")
    try:
        with pytest.raises(CannotResume, match="dropped"), pubsub.listen("default", start=7):
            pass
        with pytest.raises(CannotResume, match="dropped"), pubsub.listen("*", start=Position(7)):
            pass
        with pubsub.listen("default", start=8) as events:
            assert take(events, 3) == [8, 9, 10]
        with pubsub.listen("*", start="earliest") as events:
            assert take(events, 3) == [8, 9, 10]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE log_entry ATTACH PARTITION log_entry_1 FOR VALUES FROM (1) TO (1000001)")


def test_a_slow_listener_catches_up_from_the_log_and_misses_nothing() -> None:
    with pubsub.listen("default", buffer=3) as slow, pubsub.listen("default") as quick:
        for n in range(0, 60, 10):
            say(*range(n, n + 10))
            assert take(quick, 10) == list(range(n, n + 10))
        assert len(slow._items) <= 3
        assert take(slow, 60) == list(range(60))
        say("live")
        assert take(slow, 1) == ["live"]
        assert slow.dropped == 0


def test_a_slow_listener_drops_the_oldest_if_it_asked_for_that() -> None:
    with pubsub.listen("default", buffer=3, overflow="drop_oldest") as events, pubsub.listen("default") as quick:
        say(*range(10))
        take(quick, 10)
        wait_until(lambda: events.dropped == 7, "seven were dropped")
        assert take(events, 3) == [7, 8, 9]


def test_distinct_filters_are_evaluated_once_however_many_share_them(record_property: Any) -> None:
    filters = [{"payload__n__gte": 1000 * n} for n in range(8)]
    listeners = [pubsub.listen("default", where=filters[n % 8], buffer=10) for n in range(4000)]
    reader = listen._readers["default"]
    wait_until(lambda: all(not listener.behind for listener in listeners), "all follow along")
    with pubsub.listen("default") as last:
        before, begun = reader.statements, time.perf_counter()
        for n in range(20):
            say({"n": n})
            take(last, 1)
        took = (time.perf_counter() - begun) / 20
        statements = (reader.statements - before) / 20
    wait_until(lambda: all(len(one._items) == 10 for one in listeners[::8]), "all that want them have them")
    assert not any(one._items for one in listeners[1::8])
    record_property("milliseconds_per_event_with_4000_listeners", round(took * 1000, 2))
    record_property("statements_per_event", statements)
    # A look at the tip and a range of the log for each event, and a little polling; not one for each listener.
    assert statements < 10
    assert len(reader._current) <= 9
    for listener in listeners:
        listener.close()


def test_closing_ends_iteration_and_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    listener = pubsub.listen("default")
    with listener:
        waiting = Running(list, listener)
        listener.close()
        assert waiting.result() == []
    wait_until(lambda: set(threading.enumerate()) <= before, "its thread has ended")
    assert _sessions() == 0
    with pubsub.listen("default") as events:
        say("again")
        assert take(events, 1) == ["again"]


def test_dropping_the_last_reference_is_enough() -> None:
    listener = pubsub.listen("default")
    listener.__enter__()
    assert _sessions() == 1
    del listener
    gc.collect()
    wait_until(lambda: _sessions() == 0, "its connection is closed")


def test_cancelling_a_task_is_clean() -> None:
    async def follow() -> None:
        async def wait_for_ever() -> None:
            async with pubsub.listen("default") as events:
                opened.set()
                async for _ in events:
                    pass

        opened = asyncio.Event()
        task = asyncio.create_task(wait_for_ever())
        await opened.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(follow())
    wait_until(lambda: _sessions() == 0, "its connection is closed")


def _sessions() -> int:
    with connect() as watcher:
        asked = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pubsub'"
        )
        (count,) = watcher.execute(asked).fetchone() or (0,)
    return int(count)


def test_a_lost_connection_loses_nothing() -> None:
    with pubsub.listen("default") as events, connect() as operator:
        say(1)
        assert take(events, 1) == [1]
        for n in range(2, 5):
            killed = operator.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'pubsub'"
            ).fetchone()
            assert killed == (1,)
            say(n)
            assert take(events, 1) == [n]


def test_a_permanent_database_error_is_raised() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE log_counter RENAME TO gone")
    try:
        with pytest.raises(psycopg.errors.UndefinedTable), pubsub.listen("default"):
            pass
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE gone RENAME TO log_counter")


def test_a_log_restored_to_an_older_state_is_noticed() -> None:
    say(1, 2, 3)
    with pubsub.listen("default") as events:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE log_sequencer SET next_position = 2")
        with pytest.raises(CannotResume, match="older state"):
            events.get(timeout=15)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"topics": []}, "must name"),
        ({"topics": "no topic"}, "cannot be the name"),
        ({"topics": "a ? *"}, "pattern"),
        ({"topics": "default", "start": "now"}, "start must be"),
        ({"topics": "default", "start": 0}, "start must be"),
        ({"topics": "default", "start": True}, "start must be"),
        ({"topics": "def*", "start": 5}, "one topic"),
        ({"topics": "default", "buffer": 0}, "buffer must be"),
        ({"topics": "default", "overflow": "explode"}, "overflow must be"),
        ({"topics": "default", "where": {"tpye": "a"}}, "Did you mean"),
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(PubSubError, match=expected):
        pubsub.listen(**arguments)
    assert not listen._readers


def test_an_unknown_topic_is_refused_when_it_is_opened() -> None:
    with pytest.raises(UnknownTopic, match='mean "default"'), pubsub.listen("defualt"):
        pass
    assert issubclass(InvalidSubscription, PubSubError)
