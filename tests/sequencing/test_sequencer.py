"""Passes: who may number, when, in what kind of transaction, and at what cost."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connection, transaction

from pubsub.models import Topic
from pubsub.sequencing.sequencer import sequence, sequence_on
from tests.log import checked_log, insert, names, number
from tests.sessions import Running, Session, transaction_of, wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)

PASS = "SELECT outcome, events FROM pubsub_sequence_v1()"


@contextmanager
def holding_back_the_lock(session: Session) -> Iterator[None]:
    """Lets others read the sequencer's row, and keeps them from locking it until the end."""
    with transaction_of(session):
        session.execute("LOCK TABLE log_sequencer IN EXCLUSIVE MODE")
        yield


def test_a_second_pass_does_not_wait_for_the_first(session: Session, other: Session, third: Session) -> None:
    insert(third, "one")
    session.execute("BEGIN")
    assert session.execute(PASS).fetchone() == ("numbered", 1)
    for each in (other, third):
        each.execute("SET lock_timeout = '1s'")
    assert number(other).outcome == "busy"
    assert number(third).outcome == "busy"
    session.execute("ROLLBACK")
    assert number(other).outcome == "numbered"
    assert names(checked_log(other)) == ["one"]


def test_another_pass_numbers_between_the_look_and_the_lock(session: Session, other: Session, third: Session) -> None:
    """The second finds nothing left. Its statement that locks began before the first one's pass."""
    insert(third, "seen by both")
    with holding_back_the_lock(session):
        second = Running(number, other)
        wait_until_blocked(other, third)
        insert(third, "seen by the first alone")
        assert session.execute(PASS).fetchone() == ("numbered", 2)
    assert second.result().messages == 0
    insert(third, "seen by neither")
    assert number(third).messages == 1
    assert number(third).outcome == "idle"
    assert names(checked_log(third)) == ["seen by both", "seen by the first alone", "seen by neither"]


def test_a_commit_between_the_lock_s_snapshot_and_the_lock(session: Session, other: Session, third: Session) -> None:
    """The stored snapshot may be newer than that of the statement that locked: numbering needs one newer still."""
    insert(third, "seen by both")
    with holding_back_the_lock(session):
        second = Running(number, other)
        wait_until_blocked(other, third)
        insert(third, "seen by the first alone")
        assert session.execute(PASS).fetchone() == ("numbered", 2)
        insert(third, "left for the second")
    assert second.result().messages == 1
    assert number(third).outcome == "idle"
    assert names(checked_log(third)) == ["seen by both", "seen by the first alone", "left for the second"]


def test_an_open_transaction_of_the_first_pass_commits_before_the_second(
    session: Session, other: Session, third: Session, new_session: Callable[..., Session]
) -> None:
    late = new_session()
    late.execute("BEGIN")
    insert(late, "late")
    insert(third, "early")
    with holding_back_the_lock(session):
        second = Running(number, other)
        wait_until_blocked(other, third)
        assert session.execute(PASS).fetchone() == ("numbered", 1)
        late.execute("COMMIT")
    assert second.result().messages == 1
    assert names(checked_log(third)) == ["early", "late"]


def test_many_threads_number_at_once(session: Session, new_session: Callable[..., Session]) -> None:
    sessions = [new_session() for _ in range(4)]
    enough = threading.Event()

    def number_on_and_on(mine: Session) -> int:
        done = 0
        while not enough.is_set():
            done += number(mine).messages
        return done

    threads = [Running(number_on_and_on, each) for each in sessions]
    for n in range(300):
        insert(session, n)
    enough.set()
    numbered = sum(thread.result() for thread in threads) + number(session).messages
    assert numbered == 300
    assert names(checked_log(session)) == [str(n) for n in range(300)]


def test_a_pass_that_fails_leaves_the_session_usable(session: Session, other: Session) -> None:
    insert(session, "one")
    other.execute("SET lock_timeout = 50")
    with transaction_of(session):
        session.execute("LOCK TABLE log_sequencer IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            number(other)
    assert number(other).messages == 1
    assert names(checked_log(session)) == ["one"]


def test_numbering_is_refused_where_every_statement_has_the_same_snapshot(session: Session) -> None:
    insert(session, "one")
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        session.execute(f"BEGIN ISOLATION LEVEL {level}")
        with pytest.raises(psycopg.errors.RaiseException, match=f"{level.lower()} transaction") as refusal:
            sequence_on(session)
        session.execute("ROLLBACK")
        assert refusal.value.diag.message_hint
        assert "READ COMMITTED" in refusal.value.diag.message_hint
    assert number(session).messages == 1


def test_a_transaction_that_has_published_cannot_number(session: Session, other: Session) -> None:
    """Either that is refused, or it does no harm: a snapshot counts its own transaction as over."""
    for n in range(2):
        session.execute("BEGIN")
        try:
            insert(session, f"{n} a")
            session.execute(PASS)
            insert(session, f"{n} b")
            session.execute(PASS)
            insert(session, f"{n} c")
            session.execute("COMMIT")
        except psycopg.Error as refusal:
            assert "published" in str(refusal) or "transaction" in str(refusal)  # noqa: PT017
            session.execute("ROLLBACK")
            with transaction_of(session):
                for letter in "abc":
                    insert(session, f"{n} {letter}")
        number(other)
        number(other)
    assert names(checked_log(other)) == ["0 a", "0 b", "0 c", "1 a", "1 b", "1 c"]


def test_numbering_inside_a_django_transaction(session: Session, other: Session) -> None:
    """No other pass can number until it ends; if it is rolled back, its work is undone."""
    insert(session, "one")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Topic.objects.create(name="undone")
        assert sequence("default").messages == 1
        assert number(other).outcome == "busy"
        raise ZeroDivisionError
    assert number(other).messages == 1
    assert not Topic.objects.filter(name="undone").exists()
    # As the very first statement, when Django has not yet told the server to begin.
    with transaction.atomic():
        assert sequence("default").outcome == "idle"
    insert(session, "two")
    with transaction.atomic():
        assert sequence("default").messages == 1
        Topic.objects.create(name="kept")
    assert Topic.objects.filter(name="kept").exists()
    assert names(checked_log(other)) == ["one", "two"]


def test_an_idle_pass_writes_nothing(session: Session, other: Session) -> None:
    insert(session, "one")
    number(session)
    stored = "SELECT ctid, xmin, xmax, * FROM log_sequencer"
    before = session.execute(stored).fetchone()
    with transaction_of(session):
        for _ in range(100):
            assert session.execute(PASS).fetchone() == ("idle", 0)
        # No transaction id, so not one record in the write-ahead log.
        assert session.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() == (None,)
    # Nor while a publisher has not committed …
    other.execute("BEGIN")
    insert(other, "open")
    with transaction_of(session):
        for _ in range(100):
            assert session.execute(PASS).fetchone() == ("idle", 0)
        assert session.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() == (None,)
    # … or another pass numbers.
    assert session.execute(stored).fetchone() == before


def test_a_pass_finds_new_events_by_the_index_alone(session: Session) -> None:
    """With fifty partitions without statistics, and most of them empty."""
    for n in range(20):
        insert(session, n)
    number(session)
    insert(session, "new")
    session.execute("BEGIN")
    for table in ("outbox_message_t", "log_entry"):
        for n in range(50):
            lower = 2**40 + n * 1000
            session.execute("SELECT pubsub_add_segment_v1(%s, %s, %s)", [table, lower, lower + 1000])

    def reads() -> dict[str, tuple[int, int]]:
        told = session.execute(
            "SELECT relname, seq_scan, idx_scan FROM pg_stat_xact_user_tables"
            " WHERE relname ~ '^(outbox_message_t|log_entry)_'"
        )
        return {name: (sequential, by_index or 0) for name, sequential, by_index in told}

    before = reads()
    assert session.execute(PASS).fetchone() == ("numbered", 1)
    # Again, as the statements' plans are kept for the session; this time as an idle pass.
    session.execute(PASS)
    after = reads()
    session.execute("ROLLBACK")
    messages = {name for name in after if name.startswith("outbox_message_t")}
    assert len(messages) > 50
    assert [name for name in after if after[name][0] > before.get(name, (0, 0))[0]] == []
    assert all(after[name][1] > before.get(name, (0, 0))[1] for name in messages)


def test_the_counters_of_partitions_are_right_after_a_resize(session: Session) -> None:
    for total in (8, 3, 11):
        with connection.cursor() as cursor:
            cursor.execute("UPDATE outbox_topics SET total_partitions = greatest(%s, total_partitions)", [total])
        for n in range(50):
            insert(session, f"{total}/{n}", key=f"{n}")
        assert number(session).messages == 50
    assert len(checked_log(session)) == 150


def set_xid(session: Session, message: int, xid: int) -> None:
    session.execute("UPDATE outbox_message_t SET xid = %s::text::xid8 WHERE id = %s", [xid, message])


def present_xid(session: Session) -> int:
    (xid,) = session.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone() or (0,)
    return int(xid)


def test_a_row_whose_xid_is_still_to_come_waits_for_it(session: Session, other: Session) -> None:
    """As rows copied from another cluster may have. It is numbered once, when this cluster has come there."""
    far = present_xid(session) + 1000
    set_xid(session, insert(session, "copied"), far)
    for name in ("one", "two"):
        insert(other, name)
        assert number(session).messages == 1
        assert number(session).outcome == "idle"
    while present_xid(session) <= far:
        other.execute("SELECT pg_current_xact_id()")
    assert number(session).messages == 1
    assert number(session).outcome == "idle"
    assert names(checked_log(session)) == ["one", "two", "copied"]
    insert(other, "after")
    assert number(session).messages == 1
    assert number(session).outcome == "idle"


def test_a_row_whose_xid_is_in_progress_waits_for_its_end(session: Session, other: Session) -> None:
    """Its own transaction is over, the one that it names is not."""
    message = insert(session, "copied")
    other.execute("BEGIN")
    (xid,) = other.execute("SELECT pg_current_xact_id()::text::bigint").fetchone() or (0,)
    set_xid(session, message, xid)
    insert(session, "one")
    assert number(session).messages == 1
    for _ in range(3):
        assert number(session).outcome == "idle"
    other.execute("COMMIT")
    assert number(session).messages == 1
    assert number(session).outcome == "idle"
    assert names(checked_log(session)) == ["one", "copied"]


def number_at_most(session: Session, most: int) -> int:
    (events,) = session.execute("SELECT events FROM pubsub_sequence_v1(%s)", [most]).fetchone() or (None,)
    assert events is not None
    return int(events)


def test_a_backlog_is_numbered_in_pieces(session: Session, other: Session) -> None:
    for n in range(25):
        insert(session, n)
    assert [number_at_most(session, 10) for _ in range(2)] == [10, 10]
    insert(other, "published between two pieces")
    assert number_at_most(session, 10) == 5
    assert number_at_most(session, 10) == 1
    assert number_at_most(session, 10) == 0
    assert names(checked_log(session)) == [*map(str, range(25)), "published between two pieces"]


def test_no_piece_divides_a_transaction(session: Session, other: Session) -> None:
    with transaction_of(other):
        insert(other, "long 1")
        insert(session, "alone 1")
        for n in range(2, 8):
            insert(other, f"long {n}")
    for n in range(2, 5):
        insert(session, f"alone {n}")
    assert [number_at_most(session, 3) for _ in range(4)] == [1, 7, 3, 0]
    assert names(checked_log(session)) == [
        "alone 1",
        *(f"long {n}" for n in range(1, 8)),
        *(f"alone {n}" for n in range(2, 5)),
    ]


def test_an_event_that_was_open_before_the_backlog_is_numbered_within_it(session: Session, other: Session) -> None:
    """Its transaction has a number below those of the backlog, and was in progress at the last pass."""
    other.execute("BEGIN")
    insert(other, "open")
    insert(session, "numbered")
    assert number(session).messages == 1
    for n in range(4):
        insert(session, n)
    insert(other, "last of the open one")
    other.execute("COMMIT")
    insert(session, "behind it")
    assert [number_at_most(session, 2) for _ in range(4)] == [1, 2, 3, 1]
    assert names(checked_log(session)) == ["numbered", "0", "1", "2", "3", "open", "last of the open one", "behind it"]


@pytest.mark.parametrize("level", ["off", "local"])
def test_a_pass_commits_durably_whatever_the_default_is(session: Session, level: str) -> None:
    session.execute(f"SET synchronous_commit = {level}")
    insert(session, "one")
    with transaction_of(session):
        session.execute(PASS)
        assert session.execute("SHOW synchronous_commit").fetchone() == ("on" if level == "off" else level,)
    assert session.execute("SHOW synchronous_commit").fetchone() == (level,)


def test_a_pass_takes_as_long_as_it_takes(session: Session) -> None:
    """Whatever statement_timeout a site gives to the statements of its users."""
    insert(session, "one")
    session.execute("SET statement_timeout = '200ms'")
    session.execute(
        "CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(0.4); RETURN NULL; END $$;"
        "CREATE TRIGGER take_long AFTER INSERT ON log_counter FOR EACH STATEMENT EXECUTE FUNCTION take_long()"
    )
    try:
        assert number(session).messages == 1
    finally:
        session.execute("DROP FUNCTION take_long CASCADE")
    assert session.execute("SHOW statement_timeout").fetchone() == ("200ms",)
