"""Handlers that do what they must not: it costs their own events, and no other effects are lost or repeated."""

import asyncio
import random
import string
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from pubsub import Event
from pubsub.events import LONGEST_TEXT
from pubsub.models import DeadLetter
from tests.handlers import declare, drain

from .helpers import claims, consumer, effects, lag, note, publish_each, publish_together, states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work", "effects_table")]


def sql(statement: str) -> Callable[[], Any]:
    return lambda: connection.cursor().execute(statement)


def swallow(what: Callable[[], Any]) -> Callable[[], Any]:
    def call() -> None:
        try:
            what()
        except Exception:
            return

    return call


def swallow_in_savepoint() -> None:
    try:
        with transaction.atomic():
            sql("SELECT 1 / 0")()
    except Exception:
        return


def set_role() -> None:
    sql("SET ROLE pg_read_all_data")()


def raise_(error: BaseException) -> Callable[[], Any]:
    def call() -> None:
        raise error

    return call


MISDEEDS: dict[str, Callable[[], Any]] = {
    "commits by SQL": sql("COMMIT"),
    "commits in lower case": sql("  commit work"),
    "commits behind a comment": sql("/* now */ -- really\n COMMIT"),
    "commits in a second statement": sql("SELECT 1; COMMIT"),
    "rolls back by SQL": sql("ROLLBACK"),
    "ends": sql("END"),
    "prepares": sql("PREPARE TRANSACTION 'mine'"),
    "commits by Django": lambda: connection.commit(),
    "rolls back by Django": lambda: connection.rollback(),
    "commits by psycopg": lambda: connection.connection.commit(),
    "rolls back by psycopg": lambda: connection.connection.rollback(),
    "closes by Django": lambda: connection.close(),
    "closes by psycopg": lambda: connection.connection.close(),
    "leaves a broken transaction": swallow(sql("SELECT 1 / 0")),
    "says that all is to be undone": lambda: transaction.set_rollback(True),
    "moves the search path": sql("SET search_path TO nowhere"),
    "becomes a read-only role": set_role,
    "leaves the process": raise_(SystemExit(1)),
    "is cancelled": raise_(asyncio.CancelledError()),
    "uses a cursor that is closed": lambda: _closed_cursor().execute("SELECT 1"),
    "runs out of memory": raise_(MemoryError()),
    "recurses without end": lambda: _recurse(0),
    "commits in bytes": lambda: connection.connection.execute(b"COMMIT"),
    "commits as SQL of psycopg's": lambda: connection.connection.cursor().execute(psycopg.sql.SQL("COMMIT")),
    "hides the table of cursors": sql("CREATE TEMPORARY TABLE consumer_offsets (id integer)"),
    "hides it by one alike": sql("CREATE TEMPORARY TABLE consumer_offsets AS SELECT * FROM consumer_offsets LIMIT 0"),
    "ends its generator": raise_(GeneratorExit()),
}


def _closed_cursor() -> Any:
    cursor = connection.cursor()
    cursor.close()
    return cursor


def _recurse(depth: int) -> int:
    return _recurse(depth + 1) + 1


@pytest.mark.parametrize("name", MISDEEDS)
def test_transactional_effects_of_the_others_exactly_once(name: str) -> None:
    publish_each(1)
    publish_together(2, "bad", 3)
    publish_each(4, 5)

    def handler(event: Event) -> None:
        note(event.payload)
        if event.payload == "bad":
            MISDEEDS[name]()
            if name.startswith(("commits", "rolls", "ends")):
                note("after")

    drain(declare(handler, topic="work"), wait_period_ms=1)
    assert effects() == [1, 4, 5]
    assert states() == [(2, "dead"), ("bad", "dead"), (3, "dead")]
    assert (lag(), claims()) == (0, [])


def test_a_long_transaction_fails_as_a_whole_if_only_the_next_read_shows_the_fault() -> None:
    def break_it_silently(event: Event) -> None:
        if event.payload == 5:
            swallow(sql("SELECT 1 / 0"))()

    publish_together(*range(300))
    publish_each("after")

    drain(declare(break_it_silently, topic="work"), batch_size=20)

    assert states() == [(n, "dead") for n in range(300)]
    assert lag() == 0


@pytest.mark.parametrize(
    "name", ["commits by SQL", "closes by Django", "moves the search path", "rolls back by psycopg"]
)
def test_the_same_in_a_retry(name: str) -> None:
    publish_each("bad", 1)
    attempts: list[int] = []

    def handler(event: Event) -> None:
        note(event.payload)
        if event.payload == "bad":
            attempts.append(event.attempt)
            if event.attempt == 1:
                raise ValueError
            MISDEEDS[name]()

    drain(declare(handler, topic="work", retry=[0]), wait_period_ms=1)
    assert effects() == [1]
    assert states() == [("bad", "dead")]
    assert DeadLetter.objects.get().attempts == 2
    assert attempts[-1] == 2


@pytest.mark.parametrize("name", ["moves the search path", "becomes a read-only role"])
def test_a_fault_that_shows_when_the_cursor_moves_is_the_last_events(name: str) -> None:
    publish_each(1, "bad")

    def handler(event: Event) -> None:
        note(event.payload)
        if event.payload == "bad":
            MISDEEDS[name]()

    drain(declare(handler, topic="work"), wait_period_ms=1)
    assert effects() == [1]
    assert states() == [("bad", "dead")]
    assert lag() == 0


HARMLESS: dict[str, Callable[[], Any]] = {
    "rolls back to a savepoint": lambda: [sql(each)() for each in ("SAVEPOINT s", "ROLLBACK TO s", "RELEASE s")],
    "rolls back to one in other words": lambda: [
        sql(each)() for each in ("SAVEPOINT s", "rollback work to savepoint s", "RELEASE s")
    ],
    "speaks of it": sql("SELECT 'a; COMMIT', $q$; ROLLBACK$q$, 1 AS \"; END\""),
    "fails in a savepoint": swallow_in_savepoint,
    "is refused and goes on": swallow(sql("COMMIT")),
    "gives up a savepoint by exception": lambda: swallow(lambda: _give_up())(),
    "asks case by case": sql("SELECT CASE WHEN true THEN 1 END; SELECT 2"),
}


def _give_up() -> None:
    with transaction.atomic():
        note("undone")
        raise ValueError


@pytest.mark.parametrize("name", HARMLESS)
def test_what_a_handler_may_do(name: str) -> None:
    publish_each(1, "does", 2)

    def handler(event: Event) -> None:
        if event.payload == "does":
            HARMLESS[name]()
        note(event.payload)

    drain(declare(handler, topic="work"))
    assert effects() == [1, "does", 2]
    assert states() == []


@pytest.mark.parametrize("name", ["commits by SQL", "closes by psycopg", "moves the search path", "is cancelled"])
def test_at_least_once_no_misbehaviour_holds_up_the_others(name: str) -> None:
    publish_each(1, "bad", 2)

    def handler(event: Event) -> None:
        if event.payload == "bad":
            MISDEEDS[name]()
        note(event.payload)

    drain(declare(handler, topic="work", delivery="at_least_once"), wait_period_ms=1)
    done = effects()
    assert [payload for payload in done if payload != "bad"] == [1, 2]
    assert done.count("bad") + len(states()) == 1
    assert (lag(), claims()) == (0, [])


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_outside_a_transaction_a_handler_that_leaves_autocommit_off_fails(delivery: str) -> None:
    publish_each(1, "bad", 2)
    calls = []

    def handler(event: Event) -> None:
        calls.append(event.payload)
        if event.payload == "bad":
            transaction.set_autocommit(False)

    drain(declare(handler, topic="work", delivery=delivery), wait_period_ms=1)
    assert calls == [1, "bad", 2]
    assert states() == [("bad", "dead")]
    assert (lag(), claims()) == (0, [])


@pytest.mark.parametrize("name", ["hides the table of cursors", "hides it by one alike"])
def test_at_least_once_a_table_that_is_hidden_is_found_again(name: str) -> None:
    publish_each(1, "bad", 2)

    def handler(event: Event) -> None:
        note(event.payload)
        if event.payload == "bad":
            MISDEEDS[name]()

    drain(declare(handler, topic="work", delivery="at_least_once"), wait_period_ms=1)
    assert effects() == [1, "bad", 2]
    assert (lag(), claims(), states()) == (0, [], [])


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once", "at_most_once"])
@pytest.mark.parametrize("batch", [False, True])
def test_a_generator_that_is_returned_is_no_work_done(delivery: str, batch: bool) -> None:
    publish_each(1)

    def work() -> Any:
        yield note(1)

    drain(declare(lambda given: work(), topic="work", delivery=delivery, batch=batch))
    assert states() == [(1, "dead")]
    letter = DeadLetter.objects.get()
    assert letter.exception_class == "pubsub.errors.InvalidSubscription"
    assert "returned a generator, of which nothing has been done" in letter.exception_message


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
@pytest.mark.parametrize("way", ["returns", "raises", "exits"])
def test_a_child_that_comes_back_does_not_go_on_as_the_worker(way: str, delivery: str) -> None:
    publish_each(1, "forks", 2)
    with consumer("forking", "--drain", delivery=delivery, way=way) as process:
        assert process.ends() == 0
        said = [process.lines.get() for _ in range(process.lines.qsize())]
    assert [line for line in said if line.startswith("handled")] == ["handled 1 1", 'handled "forks" 1', "handled 2 1"]
    assert sum("its child has come back" in line for line in said) == 1
    assert effects() == [1, "forks", 2]
    assert states() == []


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("name", ["closes by psycopg", "moves the search path", "begins and breaks it"])
def test_at_least_once_a_long_transaction_fails_as_a_whole_if_only_the_next_read_fails(name: str, batch: bool) -> None:
    misdeeds = MISDEEDS | {"begins and breaks it": lambda: [sql("BEGIN")(), swallow(sql("SELECT 1 / 0"))()]}

    def break_it_silently(given: Any) -> None:
        for event in given if batch else [given]:
            if event.payload == 5:
                misdeeds[name]()

    publish_together(*range(100))
    publish_each("after")

    drain(declare(break_it_silently, topic="work", delivery="at_least_once", batch=batch), batch_size=20)

    assert states() == [(n, "dead") for n in range(100)]
    assert (lag(), claims()) == (0, [])


def test_asynchronous_orm_calls_are_in_the_handlers_transaction() -> None:
    from pubsub.models import Topic

    publish_each("good", "bad")
    inside: list[Any] = []

    async def handler(event: Event) -> None:
        created = await Topic.objects.acreate(name=f"by {event.payload}")
        from asgiref.sync import sync_to_async

        inside.append(await sync_to_async(lambda: connection.in_atomic_block)())
        assert await Topic.objects.filter(pk=created.pk).aexists()
        if event.payload == "bad":
            raise ValueError

    drain(declare(handler, topic="work"))
    assert set(inside) == {True}
    assert [topic.name for topic in Topic.objects.filter(name__startswith="by ")] == ["by good"]
    assert states() == [("bad", "dead")]


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
@pytest.mark.parametrize("by", ["KeyboardInterrupt", "GeneratorExit"])
def test_a_handler_does_not_end_run_consumer_by_what_would_end_a_program(by: str, delivery: str) -> None:
    publish_each(1, "leave", 3)
    with consumer("leaving", "--drain", delivery=delivery, by=by) as process:
        assert process.ends() == 0
    assert effects() == [1, 3]
    assert states() == [("leave", "dead")]
    assert DeadLetter.objects.get().exception_class == f"builtins.{by}"


def test_a_handler_that_hangs_is_ended_and_seen(tmp_path: Any) -> None:
    publish_each(1, "hang")
    liveness = tmp_path / "alive"
    with consumer("hanging", "--shutdown-timeout", 1, "--liveness-file", liveness, "--wait-period-ms", 50) as process:
        process.wait_for('begins "hang"')
        old = liveness.stat().st_mtime_ns
        process.send(15)
        process.wait_for("Finishing the current batch, for at most 1 s")
        process.wait_for("Not finished in time: readers on partition 0")
        assert process.ends() == 3
        assert liveness.stat().st_mtime_ns == old, "the file is not touched while a handler hangs"
    assert effects() == []
    publish_each(2)
    with consumer("hanging") as process:
        process.wait_for("begins 1")
        process.wait_for('begins "hang"')
        process.send(15)
        process.wait_for("Finishing")
        process.send(15)
        assert process.ends() == -15, "the second one forces"


def test_a_handler_that_fills_the_memory_only_fails_its_own_event() -> None:
    publish_each(1, "eat", 2)
    with consumer("hungry", "--drain", bytes=1_200_000_000) as process:
        code = process.ends()
    assert code == 0, process.lines.queue
    assert effects() == [1, 2]
    assert states() == [("eat", "dead")]


def test_the_longest_texts_that_may_be_published_can_be_set_aside() -> None:
    def fail(event: Event) -> None:
        raise ValueError

    # What repeats itself would be compressed.
    longest = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=LONGEST_TEXT))
    publish_each(1, key=longest, type=longest, host_id=longest, user_id=longest)
    drain(declare(fail, topic="work", on_failure="park_key"))
    assert states() == [(1, "dead")]
    assert DeadLetter.objects.get().key == longest
