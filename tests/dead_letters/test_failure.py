"""Whatever a handler raises is written down, as far as it can be stored, and keeps no partition waiting."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from pubsub import Event
from pubsub.dead_letters.failure import LONGEST, LONGEST_NAME
from pubsub.models import Attempt, DeadLetter
from tests.consuming.helpers import lag, publish_each, states
from tests.handlers import Recorder, declare, drain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]


class Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Interrupts(Exception):
    def __str__(self) -> str:
        raise GeneratorExit


def many_causes() -> BaseException:
    error = ValueError("the first")
    for n in range(100_000):
        try:
            raise ValueError(f"number {n}") from error
        except ValueError as outer:
            error = outer
    return error


MESSAGE, TRACEBACK = "exception_message", "traceback"

ODD: dict[str, tuple[Callable[[], BaseException], str, str]] = {
    "its text exits": (Exits, MESSAGE, "(its message could not be had: SystemExit)"),
    "its text ends the generator": (Interrupts, MESSAGE, "(its message could not be had: GeneratorExit)"),
    "its text is 20 MB long": (lambda: ValueError("x" * 20_000_000), MESSAGE, "19980000 characters are left out"),
    "it has 100,000 causes": (many_causes, TRACEBACK, "more than 100 causes"),
    "it is a group of 100,000": (
        lambda: ExceptionGroup("many", [ValueError(n) for n in range(100_000)]),
        TRACEBACK,
        "ExceptionGroup: many",
    ),
    "it has characters that no text column takes": (lambda: ValueError("a\x00b\udc80"), MESSAGE, "a\\x00b\\udc80"),
    "its class has an endless name": (type("E" * 5000, (Exception,), {}), "exception_class", "characters are left"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("delivery", ["transactional", "at_least_once", "at_most_once"])
@pytest.mark.parametrize("name", ODD)
def test_an_odd_exception_costs_its_own_event(name: str, delivery: str) -> None:
    make, field, expected = ODD[name]
    publish_each(1, "bad", 3)
    handled: list[Any] = []

    def handler(event: Event) -> None:
        if event.payload == "bad":
            raise make()
        handled.append(event.payload)

    drain(declare(handler, topic="work", delivery=delivery), wait_period_ms=1)
    assert set(handled) == {1, 3}
    assert states() == [("bad", "dead")]
    letter = DeadLetter.objects.get()
    assert expected in getattr(letter, field)
    assert len(letter.exception_message) <= LONGEST + 100
    assert len(letter.traceback) <= LONGEST + 100
    assert len(letter.exception_class) <= LONGEST_NAME + 100
    assert lag() == 0


class KeyboardInterruptOfItsOwn(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once", "at_most_once"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, KeyboardInterruptOfItsOwn, GeneratorExit, SystemExit])
def test_what_would_end_a_program_is_the_handlers_failure(
    error: type[BaseException], delivery: str, a_signal_handler: None
) -> None:
    publish_each(1, "bad", 3)

    def handler(event: Event) -> None:
        if event.payload == "bad":
            raise error

    drain(declare(handler, topic="work", delivery=delivery), wait_period_ms=1)
    assert states() == [("bad", "dead")]
    assert lag() == 0


@pytest.fixture
def a_signal_handler() -> Iterator[None]:
    """As `run_consumer` has one: Ctrl-C raises nothing then."""
    import signal

    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("pythons_ctrl_c")
def test_where_no_one_else_handles_ctrl_c_it_ends_the_worker() -> None:
    publish_each(1)

    def handler(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drain(declare(handler, topic="work"))
    assert states() == []


@pytest.fixture
def particular() -> Iterator[None]:
    """A database that does not know the character →, as those that are not in UTF8."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF NEW.exception_message LIKE '%→%' THEN RAISE 'no such character' USING ERRCODE = '22P05'; END IF;"
            " RETURN NEW; END $$;"
            "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON dead_letter_queue FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION refuse() CASCADE")


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
def test_what_postgresql_does_not_take_is_kept_without_its_texts(delivery: str, particular: None) -> None:
    publish_each(1, "bad", 3)

    def handler(event: Event) -> None:
        if event.payload == "bad":
            raise ValueError("a → b")

    drain(declare(handler, topic="work", delivery=delivery, retry=[0]), wait_period_ms=1)
    assert states() == [("bad", "dead")]
    letter = DeadLetter.objects.get()
    assert (letter.exception_class, letter.attempts) == ("builtins.ValueError", 2)
    assert letter.exception_message == "(its message could not be stored: SQLSTATE 22P05)"
    assert Attempt.objects.count() == 2


class Endless:
    retries = 3

    def __init__(self, delay: Any) -> None:
        self.delay = delay

    def delay_after(self, attempts: int) -> Any:
        if isinstance(self.delay, Exception):
            raise self.delay
        return self.delay

    def as_json(self) -> Any:
        return "endless"


@pytest.mark.parametrize(
    ("delay", "state"),
    [(1e300, "retrying"), (float("inf"), "retrying"), (ValueError("no"), "dead"), ("soon", "dead")],
)
def test_a_retry_policy_that_cannot_work_keeps_no_partition_waiting(delay: Any, state: str) -> None:
    publish_each("bad", 2)
    handler = Recorder(fails=lambda event: event.payload == "bad")
    drain(declare(handler, topic="work", retry=Endless(delay)), wait_period_ms=1)
    assert states() == [("bad", state)]
    assert 2 in handler.payloads
