"""Background parts: one step after another, a failure ends nothing, and stopping is prompt."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError

from pubsub.db.background import BackgroundPart, ListeningPart
from pubsub.errors import PubSubError
from pubsub.worker.leader import Leader
from pubsub.worker.maintenance import Maintenance
from pubsub.worker.membership import Membership
from tests.sessions import Session, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

LONG_S = 60.0


class Counter(BackgroundPart):
    """Counts its steps, and fails in the given ones."""

    thread_name = "counter"
    when_failing = "nothing is counted"

    def __init__(self, fails_in: tuple[int, ...] = (), *, retry_s: float = 0.01, ends_after: int = 1000) -> None:
        super().__init__("default", retry_s=retry_s)
        self.fails_in = fails_in
        self.ends_after = ends_after
        self.steps = 0

    def step(self) -> float | None:
        self.steps += 1
        if self.steps in self.fails_in:
            raise OperationalError(f"step {self.steps}")
        return LONG_S if self.steps < self.ends_after else None


class Ear(ListeningPart):
    """Counts its connections and what it hears."""

    thread_name = "ear"
    when_failing = "nothing is heard"
    connections = heard = 0
    pid: int | None = None

    def on_connect(self, connection: Session) -> None:
        connection.execute("LISTEN ear")
        self.connections += 1
        self.pid = connection.info.backend_pid

    def step(self) -> float:
        self.connection()
        self.heard += self.notified
        return LONG_S


@contextmanager
def running(part: BackgroundPart) -> Iterator[None]:
    part.start()
    try:
        yield
    finally:
        part.stop()
    assert not part.is_running


def test_it_rests_between_steps_until_it_is_woken() -> None:
    part = Counter()
    with running(part):
        wait_until(lambda: part.steps == 1, "the first step")
        part.wake()
        wait_until(lambda: part.steps == 2, "the second step")


def test_a_step_that_fails_is_logged_and_taken_again(caplog: pytest.LogCaptureFixture) -> None:
    part = Counter((1, 2, 3))
    with caplog.at_level(logging.WARNING), running(part):
        wait_until(lambda: part.steps == 4, "a step succeeds")
    pauses = [record.args[2] for record in caplog.records if "nothing is counted" in record.message]  # type: ignore[index]
    assert pauses == [0.01, 0.02, 0.04]


def test_a_step_may_end_it_for_good() -> None:
    part = Counter(ends_after=1)
    part.start()
    wait_until(lambda: not part.is_running, "it has ended")
    part.wake()
    part.stop()
    assert part.steps == 1


def test_it_can_be_stopped_from_a_signal_handler_and_then_joined() -> None:
    part = Counter()
    part.start()
    part.stop(wait=False)
    part.stop()
    assert not part.is_running
    with pytest.raises(PubSubError, match="make a new one"):
        part.start()


def test_one_that_was_never_started_is_stopped_at_once() -> None:
    part = Counter()
    part.wake()
    part.stop()
    assert not part.was_started


def test_a_notification_ends_its_rest(session: Session) -> None:
    part = Ear("default")
    with running(part):
        wait_until(lambda: part.connections == 1, "it listens")
        for n in range(1, 4):
            session.execute("NOTIFY ear")
            wait_until(lambda n=n: part.heard == n, "it has heard")  # type: ignore[misc]


def test_a_connection_that_is_cut_ends_its_rest_and_is_replaced(session: Session) -> None:
    part = Ear("default", retry_s=0.01)
    with running(part):
        wait_until(lambda: part.connections == 1, "it listens")
        session.execute("SELECT pg_terminate_backend(%s)", [part.pid])
        wait_until(lambda: part.connections == 2, "it listens again")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Leader("nowhere", 1.0), 'no database "nowhere"; there are: default'),
        (lambda: Leader("default", 0), "wait_period_s must be positive, got 0"),
        (lambda: Counter(retry_s=-1), "retry_s must be positive, got -1"),
        (lambda: Membership("default", "", []), "worker_id must be a name, got ''"),
        (lambda: Maintenance("nowhere"), 'no database "nowhere"; there are: default'),
    ],
)
def test_a_bad_value_is_refused_and_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(PubSubError, match=message):
        make()


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    with running(Counter()), running(Ear("default")):
        pass
    assert threading.active_count() == before
