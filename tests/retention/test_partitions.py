"""Partitions of the two big tables: publishing never depends on them, and making them never stops it for long."""

import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from django.db import connections
from django.test import override_settings

from pubsub.retention.partitions import LOCK_TIMEOUT_MS, TABLES, make_partitions_ahead
from pubsub.sequencing.sequencer import sequence
from tests.log import checked_log, insert, names, number, unnumbered
from tests.sessions import Running, Session, connect, together, transaction_of, wait_until

from .helpers import longest_insert

pytestmark = pytest.mark.django_db(transaction=True)


def drop_partitions() -> None:
    with connect() as operator:
        operator.execute("SET lock_timeout = '10s'")
        for table in TABLES:
            for name, _, _ in partitions(operator, table.name):
                operator.execute(f"DROP TABLE {name}")


def partitions(session: Session, table: str) -> list[tuple[str, int, int]]:
    """Name and bounds of each but the default one, in order."""
    rows = session.execute(
        "SELECT relname, parts[1]::bigint AS lower, parts[2]::bigint FROM pg_inherits"
        " JOIN pg_class ON pg_class.oid = inhrelid"
        " CROSS JOIN regexp_match(pg_get_expr(relpartbound, pg_class.oid), $$FROM \\('(\\d+)'\\) TO \\('(\\d+)'\\)$$)"
        " AS match (parts) WHERE inhparent = %s::regclass AND parts IS NOT NULL ORDER BY lower",
        [table],
    )
    return [(str(name), int(lower), int(upper)) for name, lower, upper in rows]


def in_default(session: Session, table: str) -> int:
    (count,) = session.execute(f"SELECT count(*) FROM {table}_default").fetchone() or (0,)
    return int(count)


def ids_from_one(session: Session) -> None:
    session.execute("ALTER TABLE outbox_message_t ALTER COLUMN id RESTART")


@pytest.fixture
def nothing_prepared(session: Session, other: Session) -> Iterator[None]:
    drop_partitions()
    ids_from_one(session)
    yield
    for each in (session, other):  # whatever a failed test has left open
        each.execute("ROLLBACK")
    drop_partitions()
    session.execute("TRUNCATE outbox_message_t, log_entry")
    for table in TABLES:
        session.execute(f"ALTER TABLE {table.name}_default DROP CONSTRAINT IF EXISTS bounds")
    make_partitions_ahead("default")


def check_partitions(session: Session) -> None:
    for table in TABLES:
        made = partitions(session, table.name)
        assert all(upper == lower for (_, _, upper), (_, lower, _) in pairwise(made)), f"not contiguous: {made}"
        assert made[-1][2] > _tip(session, table.tip), f"nothing ahead: {made}"
        assert in_default(session, table.name) == 0


def _tip(session: Session, statement: str) -> int:
    (tip,) = session.execute(statement).fetchone() or (0,)
    return tip or 0


def test_publishing_and_sequencing_work_without_prepared_partitions(nothing_prepared: None, session: Session) -> None:
    for n in range(25):
        insert(session, n)
    assert number(session).messages == 25
    assert in_default(session, "outbox_message_t") == in_default(session, "log_entry") == 25
    with override_settings(PUBSUB={"segment_rows": 10}):
        made = make_partitions_ahead("default")
        assert {"outbox_message_t_1", "log_entry_1"} <= set(made)
        for _ in range(3):
            assert make_partitions_ahead("default") == []
    check_partitions(session)
    insert(session, "another")
    assert number(session).messages == 1
    assert names(checked_log(session)) == [*(str(n) for n in range(25)), "another"]
    assert in_default(session, "outbox_message_t") == in_default(session, "log_entry") == 0


def test_each_row_goes_where_it_belongs(nothing_prepared: None, session: Session) -> None:
    with override_settings(PUBSUB={"segment_rows": 10}):
        for n in range(95):
            insert(session, n)
            number(session)
            if n % 5 == 0:
                make_partitions_ahead("default")
        check_partitions(session)
        for table in TABLES:
            for name, lower, upper in partitions(session, table.name):
                rows = session.execute(
                    f"SELECT count(*) FILTER (WHERE NOT {table.column} BETWEEN {lower} AND {upper - 1}) FROM {name}"
                )
                assert rows.fetchone() == (0,)
    assert len(checked_log(session)) == 95


def test_another_size_takes_effect_with_the_next_partition(nothing_prepared: None, session: Session) -> None:
    sizes = []
    for size in (10, 100, 3, 50):
        with override_settings(PUBSUB={"segment_rows": size}):
            known = {name for name, _, _ in partitions(session, "outbox_message_t")}
            made: list[tuple[str, int, int]] = []
            while not made:
                make_partitions_ahead("default")
                insert(session, "any")
                made = [each for each in partitions(session, "outbox_message_t") if each[0] not in known]
            sizes += [(size, upper - lower) for _, lower, upper in made]
            number(session)
            make_partitions_ahead("default")
            check_partitions(session)
    assert {wanted for wanted, _ in sizes} == {10, 100, 3, 50}
    assert [each for each in sizes if each[0] != each[1]] == []
    assert len(checked_log(session)) > 100


@pytest.mark.parametrize("overflowed", [False, True])
def test_many_processes_prepare_at_once(nothing_prepared: None, session: Session, overflowed: bool) -> None:
    """As when all workers of a site start together. None of them may fail, and in the end all is in place."""
    if overflowed:
        for n in range(30):
            insert(session, n)
        number(session)

    def prepare() -> None:
        for _ in range(3):
            make_partitions_ahead("default")

    with override_settings(PUBSUB={"segment_rows": 10}):
        all_ready = threading.Barrier(6)
        for each in [Running(together(all_ready, prepare)) for _ in range(6)]:
            each.result(60)
        make_partitions_ahead("default")
        check_partitions(session)
    insert(session, "another")
    number(session)
    assert len(checked_log(session)) == (31 if overflowed else 1)


def test_the_overflow_is_turned_into_a_partition_while_publishers_are_busy(
    nothing_prepared: None, session: Session
) -> None:
    enough = threading.Event()

    def publish_on_and_on() -> int:
        done = 0
        with connect() as mine:
            while not enough.is_set():
                insert(mine, "any")
                done += 1
        return done

    def number_on_and_on() -> None:
        while not enough.is_set():
            sequence("default")

    publishers = [Running(publish_on_and_on) for _ in range(3)]
    sequencer = Running(number_on_and_on)
    try:
        with override_settings(PUBSUB={"segment_rows": 5000}):
            wait_until(lambda: in_default(session, "log_entry") > 500, "there is an overflow")

            def in_place() -> bool:
                make_partitions_ahead("default")
                return not any(in_default(session, table.name) for table in TABLES)

            wait_until(in_place, "the overflow is a partition")
            check_partitions(session)
    finally:
        enough.set()
    published = sum(publisher.result() for publisher in publishers)
    sequencer.result()
    number(session)
    assert unnumbered(session) == 0
    assert len(checked_log(session)) == published


@pytest.mark.parametrize("overflowed", [False, True])
def test_a_long_reader_never_makes_publishers_wait_for_long(
    nothing_prepared: None, session: Session, other: Session, overflowed: bool
) -> None:
    with override_settings(PUBSUB={"segment_rows": 50}):
        insert(session, "first")
        if not overflowed:
            make_partitions_ahead("default")
            for n in range(60):
                insert(session, n)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM outbox_message_t")
        enough = threading.Event()
        publisher = Running(longest_insert, enough)
        try:
            for _ in range(3):
                make_partitions_ahead("default")
        finally:
            enough.set()
        # One wait for a lock, and as much again for a busy machine.
        assert publisher.result() < 3 * LOCK_TIMEOUT_MS / 1000 + 1
        other.execute("COMMIT")
        number(session)
        make_partitions_ahead("default")
        number(session)
        assert unnumbered(session) == 0
        assert len(checked_log(session)) > 0


def test_an_interrupted_preparation_never_stops_publishers(
    nothing_prepared: None, session: Session, other: Session
) -> None:
    """Its reader looks at old partitions only, and so is in the way of the last step alone."""
    with override_settings(PUBSUB={"segment_rows": 10}):
        insert(session, "first")
        make_partitions_ahead("default")
        end = partitions(session, "outbox_message_t")[-1][2]
        for n in range(end + 5):
            insert(session, n)
        assert in_default(session, "outbox_message_t") > 0
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM outbox_message_t WHERE id BETWEEN 2 AND 5").fetchone()
        make_partitions_ahead("default")
        for n in range(1000):  # far beyond what a partition would have held
            insert(session, n)
        other.execute("COMMIT")
        number(session)
        make_partitions_ahead("default")
        check_partitions(session)
        insert(session, "last")
        number(session)
        assert unnumbered(session) == 0
        assert names(checked_log(session))[-1] == "last"


def test_a_killed_preparation_is_repeated(nothing_prepared: None, session: Session, other: Session) -> None:
    """Whatever a half-done preparation has left behind, the next one copes with, and publishers do not notice."""
    with override_settings(PUBSUB={"segment_rows": 10}):
        for n in range(25):
            insert(session, n)
        number(session)
        with transaction_of(other):
            other.execute("LOCK TABLE ONLY outbox_message_t IN ACCESS SHARE MODE")
            make_partitions_ahead("default")
            for n in range(25):
                insert(session, n)
        number(session)
        for _ in range(2):
            make_partitions_ahead("default")
        check_partitions(session)
    assert len(checked_log(session)) == 50


def test_the_session_keeps_no_setting(nothing_prepared: None, session: Session) -> None:
    """Behind a transaction pooler a SET would stay with a connection that another client gets next."""
    statements: list[tuple[str, bool]] = []

    def note(execute, sql, params, many, context):  # type: ignore[no-untyped-def]
        statements.append((sql, context["connection"].in_atomic_block))
        return execute(sql, params, many, context)

    insert(session, "overflow")
    with override_settings(PUBSUB={"segment_rows": 10}), connections["default"].execute_wrapper(note):
        assert make_partitions_ahead("default")
    session_wide = [sql for sql, _ in statements if sql.upper().startswith("SET ") and "LOCAL" not in sql.upper()]
    outside = [sql for sql, inside in statements if sql.upper().startswith("SET LOCAL") and not inside]
    assert (session_wide, outside) == ([], [])
