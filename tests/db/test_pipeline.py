"""The shortest way to the server does what the long one does, and stands back where a tool watches that one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import (
    DatabaseError,
    Error,
    InternalError,
    ProgrammingError,
    close_old_connections,
    connections,
    transaction,
)
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus

from pubsub import publish
from pubsub.db.pipeline import FailedBehindCommit, begin, execute_together, is_short_way_open, send
from pubsub.db.transactions import begun_by_first_statement
from pubsub.models import OutboxMessage
from tests.sessions import connection_parameters

pytestmark = pytest.mark.django_db(transaction=True)

connection = connections["default"]

ODD = "it's \\' \" %s %(key)s {0} $1 ; -- /* \n\t ü 😀"


@contextmanager
def a_wrapper() -> Iterator[Callable[[], int]]:
    seen = []

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(wrapper):
        yield lambda: sum("pubsub_publish" in sql for sql in seen)


@contextmanager
def the_queries_log() -> Iterator[Callable[[], int]]:
    with CaptureQueriesContext(connection) as captured:
        yield lambda: sum("pubsub_publish" in query["sql"] for query in captured.captured_queries)


@contextmanager
def another_cursor() -> Iterator[Callable[[], int]]:
    """As development tools put it into the connection."""
    original, made = connection.cursor, []

    def cursor(*arguments: Any) -> Any:
        made.append(original(*arguments))
        return made[-1]

    vars(connection)["cursor"] = cursor
    try:
        yield lambda: len(made)
    finally:
        del vars(connection)["cursor"]


@contextmanager
def a_patched_class() -> Iterator[Callable[[], int]]:
    """As tools that report errors do it."""
    with mock.patch.object(CursorWrapper, "execute", autospec=True, side_effect=CursorWrapper.execute) as execute:
        yield lambda: execute.call_count


@contextmanager
def a_patched_psycopg() -> Iterator[Callable[[], int]]:
    with mock.patch.object(psycopg.Cursor, "execute", autospec=True, side_effect=psycopg.Cursor.execute) as execute:
        yield lambda: execute.call_count


@contextmanager
def cursors_of_another_class() -> Iterator[Callable[[], int]]:
    """As tools that trace do it."""
    seen = []

    class Traced(psycopg.ClientCursor[Any]):
        def execute(self, *arguments: Any, **options: Any) -> Any:
            seen.append(arguments[0])
            return super().execute(*arguments, **options)

    connection.ensure_connection()
    connection.connection.cursor_factory = Traced
    try:
        yield lambda: len(seen)
    finally:
        connection.close()


def test_both_ways_store_the_same() -> None:
    columns = ("topic_id", "type", "key", "host_id", "user_id", "to_group", "payload", "metadata")

    def publish_odd() -> None:
        with transaction.atomic():
            publish("default", {ODD: ODD}, type=ODD, key=ODD, host_id=ODD, metadata={"m": ODD}, to_group=ODD)
            publish("default", None)

    publish_odd()
    with a_wrapper() as count:
        publish_odd()
        assert count() == 2
    short, short_empty, long, long_empty = OutboxMessage.objects.order_by("id").values_list(*columns)
    assert short == long == (1, ODD, ODD, ODD, None, ODD, {ODD: ODD}, {"m": ODD})
    assert short_empty == long_empty == (1, "", None, None, None, None, None, {})


@pytest.mark.parametrize(
    "watching",
    [a_wrapper, the_queries_log, another_cursor, a_patched_class, a_patched_psycopg, cursors_of_another_class],
)
def test_an_observer_sees_the_statement(watching: Callable[[], Any]) -> None:
    connection.ensure_connection()
    assert is_short_way_open(connection)
    with watching() as count:
        assert not is_short_way_open(connection)
        with transaction.atomic():
            publish("default", 1)
        assert count()
    connection.ensure_connection()
    assert is_short_way_open(connection)


def test_another_encoding_is_that_of_the_session() -> None:
    with transaction.atomic():
        send(connection, b"SET LOCAL client_encoding = 'LATIN1'")
        publish("default", "ü")
        with pytest.raises(DatabaseError, match="division"):
            send(connection, b"SELECT 1/0")
        transaction.set_rollback(True)
    with transaction.atomic():
        send(connection, b"SET LOCAL client_encoding = 'LATIN1'")
        publish("default", "ü")
    assert OutboxMessage.objects.get().payload == "ü"


def test_a_session_that_takes_any_bytes_gets_utf_8() -> None:
    with transaction.atomic():
        send(connection, b"SET LOCAL client_encoding = 'SQL_ASCII'")
        publish("default", "ü", key="ü")
    assert OutboxMessage.objects.get().key == "ü"


def test_a_pipeline_of_psycopgs_takes_the_long_way() -> None:
    connection.ensure_connection()
    with connection.connection.pipeline(), transaction.atomic():
        assert not is_short_way_open(connection)
        publish("default", "piped")
    assert OutboxMessage.objects.get().payload == "piped"


def test_the_transaction_begins_as_psycopg_would_begin_it() -> None:
    connection.ensure_connection()
    session = connection.connection
    for name, value in (
        ("isolation_level", IsolationLevel.REPEATABLE_READ),
        ("read_only", True),
        ("deferrable", False),
    ):
        setattr(session, name, value)
    try:
        assert begin(session).encode() == session._get_tx_start_command()
        with pytest.raises(InternalError, match="read-only"), transaction.atomic():
            assert send(connection, b"SHOW transaction_isolation").row() == ("repeatable read",)
            publish("default", 1)
    finally:
        connection.close()


def test_an_error_is_djangos_and_leaves_the_transaction_as_any_error_does() -> None:
    with pytest.raises(ProgrammingError, match="no_such_function") as raised, transaction.atomic():
        send(connection, b"SELECT no_such_function()")
    assert raised.value.__cause__.sqlstate == "42883"  # type: ignore[union-attr]
    with transaction.atomic():
        with pytest.raises(DatabaseError, match="division by zero"):
            send(connection, b"SELECT 1/0")
        with pytest.raises(InternalError, match="current transaction is aborted"):
            send(connection, b"SELECT 1")
        with pytest.raises(DatabaseError):
            publish("default", "lost with the transaction")
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            publish("default", "refused before it is sent")
    assert not OutboxMessage.objects.exists()


def test_statements_that_travel_together_begin_a_transaction_as_well() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        insert = "INSERT INTO outbox_message_t (payload) VALUES ('1')"
        answers = execute_together(connection, [insert, "SELECT %(text)s, %(n)s"], {"text": "100 %", "n": 1})
        assert answers.row() == ("100 %", 1)
        raise ZeroDivisionError
    assert not OutboxMessage.objects.exists()


def test_a_savepoint_may_come_first() -> None:
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            publish("default", "undone")
            raise ZeroDivisionError
        publish("default", "kept")
    assert [message.payload for message in OutboxMessage.objects.all()] == ["kept"]


@pytest.mark.parametrize("whose", ["django", "psycopg"])
def test_a_connection_that_was_closed_in_the_block_is_an_error_of_djangos(whose: str) -> None:
    with pytest.raises(Error), transaction.atomic():
        publish("default", 1)
        (connection if whose == "django" else connection.connection).close()
        publish("default", 2)
    assert not OutboxMessage.objects.exists()


def test_a_session_that_was_cut_while_idle_is_replaced_if_django_checks_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True, "AUTOCOMMIT": False}.items():
        monkeypatch.setitem(connection.settings_dict, name, value)
    connection.close()
    try:
        for n in range(2):
            publish("default", n)
            connection.commit()
            assert execute_together(connection, ["SELECT 1"], {}).row() == (1,)
            connection.commit()
            cut(connection.connection.info.backend_pid)
            close_old_connections()
        assert execute_together(connection, ["SELECT 1"], {}).row() == (1,)
    finally:
        connection.close()
        monkeypatch.undo()
    assert OutboxMessage.objects.count() == 2


def cut(pid: int) -> None:
    with psycopg.connect(**connection_parameters(), autocommit=True) as operator:
        operator.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


# Who begins, and when


def test_a_block_is_begun_by_what_is_sent_first_and_only_once() -> None:
    notices: list[str] = []
    connection.ensure_connection()
    connection.connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    with begun_by_first_statement("default") as begun:
        assert begun is connection
        assert connection.connection.info.transaction_status == TransactionStatus.IDLE
        first = execute_together(connection, ["SELECT pg_current_xact_id()::text"], {}).row()
        again = execute_together(connection, ["SELECT pg_current_xact_id()::text", "COMMIT"], {}).row(-2)
        assert first == again
        assert connection.connection.info.transaction_status == TransactionStatus.IDLE
        answers = execute_together(connection, ["SELECT 1", "COMMIT", begin(connection.connection), "SELECT 2"], {})
        assert (answers.row(-4), answers.row()) == ((1,), (2,))
        assert connection.connection.info.transaction_status == TransactionStatus.INTRANS
    assert connection.connection.info.transaction_status == TransactionStatus.IDLE
    assert connection.get_autocommit()
    assert notices == []


def test_it_is_the_outermost_block() -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"), begun_by_first_statement("default"):
        pass


@pytest.mark.parametrize("short", [True, False])
def test_a_failure_after_a_commit_does_not_affect_the_commit(short: bool, settings: Any) -> None:
    settings.PUBSUB = {**settings.PUBSUB, "short_way": short}
    insert = "INSERT INTO outbox_message_t (payload) VALUES ('1') RETURNING 7"
    with begun_by_first_statement("default"):
        with pytest.raises(FailedBehindCommit) as raised:
            execute_together(connection, [insert, "COMMIT", begin(connection.connection), "SELECT 1 / 0"], {})
        assert raised.value.answers.row(-2) == (7,)
        assert isinstance(raised.value.__cause__, psycopg.errors.DivisionByZero)
        transaction.set_rollback(True)
    with pytest.raises(DatabaseError), begun_by_first_statement("default"):
        execute_together(connection, [insert, "SELECT 1 / 0", "COMMIT", "SELECT 1"], {})
    assert OutboxMessage.objects.count() == 1
