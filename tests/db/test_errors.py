"""What passes by itself and what does not: an event must neither be blamed for the database nor retried for ever."""

import psycopg
import pytest
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from pubsub.db.errors import is_transient


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
