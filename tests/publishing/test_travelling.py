"""On pubsub.db.backend events travel with the COMMIT: what sees them finds them, what is undone takes them along."""

import itertools
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, IntegrityError, OperationalError, connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pubsub import publish, publish_many, publish_on_commit
from pubsub.db.backend.session import Session
from pubsub.models import OutboxMessage, Topic
from pubsub.sequencing.sequencer import sequence

from ..db.conftest import DJANGOS, OURS, connected_with
from ..db.test_backend import messages
from ..db.test_pipeline import cut

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def connection() -> Iterator[Any]:
    connections["default"].close()
    with transaction.atomic():
        publish("default", "looks the topic up")
    OutboxMessage.objects.all().delete()
    yield connections["default"]
    connections["default"].close()


def published() -> list[Any]:
    return list(OutboxMessage.objects.order_by("id").values_list("payload", flat=True))


def shapes(sent: list[str]) -> list[str]:
    """What was sent, a word for each statement."""
    names = {"pubsub_publish_v1": "publish", "pg_notify": "hint"}
    return [
        " ".join(
            next((name for part, name in names.items() if part in statement), statement.split()[0])
            for statement in re.split(r"; ?(?=\n|SELECT|COMMIT|INSERT|SAVEPOINT)", text)
        )
        for text in sent
    ]


class Undone(Exception):
    pass


# What is sent, and when


def test_a_transaction_that_only_publishes_is_one_message(connection: Any, tmp_path: Path) -> None:
    with messages(connection, tmp_path) as sent, transaction.atomic():
        publish("default", 1)
        publish_many("default", [{"payload": n} for n in (2, 3)])
        publish("default", 4)
    assert shapes(sent) == ["BEGIN publish COMMIT hint"]
    assert published() == [1, 2, 3, 4]


def test_events_travel_with_the_commit_behind_what_was_done(connection: Any, tmp_path: Path) -> None:
    with messages(connection, tmp_path) as sent, transaction.atomic():
        Topic.objects.filter(name="nothing").delete()
        with transaction.atomic():
            publish("default", 1)
        publish("default", 2)
    assert shapes(sent)[-2:] == ["RELEASE", "publish COMMIT hint"]
    assert published() == [1, 2]


def test_any_statement_sends_them_first(connection: Any, tmp_path: Path) -> None:
    with messages(connection, tmp_path) as sent, transaction.atomic(), connection.cursor() as cursor:
        publish("default", 1)
        cursor.execute("SELECT count(*) FROM outbox_message_t")
        assert cursor.fetchone() == (1,)
        publish("default", 2)
        with transaction.atomic():
            publish("default", 3)
    assert shapes(sent) == ["BEGIN publish", "SELECT", "publish", "SAVEPOINT", "RELEASE", "publish COMMIT hint"]


def test_a_transaction_that_publishes_nothing_gives_no_hint(connection: Any, tmp_path: Path) -> None:
    with messages(connection, tmp_path) as sent, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    assert shapes(sent) == ["BEGIN SELECT", "COMMIT"] or sent == ["BEGIN;\nSELECT 1", "COMMIT"]


def test_much_is_sent_before_it_becomes_too_much(connection: Any, tmp_path: Path) -> None:
    with messages(connection, tmp_path) as sent, transaction.atomic():
        for n in range(3):
            publish("default", str(n) * 600_000)
    assert shapes(sent) == ["BEGIN publish", "publish COMMIT hint"]
    assert [payload[0] for payload in published()] == ["0", "1", "2"]


def _read_by_orm(connection: Any) -> int:
    return OutboxMessage.objects.count()


def _read_by_cursor(connection: Any) -> Any:
    with connection.cursor() as cursor:
        return cursor.execute("SELECT count(*) FROM outbox_message_t").fetchone()[0]


def _read_by_psycopg(connection: Any) -> Any:
    return connection.connection.execute("SELECT count(*) FROM outbox_message_t").fetchone()[0]


def _read_by_a_cursor_of_another_kind(connection: Any) -> Any:
    cursor = psycopg.RawCursor(connection.connection)
    return cursor.execute("SELECT count(*) FROM outbox_message_t").fetchone()[0]  # type: ignore[index]


def _read_by_named_cursor(connection: Any) -> int:
    return len(list(OutboxMessage.objects.iterator(chunk_size=1)))


def _read_by_copy(connection: Any) -> int:
    with connection.cursor() as cursor, cursor.copy("COPY (SELECT id FROM outbox_message_t) TO STDOUT") as copied:
        return len(list(copied.rows()))


def _read_by_stream(connection: Any) -> int:
    return len(list(connection.connection.cursor().stream("SELECT id FROM outbox_message_t")))


def _read_in_a_pipeline(connection: Any) -> Any:
    with connection.connection.pipeline():
        cursor = connection.connection.execute("SELECT count(*) FROM outbox_message_t")
        return cursor.fetchone()[0]


def _read_in_psycopgs_block(connection: Any) -> Any:
    with connection.connection.transaction():
        return _read_by_psycopg(connection)


@pytest.mark.parametrize("read", [value for name, value in globals().items() if name.startswith("_read_")])
def test_whatever_reads_finds_what_was_published(read: Callable[[Any], int], connection: Any) -> None:
    for before in (False, True):
        with transaction.atomic():
            if before:
                Topic.objects.exists()
            publish("default", 1)
            assert read(connection) == 1
            publish("default", 2)
            assert read(connection) == 2
            transaction.set_rollback(True)
        with transaction.atomic():
            publish("default", 1)
            read(connection)
        assert published() == [1]
        OutboxMessage.objects.all().delete()


# What is undone


def test_a_savepoint_takes_its_events_along(connection: Any) -> None:
    with transaction.atomic():
        publish("default", 1)
        with pytest.raises(Undone), transaction.atomic():
            publish("default", "undone")
            with transaction.atomic():
                publish("default", "undone as well")
            raise Undone
        with transaction.atomic():
            publish("default", 2)
            with pytest.raises(IntegrityError), transaction.atomic():
                publish("default", "undone")
                Topic.objects.create(name="default")
        savepoint = transaction.savepoint()
        publish("default", "undone")
        transaction.savepoint_rollback(savepoint)
        connection.cursor().execute("SAVEPOINT mine")
        publish("default", "undone")
        connection.cursor().execute("ROLLBACK TO SAVEPOINT mine")
        publish("default", 3)
    assert published() == [1, 2, 3]
    with pytest.raises(Undone), transaction.atomic():
        publish("default", "undone")
        raise Undone
    with transaction.atomic():
        pass
    assert published() == [1, 2, 3]


def test_a_failed_statement_undoes_what_was_published_before_it(connection: Any) -> None:
    with pytest.raises(DatabaseError, match="aborted"), transaction.atomic(), connection.cursor() as cursor:
        publish("default", "undone")
        with pytest.raises(DatabaseError, match="division"):
            cursor.execute("SELECT 1 / 0")
        publish("default", "refused")
    assert published() == []


def test_a_failed_statement_may_be_undone_by_hand(connection: Any) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        publish("default", 1)
        cursor.execute("SAVEPOINT mine")
        publish("default", "undone")
        with pytest.raises(DatabaseError, match="division"):
            cursor.execute("SELECT 1 / 0")
        cursor.execute("ROLLBACK TO SAVEPOINT mine")
        publish("default", 2)
    assert published() == [1, 2]


def _release_of_nothing(cursor: Any) -> None:
    publish("default", "undone")
    cursor.execute("RELEASE SAVEPOINT nothing")


def _read_what_cannot_be_stored(cursor: Any) -> None:
    cursor.execute("SET LOCAL transaction_read_only = on")
    publish("default", "undone")
    cursor.execute("SELECT 1")


@pytest.mark.parametrize("fail", [_release_of_nothing, _read_what_cannot_be_stored])
def test_what_waits_when_a_transaction_fails_is_undone_by_hand_too(fail: Any, connection: Any) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        publish("default", 1)
        cursor.execute("SAVEPOINT mine")
        with pytest.raises(DatabaseError, match=r"does not exist|read-only"):
            fail(cursor)
        cursor.execute("ROLLBACK TO SAVEPOINT mine")
        publish("default", 2)
    assert published() == [1, 2]


def test_a_release_with_another_statement_behind_it_leaves_nothing_unsent(connection: Any) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SAVEPOINT outer_one; SAVEPOINT inner_one")
        publish("default", "undone")
        cursor.execute("RELEASE SAVEPOINT inner_one; ROLLBACK TO SAVEPOINT outer_one")
        publish("default", 1)
    assert published() == [1]


def test_threads_that_share_a_transaction_lose_nothing(connection: Any) -> None:
    numbers = itertools.count()

    def read() -> None:
        connections["default"] = connection
        for _ in range(300):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")

    connection.inc_thread_sharing()
    try:
        with transaction.atomic(), ThreadPoolExecutor(2) as threads:
            readers = [threads.submit(read) for _ in range(2)]
            while not all(reader.done() for reader in readers):
                publish("default", next(numbers))
    finally:
        connection.dec_thread_sharing()
    assert [reader.exception() for reader in readers] == [None, None]
    assert published() == list(range(next(numbers)))


def test_what_is_too_much_to_wait_fails_as_djangos_statements_do(connection: Any) -> None:
    with pytest.raises(DatabaseError, match="read-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        for n in range(3):
            publish("default", str(n) * 600_000)


def test_what_cannot_be_stored_fails_the_commit(connection: Any) -> None:
    with pytest.raises(DatabaseError, match="read-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        publish("default", 1)
    with pytest.raises(IntegrityError, match="unique"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE late (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP")
        cursor.execute("INSERT INTO late VALUES (1), (1)")
        publish("default", 1)
    with transaction.atomic():
        publish("default", 2)
    assert published() == [2]


@pytest.mark.parametrize("begun", [False, True])
def test_a_connection_that_is_lost_before_the_commit_is_an_error(begun: bool, connection: Any) -> None:
    with pytest.raises(OperationalError), transaction.atomic():
        if begun:
            Topic.objects.exists()
        publish("default", 1)
        cut(connection.connection.info.backend_pid)
    connection.close()
    assert published() == []


# However the transaction ends


def test_psycopgs_commit_and_rollback(connection: Any) -> None:
    transaction.set_autocommit(False)
    try:
        for n, end in enumerate([connection.connection.commit, transaction.commit]):
            publish("default", n)
            end()
            publish("default", "undone")
            connection.connection.rollback()
            with transaction.atomic():
                publish("default", n + 10)
            transaction.commit()
            with transaction.atomic():
                publish("default", "undone")
            transaction.rollback()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert published() == [0, 10, 1, 11]


def test_psycopgs_commit_within_djangos_block(connection: Any) -> None:
    with transaction.atomic():
        publish("default", 1)
        connection.connection.commit()
        publish("default", 2)
    assert published() == [1, 2]
    with transaction.atomic():
        publish("default", "undone")
        connection.connection.rollback()
        publish("default", 3)
    assert published() == [1, 2, 3]


def test_a_commit_by_a_cursor(connection: Any) -> None:
    with pytest.raises(Undone), transaction.atomic(), connection.cursor() as cursor:
        publish("default", 1)
        cursor.execute("COMMIT")
        publish("default", "undone")
        raise Undone
    assert published() == [1]


def test_psycopgs_block_ends_with_what_was_published_in_it(connection: Any) -> None:
    with transaction.atomic():
        publish("default", 1)
        with connection.connection.transaction():
            publish("default", 2)
            with pytest.raises(Undone), connection.connection.transaction():
                publish("default", "undone")
                raise Undone
        publish("default", 3)
    assert published() == [1, 2, 3]


def test_two_phases(connection: Any) -> None:
    with pytest.raises(psycopg.ProgrammingError, match="INTRANS"), transaction.atomic():
        publish("default", "undone")
        connection.connection.tpc_begin("never")
    connection.close()
    with transaction.atomic():
        session = connection.connection
        session.tpc_begin(session.xid(1, "shop", "1"))
        publish("default", 1)
        assert not session.unsent
        session.tpc_commit()
    assert published() == [1]


@pytest.mark.parametrize("begun", [False, True])
def test_what_ends_a_transaction_past_the_connection_is_an_error(begun: bool, connection: Any) -> None:
    def commit_below(session: Session) -> None:
        session.pgconn.exec_(b"COMMIT")

    def switch_autocommit_on(session: Session) -> None:
        session.autocommit = True

    for end in [commit_below, switch_autocommit_on]:
        if not begun and end is commit_below:
            continue  # nothing has begun that it could end
        with pytest.raises((DatabaseError, psycopg.Error), match=r"past the connection|INTRANS"), transaction.atomic():
            if begun:
                Topic.objects.exists()
            publish("default", "not there")
            end(connection.connection)
        connection.close()
    assert published() == []


def test_a_closed_connection_takes_nothing_to_the_next_user() -> None:
    pytest.importorskip("psycopg_pool")
    options = {**connections.settings["default"]["OPTIONS"], "pool": {"min_size": 1, "max_size": 1}}
    with connected_with(OPTIONS=options, CONN_MAX_AGE=0, CONN_HEALTH_CHECKS=False) as connection:
        try:
            with transaction.atomic():
                publish("default", "undone")
                connection.close()
            with transaction.atomic():
                publish("default", 1)
            assert published() == [1]
        finally:
            connection.close()
            connection.close_pool()


# Beside what does not travel


def test_the_order_is_the_order_of_the_calls(connection: Any) -> None:
    with transaction.atomic():
        publish("default", 0)
        publish("default", 1, dedup_key="one")
        publish_many("default", [{"payload": n} for n in range(2, 202)])
        publish("default", 202)
        publish_many("default", [{"payload": n} for n in range(203, 206)])
        OutboxMessage(topic_id=1, payload=206).save(force_insert=True)
        publish("default", 207)
        publish_on_commit("default", 208)
    assert sequence("default").messages == 209
    assert published() == list(range(209))


def test_a_tool_that_watches_sees_each_event_as_a_statement(connection: Any, django_assert_num_queries: Any) -> None:
    with transaction.atomic():
        publish("default", 1)
        with django_assert_num_queries(2):
            publish("default", 2)
            publish("default", 3)
        publish("default", 4)
    assert published() == [1, 2, 3, 4]


PROGRAM = st.recursive(
    st.sampled_from(["publish", "publish two", "read", "save"]),
    lambda step: st.tuples(st.sampled_from(["block", "undone block", "savepoint", "undone savepoint"]), st.lists(step)),
    max_leaves=12,
)


@pytest.mark.parametrize("engine", [OURS, DJANGOS])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=st.lists(PROGRAM, max_size=6), is_undone=st.booleans())
def test_any_program_publishes_what_it_would_if_each_event_were_a_statement(
    engine: str, program: list[Any], is_undone: bool
) -> None:
    OutboxMessage.objects.all().delete()
    numbers = iter(range(10_000))

    def run(steps: list[Any]) -> list[int]:
        """Runs it, and returns what it has published."""
        done: list[int] = []
        for step in steps:
            match step:
                case "publish":
                    done.append(next(numbers))
                    publish("default", done[-1])
                case "publish two":
                    done += [next(numbers), next(numbers)]
                    publish_many("default", [{"payload": n} for n in done[-2:]])
                case "read":
                    assert set(done) <= set(published())
                case "save":
                    Topic.objects.filter(name="nothing").update(zero_subscribers="keep")
                case ["block", inner]:
                    with transaction.atomic():
                        done += run(inner)
                case ["undone block", inner]:
                    with pytest.raises(Undone), transaction.atomic():
                        run(inner)
                        raise Undone
                case ["savepoint", inner]:
                    savepoint = transaction.savepoint()
                    done += run(inner)
                    transaction.savepoint_commit(savepoint)
                case ["undone savepoint", inner]:
                    savepoint = transaction.savepoint()
                    run(inner)
                    transaction.savepoint_rollback(savepoint)
        return done

    with connected_with(engine=engine):
        expected: list[int] = []
        try:
            with transaction.atomic():
                expected = run(program)
                if is_undone:
                    raise Undone
        except Undone:
            expected = []
        assert published() == expected
