"""One look at everything: topics, groups, the sequencer, and blockers."""

import datetime as dt
import uuid

import psycopg
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from pubsub import publish
from pubsub.db.connections import dedicated_connection
from pubsub.db.locks import LEADING
from pubsub.management.remedies import remedy
from pubsub.models import ConsumerOffset, OutboxMessage, Sample, Topic
from pubsub.monitoring.problems import find_problems
from pubsub.monitoring.samples import series, take_samples
from pubsub.monitoring.status import LETTERS_LIMIT, status
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from tests.factories import DeadLetterFactory, MemberFactory, SampleFactory, SubscriptionFactory, TopicFactory
from tests.sessions import Running, wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)


def publish_some(topic, count=3):
    with transaction.atomic():
        for number in range(count):
            publish(topic.name, {"number": number}, key="always the same")


def one(items, **wanted):
    (found,) = [item for item in items if all(getattr(item, name) == value for name, value in wanted.items())]
    return found


def test_no_plan_is_compiled(django_assert_num_queries):
    """Over partitions without statistics this takes a hundred times as long as looking."""
    with django_assert_num_queries(6) as asked:
        status("default")
    with CaptureQueriesContext(connection) as others:
        series("default", timezone.now(), [(1, "")])
    for query in [*asked, *others]:
        assert query["sql"].startswith("SELECT set_config('jit', 'off', true), ")
    with CaptureQueriesContext(connection) as sampling:
        take_samples("default")
    assert [query["sql"][:15] for query in sampling][1:2] == ["SET LOCAL jit ="]


def test_a_topic_shows_its_tip_its_size_and_its_rate():
    topic, quiet = TopicFactory(), TopicFactory()
    publish_some(topic)
    sequence("default")
    found = one(status("default").topics, name=topic.name)
    assert (found.tip, found.kept) == (3, 3)
    assert 3 * 240 < found.bytes < 3 * 500
    found = one(status("default").topics, name=quiet.name)
    assert (found.tip, found.kept, found.bytes, found.rate, found.published_at) == (0, 0, 0, 0, None)


@pytest.mark.parametrize(("age_s", "rate"), [(86400, 3 / 300), (60, 3 / 60)])
def test_a_rate_is_of_the_last_minutes_or_of_all_the_time_that_the_topic_has_been_there(age_s, rate):
    topic = TopicFactory()
    publish_some(topic, 12)
    OutboxMessage.objects.update(created_at=timezone.now() - dt.timedelta(minutes=6))
    publish_some(topic)
    sequence("default")
    Topic.objects.filter(pk=topic.pk).update(created_at=timezone.now() - dt.timedelta(seconds=age_s))
    # No sample was ever taken, or long ago: neither matters.
    SampleFactory(topic=topic, tip=0, taken_at=timezone.now() - dt.timedelta(days=1))
    assert one(status("default").topics, name=topic.name).rate == pytest.approx(rate, rel=0.1)


def test_a_group_shows_its_lag_in_each_partition():
    topic = TopicFactory()
    register_subscription(Declaration(topic=topic.name, group="mail", handler=print), using="default")
    publish_some(topic)
    sequence("default")
    group = one(status("default").groups, topic=topic.name, group="mail")
    assert [partition.partition for partition in group.partitions] == [0, 1, 2, 3]
    assert sorted(partition.lag for partition in group.partitions) == [0, 0, 0, 3]
    assert group.lag == 3
    assert group.waiting_since == OutboxMessage.objects.order_by("id").first().created_at
    assert 0 < group.behind_s < 60
    assert sum(partition.behind_s > 0 for partition in group.partitions) == 1


def test_what_has_no_offset_yet_counts_in_the_partition_that_it_will_be_in():
    topic = TopicFactory()
    register_subscription(Declaration(topic=topic.name, group="mail", handler=print), using="default")
    publish_some(topic)
    before = one(status("default").groups, topic=topic.name)
    assert (before.lag, before.readable) == (3, 0)
    assert before.waiting_since == OutboxMessage.objects.order_by("id").first().created_at
    assert before.behind_s > 0
    sequence("default")
    after = one(status("default").groups, topic=topic.name)
    assert (after.lag, after.readable) == (3, 3)
    assert [it.lag for it in after.partitions] == [it.lag for it in before.partitions]


def test_what_has_no_offset_is_counted_up_to_a_limit(monkeypatch):
    monkeypatch.setattr("pubsub.monitoring.status.UNNUMBERED_LIMIT", 2)
    topic = TopicFactory()
    register_subscription(Declaration(topic=topic.name, group="mail", handler=print), using="default")
    publish_some(topic)
    assert one(status("default").groups, topic=topic.name).lag == 2


def test_events_for_other_groups_are_not_waited_for():
    topic = TopicFactory(total_partitions=1)
    register_subscription(Declaration(topic=topic.name, group="mail", handler=print), using="default")
    publish_some(topic)
    sequence("default")
    ConsumerOffset.objects.update(passed=3)
    group = one(status("default").groups, topic=topic.name)
    assert (group.lag, group.waiting_since, group.behind_s) == (0, None, 0)


def test_members_count_as_long_as_they_send_heartbeats():
    subscription = SubscriptionFactory()
    now = timezone.now()
    for age in (1, 200, 400):
        MemberFactory(
            topic=subscription.topic,
            group_id=subscription.group_id,
            last_heartbeat_at=now - dt.timedelta(seconds=age),
        )
    MemberFactory(topic=subscription.topic, group_id="another")
    group = one(status("default").groups, topic=subscription.topic.name)
    assert (group.members, group.silent) == (2, 1)
    assert group.heard_at == now - dt.timedelta(seconds=1)


def test_open_dead_letters_are_counted_by_group_up_to_a_limit():
    few, many = SubscriptionFactory(), SubscriptionFactory()
    for state in ("dead", "dead", "parked", "resolved", "discarded"):
        DeadLetterFactory(topic=few.topic, group_id=few.group_id, state=state)
    DeadLetterFactory(topic=few.topic, group_id=few.group_id, retrying=True)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO dead_letter_queue (group_id, topic_id, partition_id, c_offset, event_id, transaction_id, type,"
            " payload, metadata, published_at, handler, exception_class, exception_message, traceback, attempts) "
            "SELECT %s, %s, 0, n, gen_random_uuid(), gen_random_uuid(), '', '1', '{}', now(), '', '', '', '', 1 "
            "FROM generate_series(1, %s) AS n",
            [many.group_id, many.topic_id, LETTERS_LIMIT + 5],
        )
    groups = status("default").groups
    found = one(groups, topic=few.topic.name)
    assert (found.dead, found.retrying, found.parked, found.letters_bounded) == (2, 1, 1, False)
    found = one(groups, topic=many.topic.name)
    assert (found.dead, found.letters_bounded) == (LETTERS_LIMIT, True)


def test_unnumbered_events_are_noticed():
    topic = TopicFactory()
    sequence("default")
    assert status("default").sequencer.waiting_since is None
    publish_some(topic)
    sequencer = status("default").sequencer
    assert sequencer.waiting_since == OutboxMessage.objects.order_by("id").first().created_at
    assert sequencer.leader_pid is None
    assert not sequencer.is_foreign
    assert sequencer.bytes > 0


def test_the_leader_is_known():
    with dedicated_connection("default") as leader:
        leader.execute(f"SELECT pg_advisory_lock({LEADING})")
        assert status("default").sequencer.leader_pid == leader.info.backend_pid


def test_a_restored_database_is_noticed():
    with connection.cursor() as cursor:
        cursor.execute("SELECT system_identifier FROM log_sequencer")
        (before,) = cursor.fetchone()
        cursor.execute("UPDATE log_sequencer SET system_identifier = 1")
    try:
        assert status("default").sequencer.is_foreign
    finally:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE log_sequencer SET system_identifier = %s", [before])


@pytest.mark.parametrize(
    ("statement", "sequencer", "retention"),
    [
        ("SELECT 1", False, False),
        ("SELECT FROM outbox_log_v LIMIT 1", False, True),
        ("SELECT FROM log_sequencer FOR UPDATE", True, False),
    ],
)
def test_an_old_transaction_is_shown_with_what_it_blocks(monkeypatch, statement, sequencer, retention):
    monkeypatch.setattr("pubsub.monitoring.status.OLD_TRANSACTION", dt.timedelta(0))
    with dedicated_connection("default") as holder, holder.transaction():
        holder.execute(statement)
        blocker = one(status("default").blockers, pid=holder.info.backend_pid)
        assert (blocker.kind, blocker.state, blocker.query) == ("transaction", "idle in transaction", statement)
        assert (blocker.blocks_sequencer, blocker.blocks_retention) == (sequencer, retention)
        assert blocker.age_s > 0
    monkeypatch.undo()
    assert not [blocker for blocker in status("default").blockers if blocker.kind == "transaction"]


def test_a_prepared_transaction_is_shown(monkeypatch):
    with connection.cursor() as cursor:
        cursor.execute("SHOW max_prepared_transactions")
        if cursor.fetchone() == ("0",):
            pytest.skip("this server prepares no transactions: max_prepared_transactions is 0")
    monkeypatch.setattr("pubsub.monitoring.status.OLD_TRANSACTION", dt.timedelta(0))
    gid = f"forgotten-{uuid.uuid4()}"
    with psycopg.connect(**connection.get_connection_params(), autocommit=True) as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM outbox_log_v LIMIT 1")
        other.execute(f"PREPARE TRANSACTION '{gid}'")
        try:
            blocker = one(status("default").blockers, name=gid)
            assert (blocker.kind, blocker.blocks_retention) == ("prepared", True)
        finally:
            other.execute(f"ROLLBACK PREPARED '{gid}'")


def test_a_forgotten_slot_is_shown():
    slot = f"forgotten_{uuid.uuid4().hex}"
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_create_physical_replication_slot(%s, true)", [slot])
    try:
        blocker = one(status("default").blockers, name=slot)
        assert (blocker.kind, blocker.state) == ("slot", "inactive")
        assert blocker.bytes >= 0
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_drop_replication_slot(%s)", [slot])


def test_it_takes_the_same_few_statements_however_much_there_is(django_assert_num_queries):
    def look():
        with django_assert_num_queries(6):
            status("default")

    look()
    for _ in range(5):
        subscription = SubscriptionFactory()
        SampleFactory(topic=subscription.topic)
        DeadLetterFactory(topic=subscription.topic, group_id=subscription.group_id)
    assert Sample.objects.exists()
    look()


def publish_late(topic):
    """Something was published, and has waited too long for its offset."""
    publish_some(topic, 1)
    OutboxMessage.objects.update(created_at=timezone.now() - dt.timedelta(seconds=30))


@pytest.fixture
def leader():
    with dedicated_connection("default") as leader:
        leader.execute(f"SELECT pg_advisory_lock({LEADING})")
        yield leader


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr("pubsub.monitoring.status.NUMBERING_LATE", dt.timedelta(0))


@pytest.mark.usefixtures("soon")
def test_the_session_that_has_locked_the_sequencers_row_is_named(session, leader):
    session.execute("SET application_name = 'forgotten'")
    session.execute("BEGIN")
    session.execute("SELECT FROM log_sequencer FOR UPDATE")
    publish_late(TopicFactory())
    sequencer = status("default").sequencer
    assert sequencer.leader_pid == leader.info.backend_pid
    assert sequencer.leader_seen_at is not None
    assert (sequencer.blocked_by.pid, sequencer.blocked_by.name) == (session.info.backend_pid, "forgotten")
    session.execute("ROLLBACK")
    assert status("default").sequencer.blocked_by is None


@pytest.mark.usefixtures("soon")
def test_of_sessions_that_wait_for_each_other_the_last_is_named(session, other, third, leader):
    """One has the sequencer's row, and waits for another that has locked a topic."""
    topic = TopicFactory()
    other.execute("BEGIN")
    other.execute("SELECT FROM log_sequencer FOR UPDATE")
    session.execute("BEGIN")
    session.execute("SELECT FROM outbox_topics FOR UPDATE")
    waiting = Running(other.execute, "SELECT FROM outbox_topics FOR UPDATE")
    wait_until_blocked(other, third)
    publish_late(topic)
    assert status("default").sequencer.blocked_by.pid == session.info.backend_pid
    session.execute("ROLLBACK")
    waiting.result()
    assert status("default").sequencer.blocked_by.pid == other.info.backend_pid
    other.execute("ROLLBACK")


@pytest.mark.usefixtures("soon")
def test_what_the_leader_waits_for_is_named_and_never_the_leader(session, third, leader):
    topic = TopicFactory()
    publish_some(topic)
    sequence("default")
    session.execute("BEGIN")
    session.execute("SELECT FROM log_counter FOR UPDATE")
    publish_late(topic)
    waiting = Running(leader.execute, "SELECT pubsub_sequence_v1()")
    wait_until_blocked(leader, third)
    assert status("default").sequencer.blocked_by.pid == session.info.backend_pid
    session.execute("ROLLBACK")
    waiting.result()


def test_a_sequencer_that_is_in_time_is_not_looked_into(session, django_assert_num_queries):
    session.execute("BEGIN")
    session.execute("SELECT FROM log_sequencer FOR UPDATE")
    publish_some(TopicFactory())
    with django_assert_num_queries(6):
        assert status("default").sequencer.blocked_by is None
    session.execute("ROLLBACK")


def test_rows_that_wait_for_their_xid_are_counted_and_what_is_typed_numbers_them():
    publish_some(TopicFactory())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE outbox_message_t SET xid = '1000000000000000'")
    sequence("default")
    found = one(find_problems(now := status("default")), code="xids-to-come")
    assert (now.sequencer.xids_to_come, now.sequencer.waiting_since) == (3, None)
    with connection.cursor() as cursor:
        cursor.execute(remedy(found))
    assert sequence("default").messages == 3
    assert "xids-to-come" not in {problem.code for problem in find_problems(status("default"))}


def test_rows_in_the_default_segment_are_reported():
    assert status("default").sequencer.overflowing == []
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL pubsub.loading = 'on'")
        cursor.execute("INSERT INTO outbox_message_t (id, payload) VALUES (1000000000000000, '1')")
    sequence("default")
    found = one(find_problems(now := status("default")), code="default-segment")
    assert now.sequencer.overflowing == ["outbox_message_t"]
    assert remedy(found) == "manage.py run_cleanup --once"
