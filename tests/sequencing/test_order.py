"""Which offset an event gets: by commits and publications, never by ids, xids or clocks alone."""

from collections.abc import Callable

import pytest
from django.db import connections, transaction

from pubsub import publish, publish_many
from pubsub.models import OutboxMessage, Topic
from tests.log import checked_log, entries, insert, names, number, unnumbered
from tests.sessions import Session, transaction_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_late_committer_is_numbered_though_its_ids_are_lower(session: Session, other: Session) -> None:
    session.execute("BEGIN")
    low = insert(session, "late")
    high = insert(other, "early")
    assert low < high
    assert number(other).messages == 1
    session.execute("COMMIT")
    assert number(other).messages == 1
    assert names(checked_log(other)) == ["early", "late"]


def test_many_passes_may_go_by_before_a_transaction_commits(session: Session, other: Session) -> None:
    session.execute("BEGIN")
    insert(session, "patient")
    for n in range(5):
        insert(other, n)
        assert number(other).messages == 1
        assert number(other).outcome == "idle"
    session.execute("COMMIT")
    assert number(other).messages == 1
    assert names(checked_log(other)) == [*"01234", "patient"]


def test_an_old_transaction_comes_after_what_had_committed_before_it_published(
    session: Session, other: Session
) -> None:
    """By xid, or by when the transactions began, the other order would come out."""
    session.execute("BEGIN")
    session.execute("SELECT now(), pg_current_xact_id()")
    insert(other, "before")
    insert(session, "after")
    session.execute("COMMIT")
    number(other)
    assert names(checked_log(other)) == ["before", "after"]


def test_the_last_id_decides_not_the_first(session: Session, other: Session) -> None:
    session.execute("BEGIN")
    insert(session, "long 1")
    insert(other, "short")
    insert(session, "long 2")
    session.execute("COMMIT")
    insert(other, "next")
    number(other)
    # By its first id the long one would come before the short one that had committed before "long 2" was published.
    assert names(checked_log(other)) == ["short", "long 1", "long 2", "next"]


def test_the_last_id_counts_over_all_topics_of_a_transaction(session: Session, other: Session) -> None:
    second = Topic.objects.create(name="second", total_partitions=3).pk
    session.execute("BEGIN")
    insert(session, "long 1")
    insert(other, "short")
    insert(session, "long 2", topic=second)
    session.execute("COMMIT")
    number(other)
    log = checked_log(other)
    assert names(log) == ["short", "long 1", "long 2"]
    assert [(entry.topic, entry.offset) for entry in log] == [(1, 1), (1, 2), (second, 1)]


def test_transactions_stay_together_however_their_ids_interleave(new_session: Callable[..., Session]) -> None:
    sessions = [new_session() for _ in range(4)]
    for each in sessions:
        each.execute("BEGIN")
    for n in range(5):
        for name, each in zip("abcd", sessions, strict=True):
            insert(each, f"{name}{n}", key=f"{n}")
    for each in reversed(sessions):
        each.execute("COMMIT")
    assert number(sessions[0]).messages == 20
    assert names(checked_log(sessions[0])) == [f"{name}{n}" for name in "abcd" for n in range(5)]


def test_a_rolled_back_event_leaves_neither_an_entry_nor_a_gap(session: Session) -> None:
    insert(session, "first")
    session.execute("BEGIN")
    insert(session, "aborted")
    session.execute("ROLLBACK")
    with transaction_of(session):
        insert(session, "kept 1")
        session.execute("SAVEPOINT a")
        insert(session, "undone")
        session.execute("SAVEPOINT b")
        insert(session, "undone, too")
        session.execute("ROLLBACK TO a")
        insert(session, "kept 2")
        session.execute("RELEASE a")
    assert number(session).messages == 3
    assert names(checked_log(session)) == ["first", "kept 1", "kept 2"]


def test_more_savepoints_than_a_snapshot_lists(session: Session, other: Session) -> None:
    """Beyond 64 savepoints PostgreSQL keeps their numbers elsewhere; half of these are undone."""
    session.execute("BEGIN")
    for n in range(150):
        session.execute("SAVEPOINT one")
        insert(session, n)
        session.execute("ROLLBACK TO one" if n % 2 else "RELEASE one")
    insert(other, "between")
    assert number(other).messages == 1
    assert number(other).outcome == "idle"
    session.execute("COMMIT")
    assert number(other).messages == 75
    assert names(checked_log(other)) == ["between", *(str(n) for n in range(0, 150, 2))]


def test_only_a_savepoint_publishes(session: Session, other: Session) -> None:
    """The transaction's number is the top-level one, which here nothing but the savepoint has written under."""
    session.execute("BEGIN")
    session.execute("SAVEPOINT one")
    insert(session, "inside")
    insert(other, "outside")
    number(other)
    session.execute("RELEASE one")
    number(other)
    session.execute("COMMIT")
    number(other)
    assert names(checked_log(other)) == ["outside", "inside"]


def test_one_transaction_id_for_each_transaction_savepoints_and_languages_included(session: Session) -> None:
    with transaction.atomic():
        publish("default", {"n": "by publish"})
        with transaction.atomic():
            publish_many("default", ({"payload": {"n": f"by copy {n}"}} for n in range(2)))
        OutboxMessage.objects.bulk_create(OutboxMessage(payload={"n": f"by bulk {n}"}) for n in range(2))
        with connections["default"].cursor() as cursor:
            cursor.execute("""INSERT INTO outbox_message_t (payload) VALUES ('{"n": "by SQL"}')""")
    insert(session, "alone")
    with transaction_of(session):
        insert(session, "pair 1")
        session.execute("SAVEPOINT one")
        insert(session, "pair 2")
    OutboxMessage.objects.create(payload={"n": "by the ORM"})
    number(session)
    log = checked_log(session)
    assert names(log) == (
        [
            "by publish",
            "by copy 0",
            "by copy 1",
            "by bulk 0",
            "by bulk 1",
            "by SQL",
            "alone",
            "pair 1",
            "pair 2",
            "by the ORM",
        ]
    )
    ids = [entry.transaction for entry in log]
    assert len(set(ids[:6])) == 1
    assert ids[7] == ids[8]
    assert len(set(ids)) == 4


def test_no_event_of_an_unknown_topic_is_lost(session: Session) -> None:
    insert(session, "known")
    with transaction_of(session):
        insert(session, "unknown", topic=4711)
        insert(session, "known, too")
    assert number(session).messages == 3
    assert names(checked_log(session)) == ["known", "unknown", "known, too"]
    assert session.execute("SELECT topic, c_offset FROM outbox_log_v WHERE payload ->> 'n' = 'unknown'").fetchone() == (
        "undeclared-topic-4711",
        1,
    )


def test_a_topic_made_for_an_unknown_number_leaves_room_for_the_next(session: Session) -> None:
    newest = Topic.objects.create(name="newest").pk
    insert(session, "unknown", topic=newest + 1)
    number(session)
    Topic.objects.create(name="made afterwards")
    assert Topic.objects.filter(name__in=["made afterwards", f"undeclared-topic-{newest + 1}"]).count() == 2


def test_the_key_whose_hash_has_no_absolute_value(session: Session) -> None:
    """One value in 2^32: it once stopped the sequencer for ever."""
    assert session.execute("SELECT hashtext('aifwlcgf')").fetchone() == (-(2**31),)
    insert(session, "before", key="any")
    insert(session, "smallest", key="aifwlcgf")
    assert number(session).messages == 2
    assert checked_log(session)[1].name == "smallest"


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_every_key_has_a_partition(session: Session, partitions: int) -> None:
    topic = Topic.objects.create(name="keyed", total_partitions=partitions).pk
    session.execute(
        "INSERT INTO outbox_message_t (topic_id, key, payload)"
        """ SELECT %s, 'key ' || random(), '{"n": "any"}' FROM generate_series(1, 33000)""",
        [topic],
    )
    assert number(session).messages == 33000
    rows = session.execute(
        "SELECT partition_id, count(*) FROM log_entry WHERE topic_id = %s GROUP BY 1 ORDER BY 1", [topic]
    ).fetchall()
    assert [partition for partition, _ in rows] == list(range(partitions))
    assert sum(n for _, n in rows) == 33000
    # Not even nearly: a few hundred keys too many in one of them would mean that signs decide.
    assert max(n for _, n in rows) - min(n for _, n in rows) < 1500


def test_a_transaction_without_keys_keeps_together(session: Session) -> None:
    for batch in range(30):
        with transaction_of(session):
            for n in range(3):
                insert(session, f"{batch}/{n}")
    number(session)
    log = checked_log(session)
    homes = {entry.transaction: set[int]() for entry in log}
    for entry in log:
        homes[entry.transaction].add(entry.partition)
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len({min(partitions) for partitions in homes.values()}) > 1, "all in one partition"


def test_the_key_decides_before_the_host(session: Session) -> None:
    for n in range(40):
        insert(session, "same key", key="k", host=f"h{n}")
        insert(session, "same host", host="h")
        insert(session, "empty key", key="", host=f"h{n}")
    number(session)
    log = entries(session)
    for name in ("same key", "same host", "empty key"):
        assert len({entry.partition for entry in log if entry.name == name}) == 1
    assert unnumbered(session) == 0
