"""What docs/ordering.md says about order: where it holds, where not, and what to do about it."""

from typing import Any

import pytest
from django.db import connection, transaction

from pubsub import Event, publish
from pubsub.models import DeadLetter
from tests.consuming.helpers import number, publish_each
from tests.handlers import Recorder, declare, drain
from tests.log import checked_log, names
from tests.sessions import Running, Session, wait_until_blocked

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]


class FailsOnce(Recorder):
    """Fails at its first call, and lists what it has handled."""

    def __init__(self) -> None:
        super().__init__(lambda event: event.payload == "placed" and event.attempt == 1)
        self.handled: list[Any] = []

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        self.handled.append(event.payload)


def handled_with(on_failure: str) -> list[Any]:
    handler = FailsOnce()
    declaration = declare(handler, topic="work", retry=[0], on_failure=on_failure)
    publish_each("placed", "cancelled", key="order 7")
    drain(declaration)
    drain(declaration)
    return handler.handled


def test_by_default_later_events_of_the_key_overtake_one_that_failed() -> None:
    # The batch is run again without what failed: so "cancelled" may be called twice, and commits once, before "placed".
    assert handled_with("dead_letter")[-2:] == ["cancelled", "placed"]


@pytest.mark.parametrize("on_failure", ["park_key", "stop"])
def test_where_a_failure_holds_its_key_the_order_of_the_key_holds(on_failure: str) -> None:
    handled = handled_with(on_failure)
    assert handled[-2:] == ["placed", "cancelled"]
    assert not DeadLetter.objects.exclude(state="resolved").exists()


@pytest.fixture
def balance(effects_table: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO effects (payload) VALUES ('0')")


def change(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE effects SET payload = %s", [name])


def announce(name: str) -> None:
    publish("work", {"n": name}, key="the row")


def overlapping(session: Session, other: Session, *, publishes_first: bool) -> tuple[list[str], str]:
    """A has locked the row when B begins, and publishes and commits while B waits. The log, and what the row holds."""

    def b() -> None:
        with transaction.atomic():
            if publishes_first:
                announce("B")
            b_is.append(connection.connection)
            change("B")
            if not publishes_first:
                announce("B")

    b_is: list[Session] = []
    with transaction.atomic():
        change("A")
        waiting = Running(b)
        while not b_is:
            assert waiting.is_alive()
        wait_until_blocked(b_is[0], other)
        announce("A")
    waiting.result()
    number()
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload FROM effects")
        return names(checked_log(session)), cursor.fetchone()[0]


@pytest.mark.usefixtures("balance")
def test_published_after_the_row_was_changed_events_have_the_order_of_its_changes(
    session: Session, other: Session
) -> None:
    assert overlapping(session, other, publishes_first=False) == (["A", "B"], "B")


@pytest.mark.usefixtures("balance")
def test_published_before_the_row_was_changed_they_may_have_another(session: Session, other: Session) -> None:
    assert overlapping(session, other, publishes_first=True) == (["B", "A"], "B")


def test_one_thread_handles_one_event_at_a_time_whichever_groups_it_works_for() -> None:
    calls: list[str] = []

    def handler(name: str) -> Any:
        def handle(event: Event) -> None:
            calls.extend((f"{name} begins", f"{name} ends"))

        return handle

    publish_each(1, 2)
    drain(*(declare(handler(name), topic="work", group=name) for name in ("slow", "quick")))
    assert len(calls) == 8
    assert all(end == begin.replace("begins", "ends") for begin, end in zip(calls[::2], calls[1::2], strict=True))
