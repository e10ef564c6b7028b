"""On Django's own engine everything works, too, and with the same outcome."""

from contextlib import nullcontext
from typing import Any

import pytest
from django.db import connection, connections, transaction

from pubsub import publish, publish_many
from pubsub.db.backend.base import DatabaseWrapper
from pubsub.db.backend.session import Session
from pubsub.db.guard import refusing_to_end
from pubsub.db.locks import WAITING
from pubsub.db.pipeline import FailedBehindCommit, begin, execute_together, is_short_way_open, rendered, send
from pubsub.db.transactions import begun_by_first_statement, make_hooks_robust
from pubsub.errors import HandlerEndedTransaction
from pubsub.models import DeadLetter, OutboxMessage
from pubsub.publishing.notify import HINT_CHANNEL
from pubsub.sequencing.sequencer import sequence
from tests.handlers import Recorder, declare, drain

from .conftest import OURS

pytestmark = pytest.mark.usefixtures("engine")


def test_the_engine_is_the_one_that_was_asked_for(engine: str) -> None:
    connection.ensure_connection()
    assert isinstance(connections["default"], DatabaseWrapper) == (engine == OURS)
    assert is_short_way_open(connections["default"]) == (engine == OURS)


def test_django_s_engine_never_goes_the_short_way(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []

    send = Session.send

    def noted(given: Session, text: bytes) -> Any:
        taken.append(text)
        return send(given, text)

    monkeypatch.setattr(Session, "send", noted)
    test_publishing()
    test_consuming("transactional")
    assert bool(taken) == (engine == OURS)


def test_publishing() -> None:
    odd = "it's \\ % ü"
    with transaction.atomic():
        publish("default", {odd: odd}, key=odd, type=odd)
        publish_many("default", [{"payload": n} for n in range(3)])
        publish("default", 4, dedup_key="once")
        publish("default", 5, dedup_key="once")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        publish("default", "undone")
        raise ZeroDivisionError
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            publish("default", "undone")
            raise ZeroDivisionError
        publish("default", "kept")
    payloads = list(OutboxMessage.objects.order_by("id").values_list("payload", flat=True))
    assert payloads == [{odd: odd}, 0, 1, 2, 4, "kept"]


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once", "at_most_once"])
def test_consuming(delivery: str) -> None:
    OutboxMessage.objects.all().delete()
    for n in range(5):
        with transaction.atomic():
            publish_many("default", [{"payload": [n, m]} for m in range(3)])
    handler = Recorder(fails=lambda event: event.payload == [2, 1])
    drain(declare(handler, delivery=delivery, group=delivery), batch_size=4)
    assert {tuple(payload) for payload in handler.payloads} >= {(n, m) for n in range(5) for m in range(3)} - {(2, 2)}
    assert {letter.payload[0] for letter in DeadLetter.objects.all()} == {2}
    again = Recorder()
    drain(declare(again, delivery=delivery, group=delivery))
    assert again.payloads == []


def test_a_handler_that_ends_its_transaction_only_fails_its_own_event() -> None:
    for payload in ("good", "by SQL", "by psycopg", "better"):
        with transaction.atomic():
            publish("default", payload, key=1)
    done: list[str] = []

    def handler(event: Any) -> None:
        with connection.cursor() as cursor:
            if event.payload == "by SQL":
                cursor.execute("/* now */ COMMIT")
            if event.payload == "by psycopg":
                connection.connection.commit()
        done.append(event.payload)

    drain(declare(handler), batch_size=10)
    assert sorted(letter.payload for letter in DeadLetter.objects.all()) == ["by SQL", "by psycopg"]
    assert {"good", "better"} <= set(done)


def test_hints(session: Any) -> None:
    session.execute(f"LISTEN {HINT_CHANNEL}")
    session.execute(f"SELECT pg_advisory_lock({WAITING})")
    with transaction.atomic():
        publish("default", 1)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            publish("default", 2)
            raise ZeroDivisionError
        publish("default", 3)
        publish_many("default", [{"payload": 4}])
    assert 1 <= len(list(session.notifies(timeout=0.5))) <= 2
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        publish("default", 5)
        raise ZeroDivisionError
    assert list(session.notifies(timeout=0.2)) == []


def test_a_hint_is_no_hook_where_it_travels_with_the_commit(engine: str) -> None:
    with transaction.atomic():
        for n in range(3):
            publish("default", n)
        assert bool(connections["default"].run_on_commit) == (engine != OURS)


def test_statements_that_travel_together() -> None:
    with begun_by_first_statement("default") as begun:
        insert = "INSERT INTO outbox_message_t (payload) VALUES (%(payload)s) RETURNING 'it''s %%', 7, NULL"
        parameters = {"payload": '"ü %"', "n": 1}
        answers = execute_together(begun, [insert, "SELECT %(n)s = 1", "COMMIT"], parameters)
        assert answers.rows(-3) == [("it's %", 7, None)]
        assert (answers.row(-2), answers.rows(-1), answers.is_true) == ((True,), [], False)
        with pytest.raises(FailedBehindCommit) as raised:
            execute_together(begun, [insert, "COMMIT", begin(begun.connection), "SELECT 1 / 0"], parameters)
        assert raised.value.answers.row(-2) == ("it's %", 7, None)
        transaction.set_rollback(True)
    assert [message.payload for message in OutboxMessage.objects.all()] == ["ü %"] * 2
    text = rendered(connections["default"], "SELECT %(text)s, %(many)s", {"text": "it's", "many": [1, 2]})
    assert send(connections["default"], text).rows() == [("it's", [1, 2])]


def test_numbering() -> None:
    with transaction.atomic():
        publish("default", 1)
    assert sequence("default").messages == 1
    assert sequence("default").outcome == "idle"


def test_ending_the_transaction_through_django_is_refused() -> None:
    with transaction.atomic(), refusing_to_end("default"):
        for statement in ("COMMIT", b"ROLLBACK"):
            with pytest.raises(HandlerEndedTransaction), connection.cursor() as cursor:
                cursor.execute(statement)
        with pytest.raises(Exception, match=r"atomic"):
            connection.commit()


@pytest.mark.parametrize("is_guarded", [True, False])
def test_hooks_of_handlers_do_not_harm_one_another(is_guarded: bool, caplog: pytest.LogCaptureFixture) -> None:
    called = []
    with transaction.atomic():
        with refusing_to_end("default") if is_guarded else nullcontext():
            transaction.on_commit(lambda: 1 / 0)
            transaction.on_commit(lambda: called.append(1))
        make_hooks_robust(connections["default"])
    assert called == [1]
    assert "division by zero" in caplog.text


def test_with_the_short_way_off_nothing_uses_it(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PUBSUB = {**settings.PUBSUB, "short_way": False}
    monkeypatch.setattr(Session, "send", None)
    monkeypatch.setattr(Session, "keep", None)
    test_publishing()
    test_consuming("transactional")
