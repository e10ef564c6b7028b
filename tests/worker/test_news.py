"""What a pass has moved is handled without looking for it, unless there is more to know."""

from collections.abc import Callable

import pytest
from django.db import connection, transaction

from pubsub import publish
from pubsub.control import pause, resume
from pubsub.models import ConsumerOffset, Lease
from pubsub.sequencing.sequencer import sequence
from pubsub.worker.news import News
from pubsub.worker.worker import Worker
from tests.handlers import Recorder, declare
from tests.sessions import Session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("wide")]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, the handler counts as quick."""
    monkeypatch.setattr("pubsub.worker.sessions.TOGETHER_S", 60)


def test_news_are_collected_until_they_are_taken() -> None:
    news = News()
    assert not news.wait(0)
    news.tell({(1, 0)})
    news.tell({(1, 3), (2, 0)})
    assert news.wait(0)
    assert news.take() == {(1, 0), (1, 3), (2, 0)}
    assert not news.wait(0)
    news.tell({(1, 0)})
    news.set()
    assert news.take() is None, "there may be anything"
    assert news.take() == set()


class Told:
    """A worker that knows how quick its handler is, and hears of what passes have moved."""

    def __init__(self) -> None:
        self.handler = Recorder()
        self.worker = Worker([declare(self.handler, topic="wide")], using="default", listen=False)
        self.worker._register()
        publish_and_number("first")
        self.look()

    def look(self) -> None:
        while self.worker._step(self.worker._sessions.work_on, False):
            continue

    def hears_of(self, *payloads: str) -> bool:
        """Whether the worker has handled all of it, as far as it knows."""
        return self.worker._has_handled(publish_and_number(*payloads))


def publish_and_number(*payloads: str) -> set[tuple[int, int]]:
    with transaction.atomic():
        for payload in payloads:
            publish("wide", payload, key=payload)
    return set(sequence("default").moved)


def test_a_pass_tells_which_partitions_it_has_moved() -> None:
    moved = publish_and_number("a", "b", "c", "d")
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT topic_id, partition_id FROM log_entry")
        assert moved == set(cursor.fetchall())
    assert sequence("default").moved == set()


def test_what_a_pass_has_moved_is_handled_at_once() -> None:
    told = Told()
    assert told.hears_of("a", "b", "c")
    assert sorted(told.handler.payloads) == ["a", "b", "c", "first"]
    assert told.worker._has_handled({(0, 0)}), "another topic's"


def paused(session: Session) -> None:
    pause("wide", "readers", actor="test", using="default")


def resting(session: Session) -> None:
    ConsumerOffset.objects.update(rests_until="2100-01-01T00:00:00Z")


def leased(session: Session) -> None:
    cursor = ConsumerOffset.objects.get(partition_id=0)
    for partition in range(8):
        Lease.objects.create(
            group_id="readers",
            topic_id=cursor.topic_id,
            partition_id=partition,
            first_offset=1,
            last_offset=1,
            worker_id="another",
            epoch=1,
            attempts=1,
            expires_at="2100-01-01T00:00:00Z",
        )


def left_by_a_death(session: Session) -> None:
    session.execute("BEGIN")
    session.execute("SELECT FROM consumer_offsets FOR UPDATE")
    session.execute("ROLLBACK")


@pytest.mark.parametrize("state", [paused, resting, leased, left_by_a_death])
def test_where_there_is_more_to_know_it_looks_first(state: Callable[[Session], None], session: Session) -> None:
    told = Told()
    state(session)
    assert not told.hears_of("a")
    assert told.handler.payloads == ["first"]
    if state is paused:
        resume("wide", "readers", actor="test", using="default")
        told.look()
        assert told.handler.payloads == ["first", "a"]


def test_what_fails_is_left_to_a_look() -> None:
    told = Told()
    told.handler.fails = lambda event: event.payload == "b"
    assert not told.hears_of("a", "b", "c")
    told.look()
    assert {"a", "b", "c"} <= set(told.handler.payloads)
    assert told.worker.failed == 1
