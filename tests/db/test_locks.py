"""Locks by name: taken, given back, and seen by another session."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from pubsub.db import locks
from pubsub.db.connections import dedicated_connection
from pubsub.db.errors import is_lock_not_available, sqlstate

pytestmark = pytest.mark.django_db(transaction=True)

ALL = [locks.LEADING, locks.WAITING, locks.FOLLOWING, locks.PARTITIONING, locks.alive(7), locks.archiving("g", 1)]


@pytest.fixture
def session() -> Iterator[psycopg.Connection[Any]]:
    with dedicated_connection("default") as session:
        yield session


@pytest.fixture
def other() -> Iterator[psycopg.Connection[Any]]:
    with dedicated_connection("default") as session:
        yield session


@pytest.mark.parametrize("lock", ALL, ids=str)
def test_a_lock_belongs_to_one_session_until_it_is_released(lock: locks.AdvisoryLock, session: Any, other: Any) -> None:
    assert locks.try_to_take(session, lock)
    assert not locks.try_to_take(other, lock)
    locks.release(session, lock)
    locks.take(other, lock)
    assert not locks.try_to_take(session, lock)


def test_no_two_of_them_are_the_same(session: Any, other: Any) -> None:
    for lock in ALL:
        locks.take(session, lock)
    for lock in [locks.alive(8), locks.archiving("h", 1), locks.archiving("g", 2)]:
        assert locks.try_to_take(other, lock)


def test_one_may_be_shared(session: Any, other: Any) -> None:
    locks.follow(session, "pubsub_doctest")
    locks.take(other, locks.FOLLOWING, shared=True)
    assert not locks.try_to_take(other, locks.FOLLOWING)
    other.execute("NOTIFY pubsub_doctest")
    assert [notify.channel for notify in session.notifies(timeout=5, stop_after=1)] == ["pubsub_doctest"]
    locks.release(session, locks.FOLLOWING, shared=True)
    session.execute("UNLISTEN pubsub_doctest")
    assert locks.try_to_take(other, locks.FOLLOWING)


def test_a_transactions_lock_ends_with_it(other: Any) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        assert locks.try_for_transaction(cursor, locks.PARTITIONING)
        assert not locks.try_to_take(other, locks.PARTITIONING)
    assert locks.try_to_take(other, locks.PARTITIONING)


def test_one_is_held_for_a_while(session: Any, other: Any) -> None:
    lock = locks.archiving("g", 1)
    with connection.cursor() as cursor:
        with pytest.raises(ZeroDivisionError), locks.held_by_session(cursor, lock) as got_it:
            assert got_it
            assert not locks.try_to_take(other, lock)
            raise ZeroDivisionError
        locks.take(other, lock)
        with locks.held_by_session(cursor, lock) as got_it:
            assert not got_it
    assert not locks.try_to_take(session, lock)


def test_the_sequencers_row_is_waited_for(session: Any) -> None:
    session.autocommit = False
    locks.lock_sequencer(session)
    with pytest.raises(OperationalError) as raised, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = 1")
        locks.lock_sequencer(cursor)
    session.rollback()
    for error in (raised.value, raised.value.__cause__):
        assert is_lock_not_available(error)
        assert sqlstate(error) == "55P03"
    assert not is_lock_not_available(ZeroDivisionError())
    assert not is_lock_not_available(None)
    with transaction.atomic(), connection.cursor() as cursor:
        locks.lock_sequencer(cursor)
