"""Where the database's transactions are strict by default, and where no session lasts: the same promises."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, connections, transaction

from pubsub import Delivery, Event, publish
from pubsub.dead_letters import actions
from pubsub.models import DeadLetter, Lease
from pubsub.subscriptions.register import register_subscription
from pubsub.worker.worker import Worker
from tests.handlers import Recorder, declare, drain
from tests.sessions import Running, wait_until

from .helpers import claims, effects, lag, leaseholder, look_for_work, note, number, publish_each, states, task_of

MODES = list(Delivery)
pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.fixture(params=["repeatable read", "serializable"])
def strict(request: pytest.FixtureRequest, session: "psycopg.Connection[Any]") -> Iterator[None]:
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    session.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{request.param}'")
    connection.close()
    yield
    session.execute(f"ALTER DATABASE {name} RESET default_transaction_isolation")
    connection.close()


def promises(mode: Delivery) -> None:
    """Several workers, failures and retries: each effect as often as the mode says, in order."""
    for n in range(5):
        with transaction.atomic():
            for key in range(10):
                publish("wide", [key, n], key=key)

    def handler(event: Event) -> None:
        note(event.payload)
        if event.payload == [3, 2] and event.attempt < 2:
            raise ValueError

    retry = () if mode is Delivery.AT_MOST_ONCE else (0,)
    declaration = declare(handler, topic="wide", delivery=mode, retry=retry, on_failure="park_key")
    register_subscription(declaration, using="default")
    number()
    workers = [Worker([declaration], using="default", batch_size=4, wait_period_ms=10, listen=False) for _ in range(3)]
    running = [Running(worker.run) for worker in workers]
    try:
        wait_until(all_is_done, "all is done", 60)
    finally:
        for worker in workers:
            worker.stop()
    for each in running:
        each.result()
    done = effects()
    if mode is Delivery.TRANSACTIONAL:
        assert len(done) == 50
    for key in range(10):
        firsts = list(dict.fromkeys(n for key_, n in done if key_ == key))
        if mode is Delivery.AT_MOST_ONCE:
            assert len(firsts) == len([each for each in done if each[0] == key])
        else:
            assert set(firsts) == set(range(5))
    assert ("dead" in {state for _, state in states()}) == (mode is Delivery.AT_MOST_ONCE)


def all_is_done() -> bool:
    try:
        if lag() or claims():
            return False
        # Last: what failed before the group had passed everything is there by now.
        left = {state for _, state in states()}
        # Behind a dead letter events stay parked. Otherwise they go on: where transactions are strict, maintenance may
        # have to let them go.
        waits = "retrying" in left or ("parked" in left and "dead" not in left)
        return not waits
    except OperationalError:
        return False  # where transactions are strict, to look is one, too


@pytest.mark.parametrize("mode", MODES)
def test_strict_transactions(mode: Delivery, strict: None, wide: str, effects_table: None) -> None:
    promises(mode)


@pytest.mark.parametrize("mode", MODES)
def test_through_a_pooler(mode: Delivery, wide: str, effects_table: None, through_pooler: None) -> None:
    promises(mode)


def test_leases_through_a_pooler(work: str, session: "psycopg.Connection[Any]", through_pooler: None) -> None:
    publish_each(1, 2)
    number()
    handler = Recorder()
    task = task_of(declare(handler, topic="work", delivery=Delivery.AT_LEAST_ONCE))
    with leaseholder("one", 1) as one, leaseholder("two", 1) as two:
        lease = one.take(task, 10)
        assert lease
        (first,) = session.execute("SELECT expires_at FROM consumer_claims").fetchone() or (None,)
        wait_until(lambda: Lease.objects.get().expires_at > first, "it is renewed")
        assert Lease.objects.get().lock_key is None, "no session can be watched here"
        assert two.consume(task, 10).passed == 0
        assert [found.is_leased for found in look_for_work(task.declared, "two")] == [True]
    assert (
        session.execute(
            "SELECT FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND locktype = 'advisory' AND classid = x'70756274'::int"
        ).fetchone()
        is None
    )
    with leaseholder("two", 1) as two:
        wait_until(lambda: two.consume(task, 10).passed == 1, "taken over when the lease has ended")
        assert two.consume(task, 10).passed == 1
    assert handler.payloads == [1, 2]
    assert (lag(), claims()) == (0, [])


def test_a_retry_through_a_pooler(work: str, through_pooler: None) -> None:
    publish_each(1)
    drain(declare(Recorder(fails=lambda event: True), topic="work"))
    actions.replay([DeadLetter.objects.get().pk], using="default")
    drain(declare(Recorder(), topic="work"))
    assert states() == [(1, "resolved")]
    assert not connections["default"].in_atomic_block


@contextmanager
def option(name: str, value: Any) -> Iterator[None]:
    """Of the database's OPTIONS, from the next connection on."""
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    options[name] = value
    try:
        yield
    finally:
        del options[name]
        connection.close()


def test_a_batch_has_the_isolation_level_of_the_database_s_options(work: str, effects_table: None) -> None:
    seen = []

    def handler(event: Event) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            seen.append(cursor.fetchone())
        note(event.payload)

    with option("isolation_level", psycopg.IsolationLevel.REPEATABLE_READ):
        publish_each(1, 2)
        drain(declare(handler, topic="work"))
        assert seen == [("repeatable read",)] * 2
        assert effects() == [1, 2]


def test_where_the_server_binds_parameters(work: str, effects_table: None) -> None:
    """There, a cursor of Django's takes one statement at a time."""

    def handler(event: Event) -> None:
        note(event.payload)
        if event.payload == 2:
            raise ValueError

    with option("server_side_binding", True):
        publish_each(1, 2, 3)
        drain(declare(handler, topic="work"))
        assert effects() == [1, 3]
        assert states() == [(2, "dead")]
