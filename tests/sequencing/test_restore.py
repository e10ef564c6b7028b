"""A database that comes from another cluster, whose transaction ids mean nothing here."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from project.postgres_files import find_programs
from project.postgres_server import Server
from pubsub.sequencing.sequencer import sequence_on
from tests.log import checked_log, insert, names, number, unnumbered
from tests.sessions import Running, Session, transaction_of, wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)

FAR = 10**15  # a transaction id that no test comes near


def as_if_from_a_cluster_far_ahead(session: Session) -> None:
    """All ids, those of numbered and those of other messages, are still to come here."""
    session.execute("UPDATE outbox_message_t SET xid = (%s + id)::text::xid8", [FAR])
    session.execute("UPDATE log_sequencer SET seen = %s::text::pg_snapshot", [f"{FAR}:{FAR}:"])


def test_a_stored_snapshot_ahead_of_the_cluster_s(session: Session) -> None:
    for n in range(3):
        insert(session, f"numbered {n}")
    number(session)
    for n in range(3):
        insert(session, f"waiting {n}")
    as_if_from_a_cluster_far_ahead(session)
    assert number(session).messages == 3
    expected = [*(f"numbered {n}" for n in range(3)), *(f"waiting {n}" for n in range(3))]
    assert names(checked_log(session)) == expected
    for _ in range(3):
        assert number(session).outcome == "idle"
    insert(session, "new")
    assert number(session).messages == 1
    assert names(checked_log(session)) == [*expected, "new"]


def test_old_transaction_ids_that_this_cluster_reaches_again(session: Session, other: Session) -> None:
    """Numbered messages whose ids are about to be given out again must not be numbered when they are."""
    for n in range(5):
        insert(session, f"numbered {n}")
    number(session)
    insert(session, "waiting")
    (present,) = session.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone() or (0,)
    session.execute(
        "UPDATE outbox_message_t SET xid = (%s + 5 + 3 * (id - (SELECT min(id) FROM outbox_message_t)))::text::xid8",
        [present],
    )
    session.execute("UPDATE log_sequencer SET system_identifier = 1")
    for n in range(30):
        insert(other, f"new {n}")
        number(session)
    log = names(checked_log(session))
    assert log[:5] == [f"numbered {n}" for n in range(5)]
    assert sorted(log) == sorted([*log[:5], "waiting", *(f"new {n}" for n in range(30))])


def test_another_cluster_with_ids_like_ours(session: Session) -> None:
    insert(session, "numbered")
    number(session)
    insert(session, "waiting")
    session.execute("UPDATE log_sequencer SET system_identifier = system_identifier # 4711")
    assert number(session).messages == 1
    assert number(session).outcome == "idle"
    assert names(checked_log(session)) == ["numbered", "waiting"]
    stored = session.execute(
        "SELECT log_sequencer.system_identifier = cluster.system_identifier"
        " FROM log_sequencer, pg_control_system() AS cluster"
    )
    assert stored.fetchone() == (True,)


def test_a_log_that_was_never_numbered(session: Session) -> None:
    insert(session, "first")
    insert(session, "second")
    session.execute("UPDATE outbox_message_t SET xid = (%s + id)::text::xid8", [FAR])
    session.execute("UPDATE log_sequencer SET system_identifier = NULL")
    assert number(session).messages == 2
    assert number(session).outcome == "idle"
    assert names(checked_log(session)) == ["first", "second"]


def test_the_transactions_of_waiting_messages_stay_together(session: Session, other: Session) -> None:
    session.execute("BEGIN")
    other.execute("BEGIN")
    for n in range(3):
        insert(session, f"a{n}")
        insert(other, f"b{n}")
    other.execute("COMMIT")
    session.execute("COMMIT")
    as_if_from_a_cluster_far_ahead(session)
    assert number(session).messages == 6
    assert names(checked_log(session)) == ["a0", "a1", "a2", "b0", "b1", "b2"]


@pytest.mark.parametrize("waiting", [["waiting"], []])
def test_a_transaction_with_a_number_that_publishes_only_afterwards(
    session: Session, other: Session, waiting: list[str]
) -> None:
    """Where nothing waits no pass follows, and what re-anchoring has stored stays."""
    for name in waiting:
        insert(session, name)
    as_if_from_a_cluster_far_ahead(session)
    other.execute("BEGIN")
    other.execute("SELECT pg_current_xact_id()")
    session.execute("SELECT pg_current_xact_id()")
    assert number(session).messages == len(waiting)
    insert(other, "in flight")
    assert number(session).outcome == "idle"
    other.execute("COMMIT")
    assert number(session).messages == 1
    assert number(session).outcome == "idle"
    assert names(checked_log(session)) == [*waiting, "in flight"]


def test_a_publisher_in_flight_is_waited_for(session: Session, other: Session, third: Session) -> None:
    insert(session, "waiting")
    as_if_from_a_cluster_far_ahead(session)
    other.execute("BEGIN")
    insert(other, "in flight")
    numbering = Running(sequence_on, session)
    wait_until_blocked(session, third)
    late = Running(insert, third, "meanwhile")
    other.execute("COMMIT")
    late.result()
    numbering.result()
    number(session)
    assert number(session).outcome == "idle"
    assert sorted(names(checked_log(session))) == ["in flight", "meanwhile", "waiting"]


def test_a_publisher_in_flight_that_is_undone(session: Session, other: Session, third: Session) -> None:
    as_if_from_a_cluster_far_ahead(session)
    other.execute("BEGIN")
    insert(other, "undone")
    numbering = Running(sequence_on, session)
    wait_until_blocked(session, third)
    other.execute("ROLLBACK")
    assert numbering.result().messages == 0
    insert(other, "kept")
    assert number(session).messages == 1
    assert names(checked_log(session)) == ["kept"]


def test_many_processes_notice_it_at_once(session: Session, new_session: Callable[..., Session]) -> None:
    for n in range(20):
        insert(session, n)
    as_if_from_a_cluster_far_ahead(session)
    sessions = [new_session() for _ in range(5)]
    numbering = [Running(sequence_on, each) for each in sessions]
    for n in range(20, 40):
        insert(session, n)
    for each in numbering:
        each.result()
    number(session)
    assert number(session).outcome == "idle"
    assert sorted(names(checked_log(session)), key=int) == [str(n) for n in range(40)]
    assert unnumbered(session) == 0


def test_re_anchoring_needs_fresh_snapshots(session: Session) -> None:
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(psycopg.errors.RaiseException, match="repeatable read transaction"):
        session.execute("SELECT pubsub_reanchor_v1()")
    session.execute("ROLLBACK")


def test_re_anchoring_three_times_changes_nothing(session: Session) -> None:
    insert(session, "numbered")
    number(session)
    insert(session, "waiting")
    for _ in range(3):
        assert session.execute("SELECT pubsub_reanchor_v1()").fetchone() == (1,)
    assert number(session).messages == 1
    for _ in range(3):
        assert session.execute("SELECT pubsub_reanchor_v1()").fetchone() == (0,)
    assert number(session).outcome == "idle"
    assert names(checked_log(session)) == ["numbered", "waiting"]


@pytest.fixture
def new_cluster() -> Iterator[Callable[[], str]]:
    """Makes clusters of one version, each with an empty database, and returns its address."""
    with ExitStack() as closing:

        def make() -> str:
            folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="cluster-", dir="/tmp")))
            folder.chmod(0o755)
            server = Server(folder)
            closing.callback(server.stop)
            return server.ensure_running()

        yield make


def run(*command: str | Path, **environment: str) -> None:
    quiet = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    done = subprocess.run(command, capture_output=True, text=True, env=quiet | environment, check=False)
    assert done.returncode == 0, done.stderr


def test_a_real_dump_restored_into_a_real_second_cluster(new_cluster: Callable[[], str], tmp_path: Path) -> None:
    _, programs = find_programs()
    for program in ("pg_dump", "psql"):
        if not (programs / program).exists():
            pytest.skip(f"there is no {program} in {programs}")
    first, second = new_cluster(), new_cluster()
    migrate = (sys.executable, "-m", "django", "migrate", "--verbosity=0", "--settings=tests.settings")
    run(*migrate, DATABASE_URL=first)
    dump = tmp_path / "dump.sql"
    with ExitStack() as open_until_dumped:
        session, other = (open_until_dumped.enter_context(psycopg.connect(first, autocommit=True)) for _ in range(2))
        # Ids far beyond those of a cluster that has just been made.
        for _ in range(2000):
            session.execute("SELECT pg_current_xact_id()")
        with transaction_of(session):
            for n in range(3):
                insert(session, f"numbered {n}")
        number(session)
        insert(session, "waiting")
        other.execute("BEGIN")
        insert(other, "not committed")
        with transaction_of(session):
            insert(session, "waiting pair 1")
            insert(session, "waiting pair 2")
        insert(session, "waiting last")
        run(programs / "pg_dump", f"--file={dump}", f"--dbname={first}")
        other.execute("ROLLBACK")
    run(programs / "psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--file={dump}", f"--dbname={second}")

    with psycopg.connect(second, autocommit=True) as restored, psycopg.connect(second, autocommit=True) as flying:
        flying.execute("BEGIN")
        flying.execute("SELECT pg_current_xact_id()")
        assert number(restored).messages == 4
        expected = [*(f"numbered {n}" for n in range(3)), "waiting", "waiting pair 1", "waiting pair 2", "waiting last"]
        assert names(checked_log(restored)) == expected
        insert(flying, "in flight")
        flying.execute("COMMIT")
        # Until this cluster has come to the ids that the old one had given out.
        for n in range(50):
            insert(restored, n)
            for _ in range(60):
                restored.execute("SELECT pg_current_xact_id()")
            number(restored)
        assert number(restored).outcome == "idle"
        assert names(checked_log(restored)) == [*expected, "in flight", *(str(n) for n in range(50))]
