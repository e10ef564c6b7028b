"""Another number of partitions: the events of a key keep their order from before it to behind it, for each group."""

import threading
from collections import defaultdict
from typing import Any

import pytest
from django.db import connection, transaction

from pubsub import Delivery, Event, publish, publish_many
from pubsub.control.resize import resize_topic
from pubsub.models import ConsumerOffset, Resize, Subscription, Topic
from pubsub.subscriptions.register import register_subscription
from pubsub.subscriptions.task import PartitionTask
from pubsub.worker.worker import Worker
from tests.handlers import Recorder, declare, drain
from tests.sessions import Running, wait_until

from .helpers import consume, lag, look_for_work, number, topic_of

pytestmark = [pytest.mark.django_db(transaction=True)]
KEYS = 24


@pytest.fixture(autouse=True)
def sized(transactional_db: None) -> str:
    return topic_of(2, "sized")


def resize(partitions: int) -> None:
    resize_topic("sized", partitions, actor="test", using="default")


def publish_round(*rounds: int) -> None:
    for n in rounds:
        with transaction.atomic():
            publish_many("sized", [{"payload": n, "key": key} for key in range(KEYS)])


class InOrder:
    """Notes what it was given, by key; complains about what comes too early."""

    def __init__(self) -> None:
        self.last: dict[Any, int] = defaultdict(lambda: -1)
        self.mistakes: list[tuple[Any, int, int]] = []
        self.count = 0
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            self.count += 1
            if event.payload != self.last[event.key] + 1:
                self.mistakes.append((event.key, self.last[event.key], event.payload))
            self.last[event.key] = event.payload


def task_at(declaration: Any, partition: int) -> PartitionTask:
    """As a worker sees it that has not registered the group again."""
    topic = Topic.objects.get(name="sized")
    return PartitionTask(declared=declaration, topic_id=topic.pk, partition_id=partition, using="default")


@pytest.mark.parametrize("mode", [Delivery.TRANSACTIONAL, Delivery.AT_LEAST_ONCE])
def test_nothing_after_a_resize_before_everything_before_it(mode: Delivery) -> None:
    handler = Recorder()
    declaration = declare(handler, topic="sized", delivery=mode)
    register_subscription(declaration, using="default")
    publish_round(0)
    number()
    resize(7)
    publish_round(1)
    number()
    register_subscription(declaration, using="default")
    # Where partition 0 has passed what is before, it waits for partition 1, and so do the new ones.
    before = len(ConsumerOffset.objects.all())
    assert before == 7
    worker = Worker([declaration], using="default", drain=True, partitions=[0, 2, 3, 4, 5, 6])
    worker.run()
    assert set(handler.payloads) == {0}
    assert {work.task.partition_id for work in look_for_work(declaration) if work.has_new} == {1}
    drain(declaration)
    assert sorted(handler.payloads) == [0] * KEYS + [1] * KEYS
    assert handler.payloads[:KEYS] == [0] * KEYS
    assert lag() == 0


def keys_in(before: int, after: int, wanted: int) -> list[int]:
    """Keys in partition `before` of 2, and then in partition `after` of 3."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT n FROM generate_series(1, 1000) AS n, LATERAL abs(hashtext(n::text)::bigint) AS hash"
            " WHERE mod(hash, 2) = %s AND mod(hash, 3) = %s ORDER BY n LIMIT %s",
            [before, after, wanted],
        )
        return [n for (n,) in cursor.fetchall()]


@pytest.mark.parametrize(
    "options",
    [{}, {"where": {"payload__gte": 0}}, {"on_failure": "park_key"}, {"delivery": "at_least_once"}],
    ids=str,
)
def test_a_resize_after_a_worker_has_looked_for_work(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker knows what there is to do for as long as it takes to do it; a resize may come meanwhile."""
    monkeypatch.setattr("pubsub.worker.sessions.SESSION_S", 0)  # partition 0 is left with more to do
    moving, staying = keys_in(0, 1, 12), keys_in(1, 1, 1)
    handler = InOrder()
    resized: list[bool] = []

    def publish_all(n: int, keys: list[int]) -> None:
        for key in keys:
            with transaction.atomic():
                publish("sized", n, key=key)
        number()

    def behind() -> None:
        resize(3)
        publish_all(1, [*reversed(moving), *staying])  # what waits longest in partition 0 comes first in partition 1

    def handle(event: Event) -> None:
        handler(event)
        if not resized:
            resized.append(True)
            Running(behind).result()

    declaration = declare(handle, topic="sized", **options)
    register_subscription(declaration, using="default")
    publish_all(0, moving + staying)
    # Partition 0, which is not done at once, comes first; then 1, with what the worker knew of it.
    ConsumerOffset.objects.filter(partition_id=0).update(updated_at="2000-01-01T00:00:00Z")
    drain(declaration, batch_size=3)
    assert handler.mistakes == []
    assert handler.count == 2 * 13


def test_each_group_passes_a_resize_on_its_own() -> None:
    quick, slow = InOrder(), InOrder()
    declarations = declare(quick, topic="sized", group="quick"), declare(slow, topic="sized", group="slow")
    for declaration in declarations:
        register_subscription(declaration, using="default")
    publish_round(0, 1)
    resize(5)
    publish_round(2, 3)
    drain(declarations[0])
    assert quick.count == 4 * KEYS
    passed = dict(Subscription.objects.values_list("group_id", "resizes_passed"))
    assert passed["quick"] == Resize.objects.get().position
    assert passed["slow"] == 0
    drain(declarations[1])
    assert slow.count == 4 * KEYS
    assert quick.mistakes == slow.mistakes == []


def test_two_resizes_with_partitions_that_a_group_has_not_seen_yet() -> None:
    handler = InOrder()
    declaration = declare(handler, topic="sized")
    register_subscription(declaration, using="default")
    publish_round(0)
    number()
    resize(6)
    publish_round(1)
    number()
    resize(3)
    publish_round(2)
    number()
    # As if no worker had registered the group since: partitions 2 to 5 hold events, and it has no cursor there.
    ConsumerOffset.objects.filter(partition_id__gte=2).delete()
    for _ in range(4):
        look_for_work(declaration)
        for partition in (0, 1):
            while consume(task_at(declaration, partition), 100).passed:
                continue
    drain(declaration)
    assert handler.mistakes == []
    assert handler.count == 3 * KEYS
    assert lag() == 0


def test_a_new_group_reads_partitions_that_the_topic_no_longer_has() -> None:
    register_subscription(declare(Recorder(), topic="sized", group="others"), using="default")
    resize(6)
    publish_round(0)
    number()
    resize(1)
    publish_round(1)
    handler = InOrder()
    drain(declare(handler, topic="sized", start="earliest"))
    assert handler.mistakes == []
    assert handler.count == 2 * KEYS


def test_a_held_lease_is_before_a_resize() -> None:
    from .helpers import leaseholder, task_of

    handler = InOrder()
    inside, go_on = threading.Event(), threading.Event()

    def slow(event: Event) -> None:
        inside.set()
        assert go_on.wait(30)
        handler(event)

    with transaction.atomic():
        publish("sized", 0, key=1)
    number()
    with connection.cursor() as cursor:
        cursor.execute("SELECT partition_id FROM log_entry")
        ((partition_id,),) = cursor.fetchall()
    declaration = declare(slow, topic="sized", delivery=Delivery.AT_MOST_ONCE)
    task = task_of(declaration, partition_id)
    resize(5)
    register_subscription(declaration, using="default")
    with transaction.atomic():
        publish("sized", 1, key=1)
    number()
    with leaseholder("one") as one:
        running = Running(one.consume, task, 10)
        assert inside.wait(10)
        assert [work for work in look_for_work(declaration, "two") if work.has_new] == []
        go_on.set()
        running.result()
    drain(declaration)
    assert handler.mistakes == []
    assert handler.count == 2


@pytest.mark.parametrize("mode", [Delivery.TRANSACTIONAL, Delivery.AT_LEAST_ONCE])
def test_under_load_with_four_workers(mode: Delivery) -> None:
    handler = InOrder()
    declaration = declare(handler, topic="sized", delivery=mode)
    register_subscription(declaration, using="default")
    workers = [Worker([declaration], using="default", batch_size=10, wait_period_ms=20, listen=False) for _ in range(4)]
    running = [Running(worker.run) for worker in workers]
    n = 0
    try:
        for partitions in (5, 3, 8):
            for _ in range(5):
                publish_round(n)
                n += 1
            resize(partitions)
            register_subscription(declaration, using="default")
        for _ in range(5):
            publish_round(n)
            n += 1
        wait_until(lambda: handler.count >= n * KEYS, "all is handled", 60)
    finally:
        for worker in workers:
            worker.stop()
    for each in running:
        each.result()
    assert handler.mistakes == []
    assert handler.count == n * KEYS
    assert Topic.objects.get(name="sized").total_partitions == 8
