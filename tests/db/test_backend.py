"""Our engine is Django's in all that one can ask of it; BEGIN travels with the first statement, whatever that is."""

import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, IntegrityError, OperationalError, connections, transaction
from django.db.backends.postgresql import base as djangos
from django.test.utils import CaptureQueriesContext
from psycopg import sql
from psycopg.pq import TransactionStatus

from pubsub import publish
from pubsub.db import libpq
from pubsub.db.backend.cursors import BeginningCursor, ServerBindingCursor
from pubsub.db.backend.session import Session
from pubsub.db.guard import refusing_to_end
from pubsub.db.pipeline import execute_together, is_short_way_open
from pubsub.errors import HandlerEndedTransaction
from pubsub.models import OutboxMessage, Topic

from .conftest import connected_with
from .test_pipeline import cut

pytestmark = pytest.mark.django_db(transaction=True)

IDLE, INTRANS = TransactionStatus.IDLE, TransactionStatus.INTRANS
INSERT = "INSERT INTO outbox_message_t (payload) VALUES ('1')"


@pytest.fixture
def connection() -> Iterator[Any]:
    connections["default"].ensure_connection()
    yield connections["default"]
    connections["default"].close()


@contextmanager
def messages(connection: Any, folder: Path) -> Iterator[list[str]]:
    """The texts that libpq sends meanwhile, each with a round trip of its own."""
    sent: list[str] = []
    trace = folder / "trace"
    with trace.open("w") as file:
        pgconn = connection.connection.pgconn
        pgconn.trace(file.fileno())
        try:
            yield sent
        finally:
            pgconn.untrace()
    sent += re.findall(r"\tQuery\t \"(.*?)\"$", trace.read_text(), re.MULTILINE | re.DOTALL)


def test_sessions_and_cursors_are_ours(connection: Any) -> None:
    assert type(connection.connection) is Session
    assert connection.connection.cursor_factory is BeginningCursor
    with connected_with(OPTIONS={"server_side_binding": True}) as binding:
        binding.ensure_connection()
        assert binding.connection.cursor_factory is ServerBindingCursor
    with connected_with(OPTIONS={"cursor_factory": psycopg.ClientCursor}) as theirs:
        theirs.ensure_connection()
        assert theirs.connection.cursor_factory is psycopg.ClientCursor
        assert not is_short_way_open(theirs)


def test_begin_travels_with_the_first_statement_and_only_with_that(connection: Any, tmp_path: Path) -> None:
    with messages(connection, tmp_path) as sent, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT %s", [1])
        cursor.execute("SELECT 2")
    assert sent == ["BEGIN;\nSELECT 1", "SELECT 2", "COMMIT"]
    with messages(connection, tmp_path) as sent, transaction.atomic():
        pass
    assert sent == []
    with messages(connection, tmp_path) as sent, pytest.raises(ZeroDivisionError), transaction.atomic():
        with transaction.atomic():
            Topic.objects.exists()
        raise ZeroDivisionError
    assert sent[0].startswith("BEGIN;\nSAVEPOINT")
    assert sent[-1] == "ROLLBACK"


def test_without_the_short_way_psycopg_begins(connection: Any, tmp_path: Path, settings: Any) -> None:
    settings.PUBSUB = {**settings.PUBSUB, "short_way": False}
    with messages(connection, tmp_path) as sent, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    assert sent == ["BEGIN", "SELECT 1", "COMMIT"]


def test_a_transaction_that_the_caller_begins_is_the_same(connection: Any, tmp_path: Path) -> None:
    with messages(connection, tmp_path) as sent:
        transaction.set_autocommit(False)
        try:
            with connection.cursor() as cursor:
                cursor.execute(INSERT)
                transaction.rollback()
                cursor.execute(INSERT)
            transaction.commit()
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)
    assert sent == [f"BEGIN;\n{INSERT}", "ROLLBACK", f"BEGIN;\n{INSERT}", "COMMIT"]
    assert OutboxMessage.objects.count() == 1


def _copy(connection: Any) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY outbox_message_t (payload) FROM STDIN") as copied:
        copied.write_row(["1"])


def _pipeline(connection: Any) -> None:
    with connection.connection.pipeline():
        connection.connection.execute(INSERT)


def _named(connection: Any) -> None:
    assert list(Topic.objects.iterator()) != []
    with connection.cursor() as cursor:
        cursor.execute(INSERT)


def _savepoint(connection: Any) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(INSERT)


def _psycopgs_block(connection: Any) -> None:
    connection.connection.execute("SELECT 1")
    with connection.connection.transaction():
        connection.connection.execute(INSERT)


def _two_results(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1; {INSERT} RETURNING 2")
        assert cursor.fetchall() == [(1,)]
        assert cursor.nextset()
        assert (cursor.fetchall(), cursor.rowcount) == ([(2,)], 1)
        assert not cursor.nextset()


def _returning(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"{INSERT} RETURNING payload AS found")
        assert (cursor.description[0].name, cursor.rowcount, cursor.statusmessage) == ("found", 1, "INSERT 0 1")
        assert cursor.fetchone() == (1,) or cursor.fetchone() is None


def _executed(query: Any) -> Callable[[Any], Any]:
    return lambda connection: connection.cursor().execute(query)


def _by_psycopg(connection: Any) -> Any:
    return connection.connection.cursor().execute(INSERT)


FIRST: dict[str, Callable[[Any], Any]] = {
    "text": _executed(INSERT),
    "bytes": _executed(INSERT.encode()),
    "composed": _executed(sql.SQL("INSERT INTO {} (payload) VALUES ('1')").format(sql.Identifier("outbox_message_t"))),
    "an ORM call": lambda connection: OutboxMessage.objects.create(payload=1, topic_id=1),
    "publish": lambda connection: publish("default", 1),
    "together": lambda connection: execute_together(connection, [INSERT, "SELECT 1"], {}),
    "executemany": lambda connection: connection.cursor().executemany(INSERT, [(), ()]),
    "a stream": lambda connection: list(connection.connection.cursor().stream(f"{INSERT} RETURNING 1")),
    "psycopg's cursor": _by_psycopg,
    "a copy": _copy,
    "a pipeline": _pipeline,
    "a named cursor": _named,
    "a savepoint": _savepoint,
    "psycopg's block": _psycopgs_block,
    "two results": _two_results,
    "returning": _returning,
}


@pytest.mark.parametrize("binding", [False, True], ids=["", "server_side_binding"])
@pytest.mark.parametrize("first", FIRST)
def test_the_first_statement_is_in_the_transaction(first: str, binding: bool) -> None:
    if binding and first in ("two results",):
        pytest.skip("one statement at a time is all that is allowed there")
    with connected_with(OPTIONS={"server_side_binding": binding}) as connection:
        connection.ensure_connection()
        notices: list[str] = []
        connection.connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            FIRST[first](connection)
            assert connection.connection.info.transaction_status == INTRANS
            raise ZeroDivisionError
        assert connection.connection.info.transaction_status == IDLE
        assert not OutboxMessage.objects.exists()
        with transaction.atomic(durable=True):
            FIRST[first](connection)
        assert OutboxMessage.objects.exists()
        assert notices == []


def test_the_isolation_level_is_the_one_that_was_asked_for() -> None:
    options = {"isolation_level": psycopg.IsolationLevel.SERIALIZABLE}
    with connected_with(OPTIONS=options) as connection, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        assert cursor.fetchone() == ("serializable",)
        connection.connection.execute("SELECT 1")
    role = "pg_read_all_data"
    with (
        connected_with(OPTIONS={"assume_role": role}) as connection,
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT current_user")
        assert cursor.fetchone() == (role,)


def test_django_records_only_the_statement(connection: Any) -> None:
    with CaptureQueriesContext(connection) as captured, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT %s", ["it's"])
        cursor.execute("SELECT 2")
    assert [query["sql"] for query in captured] == ["BEGIN", "SELECT 'it''s'", "SELECT 2", "COMMIT"]
    with CaptureQueriesContext(connection) as captured, pytest.raises(DatabaseError), transaction.atomic():
        connection.cursor().execute("SELECT 1 / %s", [0])
    assert [query["sql"] for query in captured] == ["BEGIN", "SELECT 1 / 0", "ROLLBACK"]


def test_an_error_shows_only_the_statement(connection: Any) -> None:
    with pytest.raises(DatabaseError) as raised, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT\nno_such_column")
    assert "\nLINE 3: no_such_column\n        ^" in str(raised.value)
    assert connection.connection.info.transaction_status == IDLE


def test_a_statement_that_cannot_be_parsed_begins_nothing(connection: Any) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        with pytest.raises(DatabaseError, match="syntax error"):
            cursor.execute("SELEC")
        cursor.execute(INSERT)
    assert OutboxMessage.objects.count() == 1


def test_a_failed_statement_fails_the_transaction(connection: Any) -> None:
    with pytest.raises(DatabaseError, match="aborted"), transaction.atomic(), connection.cursor() as cursor:
        with pytest.raises(DatabaseError, match="division"):
            cursor.execute("SELECT 1 / 0")
        cursor.execute(INSERT)
    with pytest.raises(IntegrityError), transaction.atomic():
        Topic.objects.create(name="default")
    assert not OutboxMessage.objects.exists()


def test_after_a_commit_by_hand_another_transaction_begins(connection: Any) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.execute("COMMIT")
        cursor.execute(INSERT)
        raise ZeroDivisionError
    assert not OutboxMessage.objects.exists()


def test_a_broken_connection_is_an_error_and_the_next_one_works(connection: Any) -> None:
    with pytest.raises(OperationalError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cut(connection.connection.info.backend_pid)
        cursor.execute("SELECT 1")
    connection.close()
    with transaction.atomic():
        publish("default", 1)


def test_a_health_check_finds_a_cut_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected_with(CONN_MAX_AGE=60, CONN_HEALTH_CHECKS=True) as connection:
        connection.ensure_connection()
        cut(connection.connection.info.backend_pid)
        connection.close_if_unusable_or_obsolete()
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        kept = connection.connection
        connection.close_if_unusable_or_obsolete()
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        assert connection.connection is kept


@pytest.mark.parametrize("pool", [True, {"min_size": 1, "max_size": 1}])
def test_a_pool_has_our_sessions(pool: Any) -> None:
    pytest.importorskip("psycopg_pool")
    options = {**connections.settings["default"]["OPTIONS"], "pool": pool}
    given = copy.deepcopy(options)
    with connected_with(OPTIONS=options, CONN_MAX_AGE=0, CONN_HEALTH_CHECKS=False) as connection:
        try:
            for _ in range(3):
                with transaction.atomic():
                    publish("default", 1)
                    assert type(connection.connection) is Session
                connection.close()
                with transaction.atomic():
                    with refusing_to_end("default"), pytest.raises(HandlerEndedTransaction):
                        connection.connection.commit()
                    connection.close()
                connection.cursor().execute("SELECT 1")
                assert connection.connection.info.transaction_status == IDLE
        finally:
            connection.close()
            connection.close_pool()
    assert options == given


def test_a_tool_that_traces_connections_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def connect(*arguments: Any, **parameters: Any) -> Any:
        seen.append(parameters["dbname"])
        return psycopg.Connection.connect(*arguments, **parameters)

    monkeypatch.setattr(psycopg, "connect", connect)
    with connected_with() as connection:
        with transaction.atomic():
            publish("default", 1)
            assert not is_short_way_open(connection)
            with refusing_to_end("default"), pytest.raises(HandlerEndedTransaction):
                connection.cursor().execute("COMMIT")
        assert seen
    assert OutboxMessage.objects.count() == 1


# What is private in psycopg and Django


def test_psycopg_has_what_the_short_way_needs(connection: Any) -> None:
    assert libpq.is_tried()
    assert libpq.try_on(connection.connection)


@pytest.mark.parametrize("missing", ["generators", "Transformer", "Escaping", "errors"])
def test_without_it_a_warning_says_so_and_public_interfaces_are_used(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(libpq, "works", None)
    monkeypatch.setattr(libpq, missing, object())
    for n in range(2):
        with connected_with() as connection, transaction.atomic():
            publish("default", n)
            assert execute_together(connection, ["SELECT %(n)s"], {"n": n}).row() == (n,)
            assert not is_short_way_open(connection)
    assert OutboxMessage.objects.count() == 2
    assert [record.levelname for record in caplog.records if "short way is closed" in record.message] == ["WARNING"]


def test_invalid_settings_are_left_to_the_check(settings: Any) -> None:
    settings.PUBSUB = {"batch_size": "many"}
    with connected_with(), transaction.atomic():
        assert Topic.objects.exists()


def test_psycopg_asks_the_session_to_begin(connection: Any) -> None:
    assert "_start_query" in vars(psycopg.connection.BaseConnection)


def test_django_connects_by_its_driver() -> None:
    assert djangos.DatabaseWrapper.Database is psycopg
