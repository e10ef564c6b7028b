"""What passes by itself and what does not: an event must neither be blamed for the database nor retried for ever."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, InterfaceError, OperationalError, connection, connections, transaction

from pubsub.db.errors import is_disk_full, is_the_handlers, is_transient
from tests.sessions import connect


class LookAlike(Exception):
    """Another library's."""


LookAlike.__name__ = "OperationalError"


PASSING = ("40001", "40P01", "57014", "57P01", "08006", "55P03")
LASTING = ("23505", "22012", "42P01")


@pytest.mark.parametrize(
    ("state", "expected"), [*((state, True) for state in PASSING), *((state, False) for state in LASTING)]
)
def test_sqlstates(state: str, expected: bool) -> None:
    error = psycopg.errors.lookup(state)()
    wrapped = DatabaseError()
    wrapped.__cause__ = error
    assert is_transient(error) == is_transient(wrapped) == expected


def test_a_connection_that_is_gone_has_no_sqlstate() -> None:
    lost = OperationalError()
    lost.__cause__ = psycopg.OperationalError("the connection is lost")
    assert is_transient(lost)
    assert is_transient(InterfaceError("connection already closed"))


@pytest.mark.django_db
def test_using_a_closed_cursor_is_not_a_database_failure() -> None:
    cursor = connection.cursor()
    cursor.close()
    with pytest.raises(InterfaceError) as raised:
        cursor.execute("SELECT 1")
    assert not is_transient(raised.value)


def test_a_ring_of_causes_has_an_end() -> None:
    error = ValueError()
    error.__cause__ = error
    assert not is_transient(error)


def test_an_error_that_only_looks_like_it_is_the_handlers_own() -> None:
    assert not is_transient(LookAlike())
    assert not is_transient(ConnectionError())
    own = ValueError()
    own.__cause__ = LookAlike()
    assert not is_transient(own)


@pytest.mark.django_db
def test_the_server_reports_a_cancelled_statement() -> None:
    with pytest.raises(OperationalError) as cancelled, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 1")
        cursor.execute("SELECT pg_sleep(10)")
    assert is_transient(cancelled.value)


BUSY = "SET statement_timeout = 1; SELECT pg_sleep(10)"

ON_THE_WORKERS_OWN = {
    "in a savepoint": lambda: _in_a_block(lambda: connections["default"].cursor().execute(BUSY)),
    "by a cursor of psycopg's": lambda: _in_a_block(lambda: connections["default"].connection.cursor().execute(BUSY)),
    "by psycopg's connection": lambda: _in_a_block(lambda: connections["default"].connection.execute(BUSY)),
    "as the cause of another": lambda: _wrap(lambda: connections["default"].cursor().execute(BUSY)),
}
ON_ANOTHER = {
    "under another alias": lambda: _in_a_block(lambda: connections["other"].cursor().execute(BUSY), "other"),
    "by psycopg": lambda: _on_a_session_of_its_own(),
    "by psycopg, to a server that is away": lambda: psycopg.connect("host=127.0.0.1 port=1 connect_timeout=5"),
    "by hand": lambda: _raise(psycopg.errors.DeadlockDetected()),
}


def _in_a_block(call: Callable[[], Any], using: str = "default") -> None:
    connections[using].ensure_connection()
    with transaction.atomic(using=using):
        call()


def _on_a_session_of_its_own() -> None:
    with connect() as session:
        session.execute(BUSY)


def _wrap(call: Callable[[], Any]) -> None:
    try:
        call()
    except DatabaseError as error:
        raise ValueError("something else") from error


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("way", [*ON_THE_WORKERS_OWN, *ON_ANOTHER])
@pytest.mark.parametrize("is_inside", [True, False])
def test_whose_a_failure_is_is_reported_by_the_connection(way: str, is_inside: bool) -> None:
    with transaction.atomic() if is_inside else nullcontext():
        with pytest.raises(Exception) as failed:  # noqa: PT011 - of any kind
            (ON_THE_WORKERS_OWN | ON_ANOTHER)[way]()
        assert is_transient(failed.value)
        assert is_the_handlers(failed.value, "default") == (way in ON_ANOTHER)
        if is_inside:
            transaction.set_rollback(True)
    for each in ("default", "other"):
        connections[each].close()


def test_a_full_disk_is_found_behind_other_errors() -> None:
    wrapped = ValueError()
    wrapped.__cause__ = DatabaseError()
    wrapped.__cause__.__cause__ = psycopg.errors.DiskFull()
    assert is_disk_full(wrapped)
    assert not is_disk_full(psycopg.errors.OutOfMemory())
    assert not is_disk_full(None)
