"""Delayed messages wait outside the log, and come into it once, when they are due."""

import datetime as dt
import threading
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from pubsub import publish
from pubsub.models import DelayedMessage, OutboxMessage
from pubsub.sequencing.delayed import move_due_messages
from tests.log import checked_log, insert, names, number
from tests.sessions import Running, Session

pytestmark = pytest.mark.django_db(transaction=True)


def in_seconds(seconds: float) -> dt.datetime:
    return timezone.now() + dt.timedelta(seconds=seconds)


def make_due(seconds_ago: float = 1) -> None:
    DelayedMessage.objects.update(deliver_at=in_seconds(-seconds_ago))


def test_nothing_is_numbered_before_it_is_due_and_nothing_waits_for_it(session: Session) -> None:
    with transaction.atomic():
        publish("default", {"n": "delayed"}, deliver_at=in_seconds(3600))
        publish("default", {"n": "at once"})
    with transaction.atomic():
        publish("default", {"n": "next"})
    assert move_due_messages("default") == 0
    assert number(session).messages == 2
    assert number(session).outcome == "idle"
    make_due()
    assert move_due_messages("default") == 1
    assert number(session).messages == 1
    assert names(checked_log(session, together=False)) == ["at once", "next", "delayed"]


def test_a_message_stays_the_same_through_its_delay(session: Session) -> None:
    options: dict[str, Any] = {
        "type": "t",
        "key": "k",
        "host_id": "h",
        "user_id": "u",
        "to_group": "g",
        "metadata": {"m": 1},
    }
    with transaction.atomic():
        event_id = publish("default", {"n": "x"}, deliver_at=in_seconds(-1), **options)
        publish("default", {"n": "beside"})
    waiting = DelayedMessage.objects.get()
    assert move_due_messages("default") == 1
    assert not DelayedMessage.objects.exists()
    moved = OutboxMessage.objects.get(event_id=event_id)
    kept = ("event_id", "transaction_id", "created_at", "topic_id", "payload", *options)
    assert {name: getattr(moved, name) for name in kept} == {name: getattr(waiting, name) for name in kept}
    assert {name: getattr(moved, name) for name in options} == options
    assert moved.transaction_id == OutboxMessage.objects.get(payload__n="beside").transaction_id
    assert number(session).messages == 2


def test_they_are_numbered_in_the_order_in_which_they_are_due(session: Session) -> None:
    for seconds in (-1, -3, -5, -7, -9):
        with transaction.atomic():
            publish("default", {"n": -seconds}, key="k", deliver_at=in_seconds(seconds))
    for _ in range(3):
        assert move_due_messages("default", limit=2) in (2, 1)
    assert move_due_messages("default") == 0
    number(session)
    assert names(checked_log(session)) == ["9", "7", "5", "3", "1"]


def test_a_pass_may_number_a_transaction_s_delayed_and_immediate_messages_at_once(session: Session) -> None:
    """If A committed before B was published, A comes before B – though a part of A's transaction came later."""
    with transaction.atomic():
        publish("default", {"n": "A"})
        publish("default", {"n": "A, delayed"}, deliver_at=in_seconds(-1))
    with transaction.atomic():
        publish("default", {"n": "B"})
    assert move_due_messages("default") == 1
    assert number(session).messages == 3
    assert names(checked_log(session, together=False)) == ["A", "B", "A, delayed"]


def test_a_move_that_is_undone_is_repeated(session: Session) -> None:
    with transaction.atomic():
        publish("default", {"n": "x"}, deliver_at=in_seconds(-1))
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert move_due_messages("default") == 1
        raise ZeroDivisionError
    assert number(session).outcome == "idle"
    assert move_due_messages("default") == 1
    assert number(session).messages == 1


def test_an_undone_delayed_message_is_never_numbered(session: Session) -> None:
    with transaction.atomic():
        publish("default", {"n": "kept"}, deliver_at=in_seconds(-1))
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            publish("default", {"n": "undone"}, deliver_at=in_seconds(-1))
            raise ZeroDivisionError
    assert move_due_messages("default") == 1
    number(session)
    assert names(checked_log(session)) == ["kept"]


def test_two_processes_that_move_at_once_share_the_work(session: Session, other: Session) -> None:
    with transaction.atomic():
        for n in range(10):
            publish("default", {"n": n}, deliver_at=in_seconds(n - 20))
    with transaction.atomic():
        assert move_due_messages("default", limit=6) == 6
        beside = Running(move_due_messages, "default", 6)
        assert beside.result() == 4, "what another has locked is neither waited for nor moved twice"
    assert move_due_messages("default") == 0
    assert number(session).messages == 10
    assert sorted(names(checked_log(session))) == [str(n) for n in range(10)]


def test_many_move_and_number_at_once(session: Session) -> None:
    with transaction.atomic():
        for n in range(200):
            publish("default", {"n": n}, deliver_at=in_seconds(-1))
    together = threading.Barrier(4)

    def move() -> int:
        connections["default"].ensure_connection()
        together.wait()
        moved = 0
        while step := move_due_messages("default", limit=7):
            moved += step
        return moved

    movers = [Running(move) for _ in range(4)]
    while any(mover.is_alive() for mover in movers):
        number(session)
    assert sum(mover.result() for mover in movers) == 200
    number(session)
    assert len(checked_log(session, together=False)) == 200


def test_a_mover_s_open_transaction_holds_nothing_back(session: Session, other: Session) -> None:
    with transaction.atomic():
        publish("default", {"n": "delayed"}, deliver_at=in_seconds(-1))
    with transaction.atomic():
        move_due_messages("default")
        insert(other, "published meanwhile")
        assert number(other).messages == 1
    assert number(session).messages == 1
    assert names(checked_log(session)) == ["published meanwhile", "delayed"]


def test_only_the_database_s_clock_counts(session: Session) -> None:
    with transaction.atomic():
        publish("default", {"n": "x"}, deliver_at=in_seconds(3600))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE outbox_delayed_message SET deliver_at = clock_timestamp() + interval '1 hour'")
        assert move_due_messages("default") == 0
        cursor.execute("UPDATE outbox_delayed_message SET deliver_at = clock_timestamp()")
        assert move_due_messages("default") == 1
