"""No process polls when a hint can come, none hints when none waits, and a lost hint costs one poll."""

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, Queue
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from pubsub import publish, publish_many, publish_on_commit
from pubsub.consuming.find_work import WorkFinder
from pubsub.db import locks
from pubsub.events import Event
from pubsub.models import OutboxMessage, Topic
from pubsub.publishing.notify import HINT_CHANNEL
from pubsub.sequencing.delayed import move_due_messages
from pubsub.subscriptions.declare import Declaration
from pubsub.worker.worker import Worker
from tests.log import checked_log, insert
from tests.processes import PUBLISHER, WORKER, child
from tests.sessions import Running, Session, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

NEVER_MS = 60_000
"""A poll period that no test sees the end of."""

PROMPT_S = 10
"""Far less than that, and far more than a busy machine needs."""


class Listener:
    """A worker in a thread, and the names of the events that it has handled."""

    def __init__(self, wait_period_ms: int, group: str = "listener", topic: str = "default", threads: int = 1) -> None:
        self.handled: Queue[str] = Queue()
        self.sessions: set[int] = set()
        """The servers' processes that have served it."""
        declared = Declaration(topic=topic, group=group, handler=self.note, start="earliest")
        self.worker = Worker([declared], using="default", wait_period_ms=wait_period_ms, threads=threads)
        assert self.worker._leader
        self.coordinator = self.worker._leader
        self.running = Running(self.worker.run)

    def note(self, event: Event) -> None:
        self.sessions.add(connection.connection.info.backend_pid)
        self.handled.put(event.payload["n"])

    def expect(self, *names: str, seconds: float = PROMPT_S) -> None:
        for name in names:
            try:
                assert self.handled.get(timeout=seconds) == name
            except Empty:
                raise AssertionError(f"{name!r} was not handled within {seconds} s") from None


@contextmanager
def listening(wait_period_ms: int = NEVER_MS, **options: Any) -> Iterator[Listener]:
    listener = Listener(wait_period_ms, **options)
    try:
        yield listener
    finally:
        listener.worker.stop()
        listener.running.result(PROMPT_S)


ADVISORY = (
    "SELECT pid FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND locktype = 'advisory' AND granted AND objid = %s AND objsubid = 2"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
LEADING, WAITING, FOLLOWING = 1, 2, 3


def holders(session: Session, lock: int) -> list[int]:
    return [pid for (pid,) in session.execute(ADVISORY, [lock])]


def wait_until_idle(session: Session) -> int:
    """Waits until a session waits for a hint. Returns its process id."""
    return wait_until(lambda: holders(session, WAITING), "a session waits for a hint")[0]


def passed(session: Session) -> int:
    (events,) = session.execute("SELECT coalesce(sum(passed), 0) FROM consumer_offsets").fetchone() or (0,)
    return int(events)


def publish_one(name: str, topic: str = "default", deliver_at: dt.datetime | None = None) -> None:
    with transaction.atomic():
        publish(topic, {"n": name}, deliver_at=deliver_at)


def test_a_handler_is_called_soon_after_the_commit(session: Session) -> None:
    with listening() as listener:
        for n in range(5):
            wait_until_idle(session)
            publish_one(f"{n}")
            listener.expect(f"{n}")


def test_many_events_in_a_row_while_the_leader_falls_asleep_and_wakes(session: Session) -> None:
    """No pause is the right one to publish in: each event comes though the next one is published at once."""
    with listening() as listener:
        for n in range(200):
            publish_one(f"{n}")
            listener.expect(f"{n}")


@pytest.mark.parametrize("pause_s", [0.0, 0.005, 0.019, 0.03])
def test_a_transaction_that_continues_after_publishing(session: Session, pause_s: float) -> None:
    """The insert asks whether the leader waits. One that begins to wait after that must see the event too."""
    with listening() as listener:
        for n in range(10):
            with transaction.atomic():
                publish("default", {"n": f"{n}"})
                wait_until_idle(session)
                threading.Event().wait(pause_s)
            listener.expect(f"{n}")


def test_an_event_published_by_copy_wakes_too(session: Session) -> None:
    with listening() as listener:
        wait_until_idle(session)
        with transaction.atomic():
            publish_many("default", ({"payload": {"n": f"{n}"}, "key": "k"} for n in range(3)))
        listener.expect("0", "1", "2")


def test_an_event_published_by_another_process(session: Session) -> None:
    with listening() as listener, child(PUBLISHER) as publisher:
        wait_until_idle(session)
        for n in range(3):
            publisher.tell(f"from afar {n}")
            listener.expect(f"from afar {n}")


def test_the_other_processes_are_notified_of_the_topics_that_moved(session: Session) -> None:
    Topic.objects.create(name="second")
    with listening() as leader:
        wait_until_idle(session)
        with listening(group="other", topic="second") as follower:
            wait_until(lambda: holders(session, FOLLOWING), "the second follows")
            assert leader.coordinator.leading
            assert not follower.coordinator.leading
            for n in range(3):
                publish_one(f"{n}", topic="second")
                follower.expect(f"{n}")


@pytest.mark.parametrize("threads", [1, 2])
def test_no_connection_is_opened_per_event(threads: int, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where Django may not keep it from one request to the next."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    with listening(threads=threads) as listener:
        for n in range(6):
            wait_until_idle(session)
            publish_one(f"{n}")
            listener.expect(f"{n}")
        assert len(listener.sessions) <= threads


def test_a_stopped_worker_does_not_wait_for_its_poll(session: Session) -> None:
    listener = Listener(NEVER_MS)
    wait_until_idle(session)
    listener.worker.stop()
    listener.running.result(5)


def test_a_cut_connection_is_replaced(session: Session) -> None:
    with listening(wait_period_ms=300) as listener:
        for n in range(3):
            pid = wait_until_idle(session)
            session.execute("SELECT pg_terminate_backend(%s)", [pid])
            wait_until(lambda pid=pid: holders(session, WAITING) not in ([], [pid]), "it listens again")  # type: ignore[misc]
            publish_one(f"{n}")
            listener.expect(f"{n}")


def test_all_connections_are_cut_again_and_again(session: Session) -> None:
    with listening(wait_period_ms=200) as listener:
        for n in range(5):
            wait_until_idle(session)
            # One that is cut off is handled again.
            wait_until(lambda n=n: passed(session) == n, "the batch is committed")  # type: ignore[misc]
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            insert(session, f"{n}")
            listener.expect(f"{n}")


def test_when_the_leader_is_killed_another_process_leads(session: Session) -> None:
    with child(WORKER, "first", "300") as first:
        leader = wait_until_idle(session)
        with listening(wait_period_ms=300, group="second") as second:
            wait_until(lambda: holders(session, FOLLOWING), "the second follows")
            assert not second.coordinator.leading
            publish_one("both")
            first.says("handled both")
            second.expect("both")
            first.kill()
            wait_until(lambda: second.coordinator.leading, "the second leads")
            assert wait_until_idle(session) != leader
            publish_one("second alone")
            second.expect("second alone")


def notifications(listener: Session, end: Session) -> list[str]:
    """What arrives on the channel, up to a sign sent last: they come in the order of their commits."""
    end.execute(f"SELECT pg_notify('{HINT_CHANNEL}', 'end')")
    arrived = [each.payload for each in listener.notifies(timeout=PROMPT_S, stop_after=1)]
    while arrived and arrived[-1] != "end":
        arrived += [each.payload for each in listener.notifies(timeout=PROMPT_S, stop_after=1)]
    return arrived[:-1]


def test_no_hint_is_sent_when_no_leader_waits(session: Session, other: Session) -> None:
    other.execute(f"LISTEN {HINT_CHANNEL}")
    for n in range(5):
        publish_one(f"{n}")
    publish_one("delayed", deliver_at=timezone.now() + dt.timedelta(hours=1))
    with transaction.atomic():
        publish_many("default", ({"payload": {"n": n}} for n in range(5)))
    with transaction.atomic():
        publish("default", {"n": "goes on for a while"})
        time.sleep(0.05)
    assert notifications(other, session) == []


def test_a_transaction_sends_one_hint_when_the_leader_waits(session: Session, other: Session) -> None:
    other.execute(f"LISTEN {HINT_CHANNEL}")
    other.execute(f"SELECT pg_advisory_lock({locks.WAITING})")
    with transaction.atomic():
        for n in range(50):
            publish("default", {"n": n})
        assert notifications(other, session) == [], "not before the commit"
    assert notifications(other, session) == [""]
    with transaction.atomic():
        publish_many("default", ({"payload": {"n": n}} for n in range(50)))
        publish("default", {"n": "delayed"}, deliver_at=timezone.now())
    assert notifications(other, session) == [""]


def test_no_hint_for_a_rolled_back_event(session: Session, other: Session) -> None:
    other.execute(f"LISTEN {HINT_CHANNEL}")
    other.execute(f"SELECT pg_advisory_lock({locks.WAITING})")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        publish("default", {"n": "undone"})
        raise ZeroDivisionError
    with transaction.atomic(), pytest.raises(ZeroDivisionError), transaction.atomic():
        publish("default", {"n": "undone"})
        raise ZeroDivisionError
    assert notifications(other, session) == []
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            publish("default", {"n": "undone"})
            raise ZeroDivisionError
        publish("default", {"n": "kept"})
    assert notifications(other, session) == [""]


def test_a_hint_for_an_event_outside_a_transaction(session: Session, other: Session) -> None:
    other.execute(f"LISTEN {HINT_CHANNEL}")
    publish_on_commit("default", 1)
    assert notifications(other, session) == []
    other.execute(f"SELECT pg_advisory_lock({locks.WAITING})")
    for _ in range(2):
        publish_on_commit("default", 1)
        assert notifications(other, session) == [""]
    publish_on_commit("default", 1, deliver_at=timezone.now())
    assert notifications(other, session) == [""]


def test_a_hint_that_fails_behind_the_commit_fails_no_publisher(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was to be committed is: who publishes must not take it for lost."""
    monkeypatch.setattr("pubsub.publishing.publish.HINT", b"SELECT 1 / 0")
    with transaction.atomic():
        publish("default", {"n": 1})
    connection.close()
    assert OutboxMessage.objects.count() == 1
    assert "could not be notified" in caplog.text


def test_a_hint_by_a_hook_that_cannot_be_sent_fails_no_publisher(
    session: Session, other: Session, caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    settings.PUBSUB = {**settings.PUBSUB, "short_way": False}
    other.execute(f"SELECT pg_advisory_lock({locks.WAITING})")
    with transaction.atomic():
        pid = connection.connection.info.backend_pid
        transaction.on_commit(lambda: session.execute("SELECT pg_terminate_backend(%s, 5000)", [pid]))
        publish("default", {"n": 1})
    connection.close()
    assert OutboxMessage.objects.count() == 1
    assert "Hint.give" in caplog.text


def test_asking_whether_the_leader_waits_keeps_no_lock(session: Session) -> None:
    """Neither in the open transaction nor after it, or a leader about to wait would wait for the publisher."""
    with transaction.atomic():
        publish("default", {"n": 1})
        assert holders(session, WAITING) == []
        session.execute(f"SET lock_timeout = {PROMPT_S * 1000}")
        session.execute(f"SELECT pg_advisory_lock({locks.WAITING})")
        publish("default", {"n": 2})
    session.execute(f"SELECT pg_advisory_unlock({locks.WAITING})")
    assert holders(session, WAITING) == []


def test_a_lost_hint_costs_a_poll_and_nothing_else(session: Session) -> None:
    """A plain INSERT from elsewhere hints nothing at all."""
    with listening(wait_period_ms=300) as listener:
        for n in range(3):
            wait_until_idle(session)
            insert(session, f"{n}")
            listener.expect(f"{n}")


def test_the_sequencer_continues_where_no_process_can_be_notified(
    session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when the server's queue of notifications is full."""
    monkeypatch.setattr("pubsub.sequencing.sequencer.NOTIFY_MOVED", "SELECT 1 / 0")
    with listening() as listener:
        backend = wait_until_idle(session)
        for n in range(3):
            publish_one(f"{n}")
            listener.expect(f"{n}")
        assert wait_until_idle(session) == backend, "for want of another connection"
    assert [entry.name for entry in checked_log(session)] == ["0", "1", "2"]
    assert "could not be notified, and have to poll: division by zero" in caplog.text


def test_a_delayed_message_wakes_at_its_time(session: Session) -> None:
    with listening() as listener:
        wait_until_idle(session)
        due = timezone.now() + dt.timedelta(seconds=2.2)
        publish_one("later", deliver_at=due)
        publish_one("now")
        listener.expect("now", "later")
        # Who looks ever more slowly would look after 2 s, and then after 4 s.
        assert 0 <= (timezone.now() - due).total_seconds() < 1.5
        assert len(checked_log(session)) == 2


def test_messages_of_other_times_are_not_confused(session: Session) -> None:
    with listening() as listener:
        wait_until_idle(session)
        start = timezone.now()
        publish_one("in an hour", deliver_at=start + dt.timedelta(hours=1))
        publish_one("third", deliver_at=start + dt.timedelta(seconds=0.9))
        publish_one("first", deliver_at=start + dt.timedelta(seconds=0.3))
        publish_one("second", deliver_at=start + dt.timedelta(seconds=0.6))
        listener.expect("first", "second", "third")


def test_no_process_spins_while_another_holds_a_message_that_is_due(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = threading.Semaphore(0)

    def move(using: str) -> int:
        looks.release()
        return move_due_messages(using)

    monkeypatch.setattr("pubsub.worker.leader.move_due_messages", move)
    publish_one("held", deliver_at=timezone.now())
    other.execute("BEGIN")
    other.execute("SELECT FROM outbox_delayed_message FOR UPDATE")
    with listening(wait_period_ms=300) as listener:
        wait_until_idle(session)
        end = time.monotonic() + 1
        looked = 0
        while looks.acquire(timeout=max(0, end - time.monotonic())):
            looked += 1
        assert 0 < looked < 30
        other.execute("ROLLBACK")
        listener.expect("held")


def test_an_idle_worker_writes_nothing(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = threading.Semaphore(0)

    def counted(find_work: Callable[[Worker], object]) -> Callable[[Worker], object]:
        def find(self: Worker) -> object:
            looks.release()
            return find_work(self)

        return find

    # A worker says when it comes and when it goes, and how far things have come since the last look; whatever it
    # looks at in between, it writes nothing.
    written = (
        "SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables"
        " WHERE n_tup_ins + n_tup_upd + n_tup_del > 0"
        " AND relname {} IN ('outbox_members', 'outbox_samples', 'outbox_topic_subscriptions', 'outbox_workers')"
        " ORDER BY relname"
    )
    monkeypatch.setattr(WorkFinder, "find", counted(WorkFinder.find))
    with listening(wait_period_ms=10) as listener:
        publish_one("one")
        listener.expect("one")
        wait_until_idle(session)
        for _ in range(5):
            assert looks.acquire(timeout=PROMPT_S)
        stored = (
            "SELECT xmin, xmax, ctid, topic_id FROM consumer_offsets"
            " UNION ALL SELECT xmin, xmax, ctid, 0 FROM log_sequencer"
        )
        before = session.execute(stored).fetchall()
        for _ in range(50):
            assert looks.acquire(timeout=PROMPT_S)
        assert session.execute(stored).fetchall() == before
    # What sessions have written is counted when they end, at the latest; the one that has published goes on.
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    ours = "SELECT FROM pg_stat_activity WHERE application_name = 'pubsub' AND datname = current_database()"
    wait_until(lambda: not session.execute(ours).fetchall(), "the worker's sessions have ended")
    counts = session.execute(written.format("NOT")).fetchall()
    said = sum(sum(row[1:]) for row in session.execute(written.format("")).fetchall())
    with listening(wait_period_ms=10):
        for _ in range(50):
            assert looks.acquire(timeout=PROMPT_S)
    assert session.execute(written.format("NOT")).fetchall() == counts
    assert sum(sum(row[1:]) for row in session.execute(written.format("")).fetchall()) - said <= 10


@pytest.mark.parametrize("lock", [locks.FOLLOWING, locks.WAITING], ids=["standing by", "waiting"])
def test_a_worker_works_and_stops_while_another_session_holds_its_lock(
    session: Session, other: Session, lock: str
) -> None:
    """Any role that may connect can take an advisory lock."""
    other.execute(f"SELECT pg_advisory_lock({lock})")
    with listening(wait_period_ms=100) as listener:
        publish_one("first")
        listener.expect("first")
        with listening(wait_period_ms=100, group="standing by") as standing_by:
            standing_by.expect("first")
        publish_one("second")
        listener.expect("second")
