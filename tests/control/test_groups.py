"""The states of a subscription: the transitions, their audit, and that they keep what they promise."""

import datetime as dt

import pytest
from django.db import transaction
from django.utils import timezone

from pubsub.control import cancel, dry_run, pause, remove_group, resume, subscriptions_of
from pubsub.control.groups import BY_OPERATORS, BY_THE_SYSTEM, change_status
from pubsub.errors import PartitionInUse, Refused, UnknownGroup
from pubsub.models import ConsumerOffset, DeadLetter, Member, OperatorEvent, Status, Subscription
from tests.factories import DeadLetterFactory, LeaseFactory, MemberFactory
from tests.sessions import Running, Session

from .helpers import GROUP, TOPIC, WHO, fill, journal, lag, make_topic, reread, status_of, subscribe, wait_for_waiting

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("before", Status)
@pytest.mark.parametrize("to", Status)
@pytest.mark.parametrize("by_system", [False, True])
def test_only_transitions_of_the_state_machine_are_made(before: Status, to: Status, by_system: bool) -> None:
    make_topic()
    subscribe()
    Subscription.objects.update(status=before)
    allowed = (before, to) in (BY_THE_SYSTEM if by_system else BY_OPERATORS)
    if allowed or before == to:
        state = change_status(TOPIC, GROUP, to, by_system=by_system, **WHO)
        assert (state.before, state.after, state.changed) == (before, to, before != to)
        assert status_of() == to
    else:
        with pytest.raises(Refused, match=f"is {before}, and cannot become {to}"):
            change_status(TOPIC, GROUP, to, by_system=by_system, **WHO)
        assert status_of() == before
    assert len(journal()) == 1 + allowed


def test_cancelled_is_final_and_operators_cannot_make_a_group_dead() -> None:
    assert not [move for move in BY_OPERATORS | BY_THE_SYSTEM if move[0] == Status.CANCELLED]
    assert not [move for move in BY_OPERATORS if move[1] == Status.DEAD]


def test_a_paused_group_keeps_its_cursors_and_continues_there() -> None:
    make_topic()
    subscribe(read=True)
    fill(3)
    pause(TOPIC, GROUP, reason="the mail is down", **WHO)
    assert reread() == []
    assert sum(lag().values()) == 3
    resume(TOPIC, GROUP, **WHO)
    assert sorted(reread()) == [0, 1, 2]


def test_a_cancelled_group_gets_no_events() -> None:
    make_topic()
    subscribe()
    cancel(TOPIC, GROUP, **WHO)
    fill(1)
    assert reread() == []


def test_the_audit_log_says_who_when_why_before_and_after() -> None:
    make_topic()
    subscribe()
    begun = timezone.now() - dt.timedelta(seconds=5)
    pause(TOPIC, GROUP, reason="the mail is down", **WHO)
    event = OperatorEvent.objects.get(action="pause")
    assert (event.actor, event.topic, event.group_id, event.reason) == ("olivia", TOPIC, GROUP, "the mail is down")
    assert (event.before, event.after) == ({"status": "ACTIVE"}, {"status": "PAUSED"})
    assert event.happened_at > begun
    subscription = Subscription.objects.get()
    assert subscription.status_reason == "the mail is down (olivia)"
    assert subscription.status_changed_at > begun


def test_a_second_time_changes_nothing_and_records_nothing() -> None:
    make_topic()
    subscribe()
    assert pause(TOPIC, GROUP, **WHO).changed
    since = Subscription.objects.get().status_changed_at
    assert not pause(TOPIC, GROUP, **WHO).changed
    assert Subscription.objects.get().status_changed_at == since
    assert [action for _, action, _, _ in journal()] == ["create", "pause"]


def test_a_change_that_is_undone_is_not_recorded() -> None:
    make_topic()
    subscribe()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        pause(TOPIC, GROUP, **WHO)
        raise ZeroDivisionError
    assert status_of() == "ACTIVE"
    with dry_run(using="default"):
        pause(TOPIC, GROUP, **WHO)
        assert status_of() == "PAUSED"
    assert status_of() == "ACTIVE"
    assert [action for _, action, _, _ in journal()] == ["create"]


def test_a_group_that_is_active_again_has_missed_no_heartbeat() -> None:
    make_topic()
    subscribe()
    long_ago = timezone.now() - dt.timedelta(days=1)
    Subscription.objects.update(status=Status.DEAD, misses=3, last_heartbeat_at=long_ago)
    resume(TOPIC, GROUP, **WHO)
    subscription = Subscription.objects.get()
    assert subscription.misses == 0
    assert subscription.last_heartbeat_at is not None
    assert subscription.last_heartbeat_at > long_ago


def test_two_operators_at_once_change_it_once(session: Session, other: Session) -> None:
    make_topic()
    subscribe()
    session.execute("BEGIN")
    session.execute("SELECT FROM outbox_topic_subscriptions FOR UPDATE")
    started = [Running(pause, TOPIC, GROUP, **WHO) for _ in range(2)]
    wait_for_waiting(other, "outbox_topic_subscriptions", sessions=2)
    session.execute("COMMIT")
    assert sorted(running.result().changed for running in started) == [False, True]
    assert [action for _, action, _, _ in journal()] == ["create", "pause"]


@pytest.mark.parametrize("topic", [None, TOPIC])
def test_an_unknown_group_is_reported_with_the_nearest_name(topic: str | None) -> None:
    make_topic()
    subscribe()
    with pytest.raises(UnknownGroup, match=r'No group "mial" .* Did you mean "mail"?'):
        subscriptions_of("mial", topic=topic, using="default")
    assert [subscription.topic.name for subscription in subscriptions_of(GROUP, topic=topic, using="default")] == [
        TOPIC
    ]


# Removing a group.


def test_a_group_that_is_active_or_has_unread_events_is_not_removed() -> None:
    make_topic()
    subscribe()
    fill(2)
    with pytest.raises(Refused, match="is ACTIVE"):
        remove_group(TOPIC, GROUP, **WHO)
    pause(TOPIC, GROUP, **WHO)
    with pytest.raises(Refused, match="still has unread events"):
        remove_group(TOPIC, GROUP, **WHO)
    resume(TOPIC, GROUP, **WHO)
    assert sorted(reread()) == [0, 1]
    pause(TOPIC, GROUP, **WHO)
    DeadLetterFactory(topic=Subscription.objects.get().topic, group_id=GROUP)
    with pytest.raises(Refused, match="still has open dead letters"):
        remove_group(TOPIC, GROUP, **WHO)
    assert Subscription.objects.count() == 1


def test_a_cancelled_group_is_removed_and_its_dead_letters_discarded() -> None:
    topic = make_topic()
    subscribe()
    subscribe("audit")
    fill(2)
    MemberFactory(topic=topic, group_id=GROUP)
    LeaseFactory(topic=topic, group_id=GROUP, expires_at=timezone.now())
    letters = [DeadLetterFactory(topic=topic, group_id=GROUP, retrying=retrying) for retrying in (True, False)]
    others = DeadLetterFactory(topic=topic, group_id="audit")
    cancel(TOPIC, GROUP, **WHO)
    before = remove_group(TOPIC, GROUP, reason="retired", **WHO)
    assert (before["status"], before["lag"], before["discarded_letters"]) == ("CANCELLED", 2, 2)
    assert list(Subscription.objects.values_list("group_id", flat=True)) == ["audit"]
    assert set(ConsumerOffset.objects.values_list("group_id", flat=True)) == {"audit"}
    assert not Member.objects.exists()
    states = DeadLetter.objects.filter(pk__in=[letter.pk for letter in letters]).values_list("state", flat=True)
    assert set(states) == {"discarded"}
    assert DeadLetter.objects.get(pk=others.pk).state == "dead"
    assert journal()[-1] == ("olivia", "remove", TOPIC, GROUP)


def test_force_removes_an_active_group_with_unread_events() -> None:
    make_topic()
    subscribe()
    fill(2)
    assert remove_group(TOPIC, GROUP, force=True, **WHO)["lag"] == 2
    assert not Subscription.objects.exists()


def test_a_group_is_not_removed_while_a_worker_holds_a_partition(session: Session, other: Session) -> None:
    make_topic()
    subscribe()
    pause(TOPIC, GROUP, **WHO)
    session.execute("BEGIN")
    session.execute("SELECT FROM consumer_offsets WHERE partition_id = 1 FOR UPDATE")
    with pytest.raises(PartitionInUse, match=r'hold partitions of topic "orders": 1 \(by a worker\)'):
        remove_group(TOPIC, GROUP, **WHO)
    with pytest.raises(PartitionInUse, match=r"for more than 0.05 s"):
        remove_group(TOPIC, GROUP, force=True, wait_s=0.05, **WHO)
    assert Subscription.objects.exists()
    waiting = Running(remove_group, TOPIC, GROUP, force=True, **WHO)
    wait_for_waiting(other, "consumer_offsets")
    session.execute("COMMIT")
    waiting.result()
    assert not Subscription.objects.exists()
