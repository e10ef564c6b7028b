"""A failed attempt in the log: once, with its traceback, and with what one needs to find it."""

import itertools
import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from pubsub import Event
from pubsub.dead_letters.failure import loggable
from pubsub.dead_letters.log_limit import LogLimit
from pubsub.models import DeadLetter
from pubsub.retry import RetryPolicy
from pubsub.signals import Call, around_handler
from tests.consuming.helpers import publish_each, publish_together
from tests.handlers import declare, drain
from tests.sessions import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]

SECRET = "4929-1234-5678"


def charge(event: Event) -> None:
    if event.payload != "good":
        raise ValueError(f"cannot charge {event.payload}")


def charge_all(events: list[Event]) -> None:
    for event in events:
        charge(event)


def failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "pubsub.dead_letters.report"]


def text_of(record: logging.LogRecord) -> str:
    return logging.Formatter().format(record)


@pytest.mark.parametrize("takes_batches", [False, True])
@pytest.mark.parametrize("delivery", ["transactional", "at_least_once", "at_most_once"])
def test_an_attempt_is_logged_once_with_its_traceback(
    delivery: str, takes_batches: bool, caplog: pytest.LogCaptureFixture
) -> None:
    publish_each("good", "bad", type="order.placed", key="7")
    handler: Callable[..., None] = charge_all if takes_batches else charge
    drain(declare(handler, topic="work", delivery=delivery, batch=takes_batches), wait_period_ms=1)
    (record,) = failures(caplog)
    assert record.exc_info
    assert record.exc_info[0] is ValueError
    frames = traceback.extract_tb(record.exc_info[2])
    assert frames[-1].name == "charge"
    assert "ValueError: cannot charge bad" in text_of(record)


def test_a_retry_is_a_warning_and_giving_up_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    publish_each("bad")
    drain(declare(charge, topic="work", retry=[0.01]), wait_period_ms=1)
    letter = DeadLetter.objects.get()
    assert [record.levelname for record in failures(caplog)] == ["WARNING", "ERROR"]
    first, second = (record.getMessage() for record in failures(caplog))
    where = f"see pubsub_dead_letters show {letter.pk}"
    assert first.endswith(f"attempt 1 (ValueError); its transaction will be retried in 0.01 s: {where}")
    assert second.endswith(f"attempt 2 (ValueError); its transaction is a dead letter now: {where}")


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once", "at_most_once"])
def test_the_record_says_which_event_failed_and_where_to_look(delivery: str, caplog: pytest.LogCaptureFixture) -> None:
    publish_together("good", "bad", "good", key="7")
    drain(declare(charge, topic="work", delivery=delivery))
    (record,) = failures(caplog)
    failed = DeadLetter.objects.get(c_offset=2)
    expected = {
        "group": "readers",
        "topic": "work",
        "partition": 0,
        "offset": 2,
        "event_id": str(failed.event_id),
        "event_type": "",
        "key": "7",
        "transaction_id": str(failed.transaction_id),
        "attempt": 1,
        "handler": f"{__name__}.charge",
        "exception_class": "builtins.ValueError",
        "retry_in_s": None,
        "dead_letter": DeadLetter.objects.get(c_offset=1).pk,
    }
    assert {name: value for name, value in vars(record).items() if name in expected} == expected


def test_what_is_undone_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The first failure is undone with its transaction when the second handler leaves none; it comes again."""
    publish_each("bad", "worse", "good")

    def handler(event: Event) -> None:
        if event.payload == "worse":
            transaction.get_connection().close()
        charge(event)

    drain(declare(handler, topic="work"))
    assert [vars(record)["offset"] for record in failures(caplog)] == [1, 2]


def test_payloads_that_are_redacted_are_not_in_the_log_either(caplog: pytest.LogCaptureFixture) -> None:
    def handler(event: Event) -> None:
        try:
            charge(event)
        except ValueError as error:
            error.add_note(SECRET)
            raise ExceptionGroup(SECRET, [error, KeyError(SECRET)]) from error

    publish_each(SECRET)
    with override_settings(PUBSUB={"redact_paths": ["card"]}):
        drain(declare(handler, topic="work"))
    (record,) = failures(caplog)
    text = text_of(record)
    assert SECRET not in text
    assert "ExceptionGroup: [redacted] (2 sub-exceptions)" in text
    assert "ValueError: [redacted]" in text
    assert "in charge" in text
    assert "KeyError: [redacted]" in text


def test_what_fails_because_of_a_failure_does_not_log_it(caplog: pytest.LogCaptureFixture) -> None:
    def charge_it(event: Event) -> None:
        charge(event)

    @contextmanager
    def observer(call: Call) -> Iterator[None]:
        try:
            yield
        finally:
            raise RuntimeError("the observer's own")

    class Failing(RetryPolicy):
        retries = 1

        def delay_after(self, attempts: int) -> float:
            raise RuntimeError("the policy's own")

        def as_json(self) -> Any:
            return "failing"

    publish_each(SECRET)
    around_handler.add(observer)
    try:
        with override_settings(PUBSUB={"redact_paths": ["card"]}):
            drain(declare(charge_it, topic="work", retry=Failing()))
    finally:
        around_handler.remove(observer)
    assert "the observer's own" in caplog.text
    assert "the policy's own" in caplog.text
    assert SECRET not in caplog.text


class Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def many_causes() -> BaseException:
    causes = [ValueError(str(n)) for n in range(100_000)]
    for inner, outer in itertools.pairwise(causes):
        outer.__cause__ = inner
    return causes[-1]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Exits(), "Exits: (its message could not be had: SystemExit)\n"),
        (ValueError("x" * 30_000), "10000 characters are left out"),
        (ValueError("\x1b[2J"), "ValueError: \\x1b[2J\n"),
        (many_causes(), "ValueError: 99999\n"),
        (ExceptionGroup("", [ExceptionGroup("inner\x07", [KeyError(1)])]), "ExceptionGroup: inner\\x07"),
    ],
)
def test_an_odd_exception_has_a_stand_in(error: BaseException, text: str) -> None:
    shown = loggable(error)
    assert shown is not error
    assert (type(shown).__name__, type(shown).__module__) == (type(error).__name__, type(error).__module__)
    assert text in "".join(traceback.format_exception(shown))


def test_an_exception_that_does_no_harm_is_logged_as_it_is() -> None:
    error = ValueError("two\nlines")
    assert loggable(error) is error


def test_what_fails_on_everything_is_counted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub.dead_letters.report.limit", LogLimit(minute_s=0.5))
    publish_each(*range(20))
    with override_settings(PUBSUB={"logged_failures_per_minute": 3}):
        drain(declare(charge, topic="work"), declare(charge, topic="work", group="others"))
    counted = "… 17 more failures of"
    wait_until(lambda: caplog.text.count(counted) == 2, "both numbers are logged")
    ours = [record for record in failures(caplog) if vars(record)["group"] == "readers"]
    assert [vars(record)["offset"] for record in ours if record.exc_info] == [1, 2, 3]
    assert ours[-1].levelname == "ERROR"
    assert ours[-1].getMessage() == (
        f"readers on work: … 17 more failures of {__name__}.charge (ValueError) within a minute: "
        f"see pubsub_dead_letters list --group readers --exception builtins.ValueError"
    )


def test_each_kind_has_a_limit_of_its_own_and_each_minute() -> None:
    left_out: list[int] = []
    limit = LogLimit(minute_s=0.2)
    admitted = [limit.admits(kind, 1, left_out.append) for kind in ("a", "a", "b", "a")]
    assert admitted == [True, False, True, False]
    wait_until(lambda: left_out == [2], "a minute is over")
    assert limit.admits("a", 1, left_out.append)
    limit.close()
    assert left_out == [2], "nothing was left out since"


def test_one_thread_says_what_many_kinds_have_left_out() -> None:
    left_out: list[int] = []
    limit = LogLimit(minute_s=0.3)
    for kind in range(100):
        assert [limit.admits(kind, 1, left_out.append) for _ in range(3)] == [True, False, False]
    assert sum(thread.name == "pubsub-log-limit" for thread in threading.enumerate()) <= 1
    wait_until(lambda: left_out == [2] * 100, "the minute is over for all of them")


def test_old_kinds_are_forgotten() -> None:
    limit = LogLimit(minute_s=0)
    for n in range(5000):
        assert limit.admits(n, 1, print)
    assert len(limit._minutes) <= 1001
