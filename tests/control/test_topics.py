"""Topics: made, changed and removed; in line with the settings; a QUEUE for one group; refusing to publish."""

import datetime as dt
import re
import time
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

from pubsub import NoSubscribers, publish, publish_many, publish_on_commit
from pubsub.checks import check_settings
from pubsub.control import (
    cancel,
    configure_topic,
    create_topic,
    dry_run,
    losses,
    pause,
    remove_group,
    remove_topic,
    resume,
    sync_topics,
)
from pubsub.errors import InvalidSetting, InvalidTopic, Refused, UnknownTopic
from pubsub.models import DeadLetter, LogCounter, OperatorEvent, OutboxMessage, Status, Subscription, Topic
from pubsub.sequencing.sequencer import sequence
from pubsub.setup import prepare
from pubsub.topic_options import checked
from pubsub.topics import registry
from tests.factories import (
    AttemptFactory,
    DeadLetterFactory,
    DedupKeyFactory,
    DelayedMessageFactory,
    MemberFactory,
    SubscriptionFactory,
)
from tests.log import insert
from tests.sessions import Running, Session

from .helpers import GROUP, TOPIC, WHO, fill, journal, make_topic, subscribe, wait_for_waiting

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_topic_has_the_given_options_and_defaults_for_the_rest() -> None:
    with override_settings(PUBSUB={"partitions": 5}):
        create_topic(TOPIC, max_age=dt.timedelta(days=3), zero_subscribers="refuse", **WHO)
    topic = Topic.objects.get(name=TOPIC)
    assert (topic.total_partitions, topic.max_age, topic.zero_subscribers) == (5, dt.timedelta(days=3), "refuse")
    assert (topic.semantics, topic.retention) == ("PUB_SUB", dt.timedelta(days=7))
    event = OperatorEvent.objects.get(topic=TOPIC)
    assert event.after is not None
    assert (event.action, event.after["partitions"], event.after["retention"]) == ("create", 5, "P7DT00H00M00S")
    with pytest.raises(Refused, match='Topic "orders" already exists'):
        create_topic(TOPIC, **WHO)
    with pytest.raises(UnknownTopic, match="cannot be the name"):
        create_topic("no spaces", **WHO)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitions": 0}, "partitions of topic .* at least 1, not 0"),
        ({"partitions": 2**31}, "at least 1"),
        ({"retention": 7}, "retention of topic .* timedelta"),
        ({"retention": dt.timedelta(days=-1)}, "not negative"),
        ({"semantics": "queue"}, '"PUB_SUB" or "QUEUE", not \'queue\''),
        ({"zero_subscribers": None}, '"keep" or "refuse"'),
        ({"max_age": dt.timedelta(0)}, "above zero, or None"),
        ({"max_bytes": True}, "max_bytes"),
        ({"name": "other"}, 'no option "name"'),
        ({"retentoin": dt.timedelta(1)}, 'Did you mean "retention"'),
    ],
)
def test_a_bad_option_is_echoed_wherever_it_comes_from(options: dict[str, Any], message: str) -> None:
    make_topic()
    with pytest.raises(InvalidTopic, match=message):
        checked(TOPIC, options)
    with pytest.raises(InvalidSetting, match=message):
        sync_topics({TOPIC: options}, using="default")


def test_configuring_changes_and_records_only_what_differs() -> None:
    make_topic(retention=dt.timedelta(days=1))
    week = dt.timedelta(days=7)
    changes = configure_topic(TOPIC, retention=week, max_bytes=10, semantics="PUB_SUB", reason="audit", **WHO)
    assert changes == {"retention": (dt.timedelta(days=1), week), "max_bytes": (None, 10)}
    event = OperatorEvent.objects.get(action="configure")
    assert (event.before, event.after) == (
        {"retention": "P1DT00H00M00S", "max_bytes": None},
        {"retention": "P7DT00H00M00S", "max_bytes": 10},
    )
    assert configure_topic(TOPIC, retention=week, **WHO) == {}
    assert OperatorEvent.objects.filter(action="configure").count() == 1
    with pytest.raises(UnknownTopic, match=r'There is no topic "oders". Did you mean "orders"'):
        configure_topic("oders", retention=week, **WHO)


def test_the_former_name_of_an_option_still_works_and_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match='"total_partitions" of topics is now called "partitions"') as warned:
        create_topic(TOPIC, total_partitions=3, **WHO)
    assert [warning.filename for warning in warned] == [__file__]
    assert Topic.objects.get(name=TOPIC).total_partitions == 3
    with pytest.warns(DeprecationWarning, match="partitions"):
        assert configure_topic(TOPIC, total_partitions=5, **WHO) == {"partitions": (3, 5)}
    with (
        pytest.warns(DeprecationWarning, match="partitions"),
        pytest.raises(InvalidTopic, match='has both "partitions" and "total_partitions"'),
    ):
        configure_topic(TOPIC, partitions=5, total_partitions=5, **WHO)


# In line with the settings.


def test_settings_make_topics_and_change_only_the_options_they_name() -> None:
    first = sync_topics({TOPIC: {"partitions": 2, "max_age": dt.timedelta(days=1)}}, using="default")
    assert first == {TOPIC: {"partitions": (None, 2), "max_age": (None, dt.timedelta(days=1))}}
    configure_topic(TOPIC, retention=dt.timedelta(days=30), **WHO)
    configure_topic(TOPIC, partitions=8, **WHO)
    assert sync_topics({TOPIC: {"partitions": 4}}, using="default") == {TOPIC: {"partitions": (8, 4)}}
    topic = Topic.objects.get(name=TOPIC)
    assert (topic.total_partitions, topic.retention, topic.max_age) == (4, dt.timedelta(days=30), dt.timedelta(days=1))
    assert topic.resizes.count() == 1  # at one position, where nothing was numbered in between
    told = len(OperatorEvent.objects.all())
    for _ in range(3):
        assert sync_topics({TOPIC: {"partitions": 4}}, using="default") == {}
    assert len(OperatorEvent.objects.all()) == told


def test_migrate_synchronises() -> None:
    with override_settings(PUBSUB={"topics": {TOPIC: {"zero_subscribers": "refuse"}}}):
        prepare("default")
        assert Topic.objects.get(name=TOPIC).zero_subscribers == "refuse"
    with override_settings(PUBSUB={"topics": {TOPIC: {"partitions": 3}}}):
        prepare("default")
    topic = Topic.objects.get(name=TOPIC)
    assert (topic.total_partitions, topic.zero_subscribers) == (3, "refuse")
    assert list(OperatorEvent.objects.filter(topic=TOPIC).order_by("id").values_list("actor", "action", "reason")) == [
        ("migrate", "create", 'PUBSUB["topics"]'),
        ("migrate", "resize", 'PUBSUB["topics"]'),
    ]


def test_a_topic_that_matches_takes_no_lock(session: Session) -> None:
    make_topic(partitions=2)
    session.execute("BEGIN")
    session.execute("SELECT FROM log_sequencer FOR UPDATE")
    session.execute("SELECT FROM outbox_topics FOR UPDATE")
    assert sync_topics({TOPIC: {"partitions": 2, "semantics": "PUB_SUB"}}, using="default") == {}


def test_several_processes_that_migrate_at_once_make_each_topic_once(session: Session, other: Session) -> None:
    make_topic(partitions=2)
    declared = {TOPIC: {"partitions": 5, "max_bytes": 7}, "new": {"partitions": 3}}
    session.execute("BEGIN")
    session.execute("SELECT FROM log_sequencer FOR UPDATE")
    started = [Running(sync_topics, declared, using="default") for _ in range(4)]
    wait_for_waiting(other, "log_sequencer", sessions=4)
    session.execute("COMMIT")
    results = [running.result() for running in started]
    assert sum(TOPIC in result for result in results) == 1
    assert sum("new" in result for result in results) == 1
    topic = Topic.objects.get(name=TOPIC)
    assert (topic.total_partitions, topic.max_bytes) == (5, 7)
    told = OperatorEvent.objects.filter(actor="migrate", topic__in=[TOPIC, "new"]).order_by("id")
    assert sorted(told.values_list("topic", "action")) == [("new", "create"), (TOPIC, "configure"), (TOPIC, "resize")]


# A queue.


def test_a_topic_with_several_groups_cannot_become_a_queue() -> None:
    make_topic()
    subscribe("first")
    subscribe("second")
    subscribe("third")
    with pytest.raises(Refused, match=r"it has 3, first, second, third. Cancel or remove all but one"):
        configure_topic(TOPIC, semantics="QUEUE", **WHO)
    cancel(TOPIC, "third", **WHO)
    pause(TOPIC, "second", **WHO)
    with pytest.raises(Refused, match="it has 2, first, second"):
        configure_topic(TOPIC, semantics="QUEUE", **WHO)
    remove_group(TOPIC, "second", **WHO)
    assert configure_topic(TOPIC, semantics="QUEUE", **WHO) == {"semantics": ("PUB_SUB", "QUEUE")}


def test_becoming_a_queue_waits_for_a_group_that_is_just_subscribing(session: Session, other: Session) -> None:
    topic = make_topic()
    subscribe("first")
    session.execute("BEGIN")
    session.execute("SELECT FROM log_sequencer FOR UPDATE")
    session.execute("INSERT INTO outbox_topic_subscriptions (topic_id, group_id) VALUES (%s, 'second')", [topic.pk])
    changing = Running(configure_topic, TOPIC, semantics="QUEUE", **WHO)
    wait_for_waiting(other, "log_sequencer")
    session.execute("COMMIT")
    with pytest.raises(Refused, match="it has 2"):
        changing.result()


# Refusing events that no group would get.


@pytest.fixture
def _no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each publish asks: what a process remembers for a second is another test's subject."""
    monkeypatch.setattr(registry, "SUBSCRIBED_FOR_S", -1)


@pytest.mark.usefixtures("_no_memory")
@pytest.mark.parametrize("status", [None, *Status])
def test_a_topic_may_refuse_events_while_no_group_counts(status: str | None) -> None:
    topic = make_topic(zero_subscribers="refuse")
    if status:
        SubscriptionFactory(topic=topic, group_id=GROUP, status=status)
    for _ in range(2):
        with transaction.atomic():
            if status in ("ACTIVE", "PAUSED"):
                publish(TOPIC, 1)
                publish_many(TOPIC, [{"payload": 2}])
                publish_on_commit(TOPIC, 3)
            else:
                for refused in (publish, publish_on_commit):
                    with pytest.raises(NoSubscribers, match='Topic "orders" refuses events while no group'):
                        refused(TOPIC, 1)
                with pytest.raises(NoSubscribers):
                    publish_many(TOPIC, [{"payload": 2}])
                publish("default", "the transaction goes on")


@pytest.mark.usefixtures("_no_memory")
def test_a_subscription_opens_the_topic_and_cancelling_the_last_one_closes_it() -> None:
    make_topic(zero_subscribers="refuse")
    with pytest.raises(NoSubscribers), transaction.atomic():
        publish(TOPIC, 0)
    subscribe()
    fill(1)
    pause(TOPIC, GROUP, **WHO)
    fill(1)
    cancel(TOPIC, GROUP, **WHO)
    with pytest.raises(NoSubscribers), transaction.atomic():
        publish(TOPIC, 0)


def test_a_refusal_is_never_cached_and_a_permission_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    make_topic(zero_subscribers="refuse")
    now = time.monotonic()
    monkeypatch.setattr(registry.time, "monotonic", lambda: now)
    with pytest.raises(NoSubscribers), transaction.atomic():
        publish(TOPIC, 0)
    subscribe()
    fill(1)
    cancel(TOPIC, GROUP, **WHO)
    fill(1)  # believed for a moment
    now += registry.SUBSCRIBED_FOR_S
    with pytest.raises(NoSubscribers), transaction.atomic():
        publish(TOPIC, 0)


def test_an_ordinary_topic_is_only_queried_now_and_then(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    make_topic()
    fill(1)
    now = time.monotonic()
    monkeypatch.setattr(registry.time, "monotonic", lambda: now)
    with transaction.atomic():
        with django_assert_num_queries(1):
            publish(TOPIC, 0)
        Topic.objects.filter(name=TOPIC).update(zero_subscribers="refuse")  # by another process: no signal
        with django_assert_num_queries(1):
            publish(TOPIC, 0)
        now += registry.LOOK_AGAIN_S
        with pytest.raises(NoSubscribers):
            publish(TOPIC, 0)


def test_a_group_may_subscribe_to_a_topic_that_refuses_events() -> None:
    make_topic(zero_subscribers="refuse")
    recorder = subscribe(read=True)
    assert recorder.payloads == []


def test_the_query_locks_nothing(session: Session) -> None:
    make_topic(zero_subscribers="refuse")
    subscribe()
    registry.forget_ids()
    session.execute("BEGIN")
    session.execute("SELECT FROM outbox_topics FOR UPDATE")
    session.execute("SELECT FROM outbox_topic_subscriptions FOR UPDATE")
    with transaction.atomic():
        publish(TOPIC, 0)
        locks = session.execute(
            "SELECT count(*) FROM pg_locks WHERE relation IN ('outbox_topics'::regclass,"
            " 'outbox_topic_subscriptions'::regclass) AND mode <> 'AccessShareLock' AND pid <> pg_backend_pid()"
        ).fetchone()
        assert locks == (0,)


# Removing a topic.


def test_an_unused_topic_is_removed_without_a_trace() -> None:
    topic = make_topic()
    configure_topic(TOPIC, partitions=5, **WHO)
    assert losses(topic, using="default") == []
    assert remove_topic(TOPIC, reason="a slip of the pen", **WHO) == []
    assert not Topic.objects.filter(name=TOPIC).exists()
    event = OperatorEvent.objects.get(action="remove")
    assert event.before is not None
    assert (event.topic, event.reason, event.before["partitions"]) == (TOPIC, "a slip of the pen", 5)
    with pytest.raises(UnknownTopic):
        remove_topic(TOPIC, **WHO)


def test_a_topic_is_not_removed_while_anything_would_be_lost(session: Session) -> None:
    topic = make_topic()
    reasons: list[tuple[Any, str]] = [
        (lambda: insert(session, "x", topic=topic.pk), "events wait for their offsets"),
        (lambda: sequence("default"), "1 event is in its log"),
        (lambda: SubscriptionFactory(topic=topic, group_id=GROUP), "groups are subscribed to it: mail"),
        (lambda: DeadLetterFactory(topic=topic), "dead letters from it are open"),
        (lambda: DelayedMessageFactory(topic=topic), "delayed events wait for it"),
    ]
    for happens, said in reasons:
        happens()
        with pytest.raises(Refused, match=said):
            remove_topic(TOPIC, **WHO)
    assert Topic.objects.filter(name=TOPIC).exists()


def test_numbered_events_do_not_count_as_waiting_while_an_older_transaction_is_open(session: Session) -> None:
    session.execute("BEGIN")
    session.execute("SELECT pg_current_xact_id()")
    topic = make_topic()
    fill(1)
    assert losses(topic, using="default") == ["1 event is in its log"]


def test_force_removes_everything_but_the_log() -> None:
    topic = make_topic()
    subscribe()
    fill(3)
    AttemptFactory(letter=DeadLetterFactory(topic=topic, group_id=GROUP))
    DelayedMessageFactory(topic=topic)
    DedupKeyFactory(topic=topic)
    MemberFactory(topic=topic)
    with dry_run(using="default"):
        assert len(remove_topic(TOPIC, force=True, **WHO)) == 4
    assert Topic.objects.filter(name=TOPIC).exists()
    assert len(remove_topic(TOPIC, force=True, **WHO)) == 4
    assert not Topic.objects.filter(name=TOPIC).exists()
    assert not Subscription.objects.exists()
    assert not DeadLetter.objects.exists()
    # Its number's offsets go on, should a publisher that was not told use it once more.
    assert LogCounter.objects.get(topic_id=topic.pk).next_offset == 4


def test_a_publisher_that_has_not_noticed_loses_nothing(session: Session) -> None:
    topic = make_topic()
    fill(2)
    session.execute("BEGIN")
    insert(session, "late", topic=topic.pk)
    remove_topic(TOPIC, force=True, **WHO)
    session.execute("COMMIT")
    assert sequence("default").messages == 1
    found = Topic.objects.get(pk=topic.pk)
    assert (found.name, found.counter.next_offset) == (f"undeclared-topic-{topic.pk}", 4)


@pytest.mark.parametrize("policy", ["create", "refuse"])
def test_a_process_forgets_the_number_of_a_topic_that_another_one_removed(
    session: Session, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(registry.time, "monotonic", lambda: now)
    with override_settings(PUBSUB={"unknown_topic": "create"}), transaction.atomic():
        publish("passing", 1)
    number = Topic.objects.get(name="passing").pk
    session.execute("DELETE FROM outbox_topics WHERE id = %s", (number,))  # by another process: no signal
    now += registry.LOOK_AGAIN_S
    with override_settings(PUBSUB={"unknown_topic": policy}), transaction.atomic():
        if policy == "create":
            publish("passing", 2)
            assert OutboxMessage.objects.last().topic_id == Topic.objects.get(name="passing").pk != number
        else:
            with pytest.raises(UnknownTopic):
                publish("passing", 2)


def test_the_default_topic_stays() -> None:
    with pytest.raises(Refused, match="cannot be removed"):
        remove_topic("default", force=True, **WHO)


def test_the_audit_log_has_everything_in_order() -> None:
    make_topic()
    subscribe()
    pause(TOPIC, GROUP, **WHO)
    resume(TOPIC, GROUP, **WHO)
    remove_topic(TOPIC, force=True, **WHO)
    assert [(action, group) for _, action, _, group in journal()] == [
        ("create", ""),
        ("pause", GROUP),
        ("resume", GROUP),
        ("remove", ""),
    ]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM operator_events WHERE actor = 'olivia' AND topic = %s", [TOPIC])
        assert cursor.fetchone() == (4,)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({TOPIC: {"partition": 4}}, r'PUBSUB\["topics"\]: Topic "orders" has no option "partition"\. Did you mean'),
        ({TOPIC: {"retention": 7}}, "timedelta"),
        ([TOPIC], r'PUBSUB\["topics"\] must be a dict such as'),
        ({TOPIC: 4}, "must be a dict such as"),
    ],
)
def test_bad_declarations_are_found_by_the_system_check(given: Any, message: str) -> None:
    with override_settings(PUBSUB={"topics": given}):
        (found,) = check_settings()
    assert found.id == "pubsub.E002"
    assert re.search(message, found.msg)
