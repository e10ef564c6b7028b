"""A worker with a backlog goes on in a partition: with what it has read ahead, in transactions that follow at once."""

import logging
import threading
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from psycopg.pq import TransactionStatus

from pubsub import Event, publish, publish_many
from pubsub.consuming.session import PartitionSession
from pubsub.consuming.transactional import handle_batch
from pubsub.db.pipeline import begin, execute_together
from pubsub.models import ConsumerOffset
from pubsub.signals import batch_handled
from pubsub.subscriptions.task import PartitionTask
from tests.handlers import Recorder, declare, drain
from tests.sessions import Session, connection_parameters, transaction_of

from .helpers import lag, look_for_work, next_offset, number, publish_each, publish_together, states, task_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]


def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each batch passes, by its signal."""
    told: list[int] = []

    def note(passed: int, **facts: Any) -> None:
        told.append(passed)

    monkeypatch.setattr(batch_handled, "receivers", [])
    batch_handled.connect(note, weak=False)
    return told


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What batches send, a round trip each."""
    trips: list[str] = []

    def send(connection: Any, statements: list[str], parameters: Any) -> Any:
        trips.append("; ".join(statements))
        return execute_together(connection, statements, parameters)

    for module in ("session", "reader"):
        monkeypatch.setattr(f"pubsub.consuming.{module}.execute_together", send)
    return trips


def going_on(task: PartitionTask) -> PartitionSession:
    return PartitionSession(task, 10, may_go_on=lambda passed, reads: True)


def reads(sent: list[str]) -> int:
    return sum("pubsub_read_v1(" in trip for trip in sent)


def is_in_transaction() -> bool:
    return connection.in_atomic_block or connection.connection.info.transaction_status != TransactionStatus.IDLE


def test_nothing_is_read_twice_and_a_batch_is_a_round_trip(monkeypatch: pytest.MonkeyPatch, sent: list[str]) -> None:
    publish_each(*range(100))
    told = batches(monkeypatch)
    handler = Recorder()

    drain(declare(handler, topic="work"), batch_size=10)

    assert handler.payloads == list(range(100))
    assert told == [10] * 10
    assert 5 <= reads(sent) <= 6
    assert len(sent) == 11
    assert lag() == 0


@pytest.mark.usefixtures("wide")
def test_several_partitions_take_turns_and_each_continues_where_its_last_session_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pubsub.worker.sessions.SESSION_S", 0)
    for n in range(300):
        publish_each(n, topic="wide", key=n % 7)
    handler = Recorder()

    drain(declare(handler, topic="wide"), batch_size=10)

    assert sorted(handler.payloads) == list(range(300))
    for key in range(7):
        assert [n for n in handler.payloads if n % 7 == key] == list(range(key, 300, 7))


def test_each_batch_ends_with_a_transaction_wherever_the_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    for first in range(0, 70, 7):
        publish_together(*range(first, first + 7))
    told = batches(monkeypatch)
    handler = Recorder()

    drain(declare(handler, topic="work"), batch_size=10)

    assert handler.payloads == list(range(70))
    assert told == [14] * 5


def test_a_failure_in_prefetched_events_fails_only_its_own_transaction() -> None:
    publish_each(*range(17))
    publish_together("a", "bad", "b")
    publish_each(*range(20, 60))
    handler = Recorder(fails=lambda event: event.payload == "bad")

    drain(declare(handler, topic="work"), batch_size=10)

    assert states() == [("a", "dead"), ("bad", "dead"), ("b", "dead")]
    assert set(range(17)) | set(range(20, 60)) <= set(handler.payloads)
    assert (lag(), next_offset()) == (0, 61)


def test_prefetched_events_are_discarded_if_the_cursor_was_moved() -> None:
    publish_each(*range(100))
    handler = Recorder()

    def move() -> None:
        cursor = ConsumerOffset.objects.get(group_id="readers")
        ConsumerOffset.objects.update(
            next_offset=91, next_position=cursor.next_position + 70, passed=cursor.passed + 70
        )

    def handle(event: Event) -> None:
        handler(event)
        if event.payload == 19:
            transaction.on_commit(move)

    drain(declare(handle, topic="work"), batch_size=10)

    assert handler.payloads == [*range(20), *range(90, 100)]
    assert lag() == 0


def test_a_hook_after_the_commit_finds_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    publish_each(*range(60))
    seen: list[tuple[str, Any, bool]] = []

    def handle(event: Event) -> None:
        if event.payload % 20 == 5:
            transaction.on_commit(lambda: seen.append(("hook", event.payload, is_in_transaction())))

    def note_batch(passed: int, **facts: Any) -> None:
        seen.append(("signal", passed, is_in_transaction()))

    batch_handled.connect(note_batch)
    try:
        drain(declare(handle, topic="work"), batch_size=10)
    finally:
        batch_handled.disconnect(note_batch)

    assert [what for what in seen if what[0] == "hook"] == [("hook", n, False) for n in (5, 25, 45)]
    assert [what for what in seen if what[0] == "signal"] == [("signal", 10, False)] * 6


def test_the_commit_of_a_batch_waits_for_nothing(session: "psycopg.Connection[Any]") -> None:
    """Though the next transaction has begun by then, others see what the last one did."""
    publish_each(*range(30))
    seen = []

    def handle(event: Event) -> None:
        seen.append(session.execute("SELECT next_offset FROM consumer_offsets WHERE group_id = 'readers'").fetchone())

    drain(declare(handle, topic="work"), batch_size=10)

    assert seen == [(1,)] * 10 + [(11,)] * 10 + [(21,)] * 10


def test_a_cursor_that_another_session_locks_between_two_batches_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch, session: "psycopg.Connection[Any]"
) -> None:
    publish_each(*range(40))
    handler = Recorder()
    taken = threading.Event()

    def take() -> None:
        """Waits until the first batch commits, and has the cursor from then on."""
        session.execute("BEGIN")
        session.execute("UPDATE consumer_offsets SET next_offset = next_offset WHERE group_id = 'readers'")
        taken.set()

    def handle_first(event: Event) -> None:
        handler(event)
        if event.payload == 0:
            threading.Thread(target=take).start()

    def begin_late(session_of_ours: Any) -> str:
        if not handler.events:
            return begin(session_of_ours)
        return f"{begin(session_of_ours)}; SELECT pg_advisory_xact_lock(4711)"

    declaration = declare(handle_first, topic="work")
    task = task_of(declaration)
    number()
    monkeypatch.setattr("pubsub.consuming.session.begin", begin_late)
    with psycopg.connect(**connection_parameters(), autocommit=True) as gate:
        gate.execute("SELECT pg_advisory_lock(4711)")
        opener = threading.Thread(target=lambda: taken.wait(20) and gate.execute("SELECT pg_advisory_unlock(4711)"))
        opener.start()
        with going_on(task) as session_of_ours:
            first = handle_batch(session_of_ours, 10)
            assert (first.passed, session_of_ours.goes_on) == (10, False)
        opener.join()
        session.execute("ROLLBACK")
    assert handler.payloads == list(range(10))
    assert not is_in_transaction()
    assert next_offset() == 11

    drain(declaration, batch_size=10)
    assert handler.payloads == list(range(40))


def test_leaving_early_releases_the_cursor_at_once(session: "psycopg.Connection[Any]") -> None:
    publish_each(*range(40))
    handler = Recorder()
    task = task_of(declare(handler, topic="work"))
    number()
    lock = "SELECT next_offset FROM consumer_offsets WHERE group_id = 'readers' FOR UPDATE SKIP LOCKED"

    with going_on(task) as session_of_ours:
        handle_batch(session_of_ours, 10)
        assert session_of_ours.goes_on
        assert session.execute(lock).fetchone() is None
    assert session.execute(lock).fetchone() == (11,)
    assert not is_in_transaction()

    with pytest.raises(KeyboardInterrupt), going_on(task) as session_of_ours:
        handle_batch(session_of_ours, 10)
        raise KeyboardInterrupt
    assert session.execute(lock).fetchone() == (21,)
    assert handler.payloads == list(range(20))


def test_small_ones_are_read_two_at_a_time_and_large_ones_are_not(sent: list[str]) -> None:
    for text, expected in (("", 3), ("x" * 60_000, 4)):
        publish_each(*[{"n": n, "text": text} for n in range(40)])
        sent.clear()
        drain(declare(Recorder(), topic="work"), batch_size=10)
        # Each reads one entry more than it needs; the next one already has it.
        assert reads(sent) == expected


def test_leaving_early_does_not_look_like_a_death(session: "psycopg.Connection[Any]") -> None:
    publish_each(*range(40))
    declaration = declare(Recorder(), topic="work")

    worker = drain(declaration, batch_size=10, max_events=10)
    assert (worker.passed, next_offset()) == (10, 11)
    assert [found.crashed for found in look_for_work(declaration)] == [False]

    task = task_of(declaration)
    with going_on(task) as session_of_ours:
        handle_batch(session_of_ours, 10)
    assert [found.crashed for found in look_for_work(declaration)] == [False]


def test_a_failure_after_the_commit_does_not_make_the_batch_look_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    publish_each(*range(60))
    told = batches(monkeypatch)
    handler = Recorder()
    begun = []

    def begin_badly(session_of_ours: Any) -> str:
        begun.append(1)
        return begin(session_of_ours) + ("; SELECT 1/0" if len(begun) == 3 else "")

    monkeypatch.setattr("pubsub.consuming.session.begin", begin_badly)
    worker = drain(declare(handler, topic="work"), batch_size=10, max_events=40)

    assert handler.payloads == list(range(40))
    assert told == [10] * 4
    assert (worker.passed, worker.failed, next_offset()) == (40, 0, 41)
    assert not is_in_transaction()


def test_a_batch_is_logged_outside_its_transaction(caplog: pytest.LogCaptureFixture) -> None:
    publish_each(*range(30))
    seen = []

    class Writer(logging.Handler):
        """As one that writes to the same database."""

        def emit(self, record: logging.LogRecord) -> None:
            if "now behind" in record.getMessage():
                seen.append((record.getMessage(), is_in_transaction()))

    writer = Writer()
    caplog.set_level(logging.DEBUG, "pubsub.worker.sessions")
    logging.getLogger("pubsub.worker.sessions").addHandler(writer)
    try:
        drain(declare(Recorder(), topic="work"), batch_size=10)
    finally:
        logging.getLogger("pubsub.worker.sessions").removeHandler(writer)
    said = "readers on work/0: passed 10 events, now behind offset"
    assert seen == [(f"{said} 10", False), (f"{said} 20", False), (f"{said} 30", False)]


@pytest.mark.parametrize("threads", [1, 3])
def test_events_that_handlers_publish_are_handled_before_a_drain_ends(threads: int) -> None:
    publish_each(*range(3))
    handled = []

    def handle(event: Event) -> None:
        handled.append(event.payload)
        if event.payload < 30:
            publish("work", event.payload + 10, key="k")

    drain(declare(handle, topic="work"), threads=threads)

    assert sorted(handled) == sorted(n for first in range(3) for n in range(first, 40, 10))


def test_a_plan_that_was_made_for_an_empty_log_reads_a_long_one_as_quickly(work: str, session: Session) -> None:
    """A session keeps its plan until the tables are analysed again; within a transaction, to its end."""
    read = (
        "SELECT c_offset FROM outbox_topics CROSS JOIN LATERAL "
        "pubsub_read_v1(id, 'readers', ARRAY[0], ARRAY[%s]::bigint[], NULL, 50) WHERE name = 'work'"
    )
    for table in ("outbox_message_t", "log_entry"):
        session.execute(f"VACUUM ANALYZE {table}")
    assert session.execute(read, [1]).fetchall() == []
    with transaction.atomic():
        publish_many("work", ({"payload": n, "key": "k"} for n in range(3000)))
    number()
    with transaction_of(session):
        rows = session.execute(read, [2001]).fetchall()
        (fetched,) = session.execute(
            "SELECT sum(idx_tup_fetch)::integer FROM pg_stat_xact_user_tables"
            " WHERE relid IN (SELECT relid FROM pg_partition_tree('outbox_message_t')"
            "                 UNION ALL SELECT relid FROM pg_partition_tree('log_entry'))"
        ).fetchone() or (None,)
    assert [offset for (offset,) in rows] == list(range(2001, 2051))
    assert fetched == 2 * 50, "entries and messages"
