"""What fails by the database each time it is tried: it costs its own events, and an outage costs none."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction
from django.test import override_settings

from pubsub import Event
from pubsub.control.seek import seek
from pubsub.models import Attempt, ConsumerOffset, DeadLetter
from tests.db.conftest import DJANGOS, connected_with
from tests.handlers import declare, drain
from tests.sessions import Session, connection_parameters, wait_until

from .helpers import claims, cut_off, effects, fail_as, lag, look_for_work, note, publish_each, states

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("work", "effects_table"),
]

ATTEMPTS = 5
MODES = ["transactional", "at_least_once"]


def limited(limits: str, statement: str, alias: str = "default") -> Callable[[], None]:
    def call() -> None:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            cursor.execute(limits)
            cursor.execute(statement)

    return call


def idle_for_too_long() -> None:
    with transaction.atomic():
        connection.cursor().execute("SET idle_in_transaction_session_timeout = 5")
        pid = connection.connection.info.backend_pid
        with psycopg.connect(**connection_parameters(), autocommit=True) as other:
            gone = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)"
            wait_until(lambda: other.execute(gone, [pid]).fetchone() == (True,), "its time is over")
        connection.cursor().execute("SELECT 1")


def lose_and_hide() -> None:
    try:
        cut_off()
    except Exception:
        return


def lose_and_raise_another() -> None:
    try:
        cut_off()
    except Exception:
        raise ValueError("something has gone wrong") from None


def call_a_database_that_is_away() -> None:
    psycopg.connect("host=127.0.0.1 port=1 connect_timeout=5")


SLEEP = "SELECT pg_sleep(30)"
SORT = "SELECT count(*) FROM (SELECT n FROM generate_series(1, 100000) AS n ORDER BY n DESC) AS sorted"

PASSING: dict[str, tuple[Callable[[], None], str]] = {
    "runs into the statement timeout": (limited("SET LOCAL statement_timeout = 5", SLEEP), "statement timeout"),
    "finds a row locked": (limited("SELECT 1", "SELECT FROM held FOR UPDATE NOWAIT"), "could not obtain lock"),
    "is idle for too long": (idle_for_too_long, "idle-in-transaction timeout"),
    "needs too much on disk": (limited("SET LOCAL temp_file_limit = 64; SET LOCAL work_mem = 64", SORT), "temporary"),
    "always cannot be serialized": (lambda: fail_as("40001"), "failed as 40001"),
    "always lacks resources": (lambda: fail_as("53000"), "failed as 53000"),
    "is cut off": (cut_off, "terminating connection"),
    "is cut off and hides it": (lose_and_hide, "connection"),
    "is cut off and says something else": (lose_and_raise_another, "something has gone wrong"),
}

LASTING: dict[str, tuple[Callable[[], None], str]] = {
    "calls a database that is away": (call_a_database_that_is_away, "port 1"),
    "runs into another connection's timeout": (
        limited("SET LOCAL statement_timeout = 5", SLEEP, "other"),
        "statement timeout",
    ),
    "says that it was an outage": (lambda: raise_(psycopg.errors.AdminShutdown("by hand")), "by hand"),
}


def raise_(error: BaseException) -> None:
    raise error


@pytest.fixture
def held(session: Session) -> Iterator[None]:
    """A table whose one row another session has locked."""
    session.execute("CREATE TABLE held AS SELECT 1 AS n")
    session.execute("BEGIN; SELECT FROM held FOR UPDATE")
    yield
    session.execute("ROLLBACK; DROP TABLE held")


def failing(misdeed: Callable[[], None], calls: list[int]) -> Callable[[Event], None]:
    def handler(event: Event) -> None:
        note(event.payload)
        if event.payload == "bad":
            calls.append(event.attempt)
            misdeed()

    return handler


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("delivery", MODES)
@pytest.mark.parametrize("name", PASSING)
def test_what_fails_by_the_database_each_time_costs_its_own_event(name: str, delivery: str) -> None:
    publish_each(1, 2, "bad", 4, 5)
    misdeed, cause = PASSING[name]
    calls: list[int] = []
    drain(declare(failing(misdeed, calls), topic="work", delivery=delivery), wait_period_ms=1)
    if (name, delivery) == ("is cut off and hides it", "at_least_once"):
        assert states() == [], "outside a transaction, nothing is lost with the connection"
        return
    assert [payload for payload in effects() if payload != "bad"] == [1, 2, 4, 5]
    assert states() == [("bad", "dead")]
    letter = DeadLetter.objects.get()
    assert cause in letter.exception_message
    assert "Interrupted" not in letter.exception_class
    unseen = name == "is cut off and hides it"  # at first it shows at the next event
    assert calls == [1] * (ATTEMPTS + unseen)
    assert (lag(), claims()) == (0, [])


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("delivery", MODES)
@pytest.mark.parametrize(
    "name", ["runs into the statement timeout", "finds a row locked", "is cut off", "is cut off and hides it"]
)
def test_so_it_is_on_djangos_own_engine(name: str, delivery: str) -> None:
    with connected_with(engine=DJANGOS):
        test_what_fails_by_the_database_each_time_costs_its_own_event(name, delivery)


@pytest.mark.parametrize("delivery", MODES)
@pytest.mark.parametrize("name", LASTING)
def test_what_another_connection_raises_is_the_handlers_at_once(name: str, delivery: str) -> None:
    publish_each(1, "bad", 3)
    misdeed, cause = LASTING[name]
    calls: list[int] = []
    drain(declare(failing(misdeed, calls), topic="work", delivery=delivery), wait_period_ms=1)
    assert [payload for payload in effects() if payload != "bad"] == [1, 3]
    assert states() == [("bad", "dead")]
    assert cause in DeadLetter.objects.get().exception_message
    assert len(calls) == (2 if delivery == "transactional" else 1), "once with its batch, once by itself"


@pytest.mark.parametrize("delivery", MODES)
def test_then_it_takes_the_way_of_retry_and_on_failure(delivery: str) -> None:
    publish_each(1, "bad", 3)
    publish_each(4, key="another")
    calls: list[int] = []
    handler = failing(lambda: fail_as("40P01"), calls)
    drain(
        declare(handler, topic="work", delivery=delivery, retry=[0], on_failure="park_key"),
        wait_period_ms=1,
    )
    assert [payload for payload in effects() if payload != "bad"] == [1, 4]
    assert states() == [("bad", "dead"), (3, "parked")]
    assert calls == [1] * ATTEMPTS + [2] * ATTEMPTS, "each attempt has the whole budget"
    assert [attempt.exception_message.splitlines()[0] for attempt in Attempt.objects.all()] == ["failed as 40P01"] * 2


@pytest.mark.parametrize("delivery", MODES)
def test_it_may_stop_the_partition(delivery: str) -> None:
    publish_each(1, "bad", 3)
    drain(
        declare(
            failing(lambda: fail_as("40P01"), []), topic="work", delivery=delivery, retry=[9999], on_failure="stop"
        ),
        wait_period_ms=1,
    )
    assert [payload for payload in effects() if payload != "bad"] == [1]
    assert states() == [("bad", "retrying")]


@pytest.mark.parametrize("delivery", MODES)
def test_a_handler_of_lists_fails_by_the_database_for_one_transaction(delivery: str) -> None:
    publish_each(1, 2, "bad", 4, 5)

    def handler(events: list[Event]) -> None:
        for event in events:
            note(event.payload)
        if any(event.payload == "bad" for event in events):
            fail_as("53000")

    drain(declare(handler, topic="work", delivery=delivery, batch=True), wait_period_ms=1)
    assert states() == [("bad", "dead")]
    done = [payload for payload in effects() if payload != "bad"]
    assert done == ([1, 2, 4, 5] if delivery == "transactional" else [1, 2, 4, 5, 1, 2, 4, 5])
    assert lag() == 0


@pytest.mark.parametrize("delivery", MODES)
def test_what_passes_in_time_counts_for_nothing(delivery: str) -> None:
    publish_each(*range(6))
    calls: list[Any] = []

    def handler(event: Event) -> None:
        calls.append(event.payload)
        if event.payload % 2 and calls.count(event.payload) < ATTEMPTS:
            fail_as("40P01")
        note(event.payload)

    drain(declare(handler, topic="work", delivery=delivery), wait_period_ms=1)
    assert effects() == list(range(6))
    assert states() == []


@pytest.mark.parametrize("delivery", MODES)
def test_behind_it_a_handler_gets_lists_again(delivery: str) -> None:
    publish_each(1, 2)
    sizes: list[int] = []

    def handler(events: list[Event]) -> None:
        sizes.append(len(events))
        if len(sizes) == 1:
            fail_as("40P01")

    declaration = declare(handler, topic="work", delivery=delivery, batch=True)
    drain(declaration, wait_period_ms=1)
    publish_each(3, 4, 5)
    drain(declaration, wait_period_ms=1)
    assert sizes == [2, 1, 1, 3]
    assert lag() == 0


@pytest.mark.parametrize("delivery", MODES)
def test_another_worker_counts_on(delivery: str) -> None:
    publish_each("bad", 2)
    calls: list[int] = []
    declaration = declare(failing(lambda: fail_as("40P01"), calls), topic="work", delivery=delivery)
    for failures in range(1, ATTEMPTS):
        worker = drain_once(declaration)
        assert worker.passed == 0
        cursor = ConsumerOffset.objects.get()
        assert (cursor.failing_offset, cursor.failures) == (1, failures)
        ConsumerOffset.objects.update(rests_until=None)
    drain(declaration, wait_period_ms=1)
    assert states() == [("bad", "dead")]
    assert len(calls) == ATTEMPTS


def drain_once(declaration: Any) -> Any:
    """A worker that is stopped when something has failed, and dies with what it has in memory."""
    from pubsub.worker.worker import Worker

    worker = Worker([declaration], using="default", wait_period_ms=1, listen=False)

    def stop(*args: Any, **kwargs: Any) -> None:
        give_up(*args, **kwargs)
        worker.stop()

    give_up = worker._sessions.give_up_connection
    worker._sessions.give_up_connection = stop  # type: ignore[method-assign]
    worker.run()
    return worker


def test_all_workers_leave_the_partition_alone_for_a_while() -> None:
    publish_each("bad")
    declaration = declare(failing(lambda: fail_as("40P01"), []), topic="work")
    drain_once(declaration)
    ConsumerOffset.objects.update(rests_until="2100-01-01T00:00:00Z")
    assert [work.is_resting for work in look_for_work(declaration)] == [True]
    ConsumerOffset.objects.update(rests_until="2000-01-01T00:00:00Z")
    assert [work.is_resting for work in look_for_work(declaration)] == [False]


def test_a_group_that_goes_back_begins_again() -> None:
    publish_each("bad")
    drain_once(declare(failing(lambda: fail_as("40P01"), []), topic="work"))
    assert ConsumerOffset.objects.get().failures == 1
    seek("work", "readers", to="earliest", actor="test", using="default")
    cursor = ConsumerOffset.objects.get()
    assert (cursor.failing_offset, cursor.failures, cursor.rests_until) == (None, 0, None)


def test_the_log_names_the_event(caplog: pytest.LogCaptureFixture) -> None:
    publish_each("good", "bad", type="order.created")
    drain(declare(failing(lambda: fail_as("40P01"), []), topic="work"), wait_period_ms=1)
    letter = DeadLetter.objects.get()
    name = f"offset 2 (type 'order.created', key 'k', event {letter.event_id})"
    first, *_, last = (each for each in caplog.messages if name in each)
    assert "rests for 0.0 s: the database failed while" in first
    assert f"was handling {name}, 1 of 5 times: failed as 40P01" in first
    assert last.endswith(
        f"failed at {name}, attempt 1 (OperationalError); its transaction is a dead letter now: "
        f"see pubsub_dead_letters show {letter.pk}"
    )


@pytest.mark.parametrize("delivery", MODES)
def test_one_that_takes_too_long_each_time_is_given_up_sooner(delivery: str) -> None:
    publish_each("bad", 2)
    calls: list[int] = []

    def handler(event: Event) -> None:
        if event.payload == "bad":
            calls.append(1)
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL statement_timeout = 600")
                cursor.execute(SLEEP)

    with override_settings(PUBSUB={"transient_s": 1}):
        drain(declare(handler, topic="work", delivery=delivery), wait_period_ms=1)
    assert len(calls) == 2
    assert states() == [("bad", "dead")]


def test_a_handler_may_be_idle_for_longer_than_the_site_allows() -> None:
    publish_each(1)
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    options["options"] = "-c idle_in_transaction_session_timeout=20"

    def handler(event: Event) -> None:
        connection.cursor().execute("SELECT 1")
        with psycopg.connect(**connection_parameters(), autocommit=True) as other:
            other.execute("SELECT pg_sleep(0.2)")
        note(event.payload)

    try:
        drain(declare(handler, topic="work"), wait_period_ms=1)
    finally:
        del options["options"]
        connection.close()
    assert effects() == [1]
    assert states() == []
