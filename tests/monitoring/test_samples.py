"""Samples: one where something has changed, none where nothing has, none for ever."""

import datetime as dt
import threading

import pytest
from django.db import transaction
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from pubsub import publish
from pubsub.control.resize import locked_topic
from pubsub.models import ConsumerOffset, Member, Sample
from pubsub.monitoring import samples
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from pubsub.worker.maintenance import Maintenance
from pubsub.worker.worker import Worker
from tests.factories import MemberFactory, SampleFactory, TopicFactory
from tests.handlers import Recorder, declare
from tests.sessions import Running, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def topic():
    topic = TopicFactory(total_partitions=1)
    register_subscription(Declaration(topic=topic.name, group="mail", handler=print), using="default")
    return topic


def publish_some(topic):
    with transaction.atomic():
        for number in range(3):
            publish(topic.name, number)
    sequence("default")


def values():
    return list(Sample.objects.order_by("id").values_list("group_id", "tip", "lag"))


def some_time_passes():
    for sample in Sample.objects.all():
        Sample.objects.filter(pk=sample.pk).update(taken_at=sample.taken_at - dt.timedelta(seconds=30))


def test_a_sample_is_taken_only_if_something_has_changed(topic):
    publish_some(topic)
    assert samples.take_samples("default") == 2
    assert sorted(values()) == [("", 3, 0), ("mail", 3, 3)]
    assert 0 < Sample.objects.get(group_id="mail").behind_s < 60
    some_time_passes()
    assert samples.take_samples("default") == 0, "an idle system writes nothing"
    ConsumerOffset.objects.update(passed=3)
    assert samples.take_samples("default") == 1
    assert values()[2:] == [("mail", 3, 0)]
    assert Sample.objects.latest("id").behind_s == 0


def test_changes_in_between_wait_for_their_time(topic):
    publish_some(topic)
    samples.take_samples("default")
    publish_some(topic)
    assert samples.take_samples("default") == 0
    some_time_passes()
    assert samples.take_samples("default") == 2


def test_old_samples_are_removed(topic, monkeypatch):
    monkeypatch.setattr(samples, "PRUNED_AT_ONCE", 2)
    now = timezone.now()
    for days in (5, 4, 3, 1):
        SampleFactory(topic=topic, taken_at=now - dt.timedelta(days=days))
    assert [samples.prune_samples("default") for _ in range(3)] == [3, 0, 0]
    assert Sample.objects.get().taken_at == now - dt.timedelta(days=1)


def test_maintenance_does_both(topic):
    publish_some(topic)
    SampleFactory(topic=topic, group_id="gone", taken_at=timezone.now() - dt.timedelta(days=5))
    assert Maintenance("default").step()
    assert sorted(values()) == [("", 3, 0), ("mail", 3, 3)]


def test_series_are_in_order_and_begin_with_the_state_before(topic):
    now = timezone.now()
    for minutes, lag in ((120, 9), (90, 1), (10, 3), (20, 2)):
        SampleFactory(topic=topic, group_id="mail", lag=lag, taken_at=now - dt.timedelta(minutes=minutes))
    SampleFactory(topic=topic, tip=7)
    found = samples.series("default", now - dt.timedelta(hours=1), [(topic.pk, ""), (topic.pk, "mail")])
    assert [point.lag for point in found[topic.pk, "mail"]] == [1, 2, 3]
    assert [point.tip for point in found[topic.pk, ""]] == [7]


def test_a_topic_that_is_removed_or_changed_meanwhile(topic, session):
    publish_some(topic)
    lock = f"SELECT FROM outbox_topics WHERE name = '{topic.name}' FOR "
    session.execute("BEGIN")
    session.execute(lock + "UPDATE")  # as remove_topic does: a sample in between would keep it from being removed
    assert samples.take_samples("default") == 0
    session.execute("ROLLBACK")
    session.execute("BEGIN")
    session.execute(lock + "NO KEY UPDATE")  # as a change of it does
    assert samples.take_samples("default") == 2
    session.execute("ROLLBACK")


def test_no_sample_can_be_taken_of_a_topic_that_is_being_removed(topic, session):
    with transaction.atomic():
        locked_topic(topic.name, "default", to_remove=True)
        session.execute("SET lock_timeout = '50ms'")
        with pytest.raises(LockNotAvailable):
            session.execute("INSERT INTO outbox_samples (topic_id, tip) SELECT id, 1 FROM outbox_topics WHERE id > 1")


def test_a_change_that_no_worker_has_seen_is_after_a_gap(topic):
    """The last worker has ended, and events were published: when the lag grew is not known."""
    publish_some(topic)
    samples.take_samples("default")
    for sample in Sample.objects.all():
        Sample.objects.filter(pk=sample.pk).update(taken_at=sample.taken_at - dt.timedelta(minutes=20))
    publish_some(topic)
    now = timezone.now()
    member = MemberFactory(topic=topic, group_id="mail", joined_at=now - dt.timedelta(seconds=1))
    samples.take_samples("default")
    assert list(Sample.objects.order_by("id").values_list("after_gap", flat=True)) == [False, False, True, True]
    Sample.objects.filter(after_gap=True).delete()
    Member.objects.filter(pk=member.pk).update(joined_at=now - dt.timedelta(hours=1))
    samples.take_samples("default")
    assert not Sample.objects.filter(after_gap=True).exists(), "one that was there has seen that nothing changed"


def test_samples_are_taken_while_a_handler_hangs(topic, monkeypatch):
    monkeypatch.setattr("pubsub.worker.maintenance.EVERY_S", 0.05)
    monkeypatch.setattr(samples, "AT_LEAST", dt.timedelta(0))
    hangs, goes_on = threading.Event(), threading.Event()

    def handler(event):
        hangs.set()
        assert goes_on.wait(30)

    worker = Worker([declare(handler, topic=topic.name, group="mail")], using="default")
    running = Running(worker.run)
    try:
        with transaction.atomic():
            publish(topic.name, 1)
        assert hangs.wait(30)
        with transaction.atomic():
            for number in range(320):
                publish(topic.name, number)
        wait_until(lambda: Sample.objects.filter(group_id="mail", lag__gte=320).exists(), "the lag is sampled")
    finally:
        goes_on.set()
        worker.stop()
        running.result()
    assert Sample.objects.filter(group_id="mail").latest("id").lag < 321, "one more when it ends"


def test_a_worker_that_stops_leaves_a_last_sample(topic):
    handler = Recorder()
    worker = Worker([declare(handler, topic=topic.name, group="mail")], using="default")
    running = Running(worker.run)
    wait_until(lambda: Sample.objects.exists() or worker.wait_until_listening(0), "it has begun")
    publish_some(topic)
    wait_until(lambda: len(handler.payloads) == 3, "it has handled them")
    worker.stop()
    running.result()
    last = Sample.objects.filter(group_id="mail").latest("id")
    assert (last.tip, last.lag) == (3, 0)
