"""Where a new group begins, on a log that is long, and who may read a queue."""

import datetime as dt
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from pubsub import publish, publish_many
from pubsub.control import remove_topic, resize_topic
from pubsub.errors import InvalidSubscription
from pubsub.models import ConsumerLag, Subscription, Topic
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.register import register_subscription
from pubsub.topics.registry import forget_ids
from pubsub.worker import maintenance
from pubsub.worker.worker import Worker
from tests.consuming.helpers import lag, number, publish_each, topic_of
from tests.handlers import Recorder, declare, drain
from tests.processes import CHECKOUT
from tests.sessions import Running, database_url, wait_until

pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.fixture
def long_log() -> dt.datetime:
    """30,000 messages, a second apart. Returns when the first was published."""
    topic_of(4, "long")
    first = timezone.now().replace(microsecond=0) - dt.timedelta(days=2)
    with transaction.atomic():
        publish_many("long", ({"payload": n, "key": n % 50} for n in range(30_000)))
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_message_t SET created_at = %s::timestamptz + (payload::text || ' s')::interval", [first]
        )
        cursor.execute("ANALYZE outbox_message_t, log_entry")
    number()
    return first


def begins(start: Any, group: str) -> int:
    """How many events a group that starts there has before it."""
    register_subscription(declare(Recorder(), topic="long", group=group, start=start), using="default")
    return sum(ConsumerLag.objects.filter(group_id=group).values_list("lag", flat=True))


def test_offsets_and_times(long_log: dt.datetime) -> None:
    assert begins("earliest", "earliest") == 30_000
    assert begins("latest", "latest") == 0
    assert begins(1, "one") == 30_000
    assert begins(12_346, "middle") == 30_000 - 12_345
    assert begins(30_000, "last") == 1
    assert begins(30_001, "next") == 0
    for n in (0, 1, 15_000, 29_999):
        assert begins(long_log + dt.timedelta(seconds=n), f"at {n}") == 30_000 - n
    assert begins(long_log - dt.timedelta(days=1000), "before all") == 30_000
    assert begins(timezone.now() + dt.timedelta(days=1), "in the future") == 0


SLOW = {
    "pubsub_offset_at_v1": ("topic integer, at timestamptz, slack interval DEFAULT '10 minutes'", "RETURNS bigint", 3),
    "pubsub_cursor_at_v1": (
        "topic integer, partition integer, from_offset bigint, "
        "OUT next_offset bigint, OUT next_position bigint, OUT passed bigint",
        "",
        3,
    ),
}
"""What takes long on a long log: its arguments, what it returns, how many of the arguments go in."""


@contextmanager
def refused_while_others_wait() -> Iterator[None]:
    """Lets the slow functions fail in a session that has locked the sequencer's row."""
    with connection.cursor() as cursor:
        for name, (arguments, returns, taken) in SLOW.items():
            cursor.execute(f"ALTER FUNCTION {name} RENAME TO {name}_itself")
            values = ", ".join(f"${n + 1}" for n in range(taken))
            body = f"RETURN {name}_itself({values});"
            if not returns:
                body = f"SELECT * INTO next_offset, next_position, passed FROM {name}_itself({values});"
            cursor.execute(
                f"CREATE FUNCTION {name}({arguments}) {returns} LANGUAGE plpgsql AS $$ BEGIN"
                "  IF EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'RowShareLock'"
                "             AND relation = 'log_sequencer'::regclass)"
                f"  THEN RAISE '{name} is called while no pass can run'; END IF;"
                f"  {body} END $$"
            )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for name in SLOW:
                cursor.execute(f"DROP FUNCTION {name}")
                cursor.execute(f"ALTER FUNCTION {name}_itself RENAME TO {name}")


def test_nothing_waits_while_an_old_position_is_looked_up(long_log: dt.datetime) -> None:
    with refused_while_others_wait():
        assert begins(12_346, "middle") == 30_000 - 12_345
        assert begins(long_log + dt.timedelta(seconds=15_000), "at 15,000") == 15_000
        with pytest.raises(DatabaseError, match="while no pass can run"):
            begins("latest", "latest")  # at the ends nothing is counted


def test_the_events_handled_from_an_offset_on(long_log: dt.datetime) -> None:
    handler = Recorder()
    drain(declare(handler, topic="long", start=29_990))
    assert sorted(handler.offsets) == list(range(29_990, 30_001))
    assert lag() == 0


def publish_to_all_partitions(name: str) -> None:
    with transaction.atomic():
        for key in range(8):
            publish("work", name, key=key)


def test_latest_gets_what_was_published_before_it_subscribed_and_committed_afterwards(work: str) -> None:
    """And nothing of what was numbered before; what had committed and was not numbered, it gets."""
    handler = Recorder()
    declared = declare(handler, topic="work", start="latest")
    publish_to_all_partitions("numbered")
    number()
    published, subscribed = threading.Event(), threading.Event()

    def publish_slowly() -> None:
        with transaction.atomic():
            publish("work", "open", key="k")
            published.set()
            assert subscribed.wait(30)
            publish("work", "open", key="l")

    publisher = Running(publish_slowly)
    assert published.wait(30)
    publish_to_all_partitions("committed")
    register_subscription(declared, using="default")
    subscribed.set()
    publisher.result()
    publish_to_all_partitions("after")
    drain(declared)
    assert Counter(handler.payloads) == {"open": 2, "committed": 8, "after": 8}
    assert lag() == 0


def test_latest_gets_what_committed_while_it_subscribed(work: str) -> None:
    """While the subscription has not committed nothing is numbered, so all of that comes after it."""
    handler = Recorder()
    declared = declare(handler, topic="work", start="latest")
    publish_to_all_partitions("numbered")
    number()
    with transaction.atomic():
        register_subscription(declared, using="default")
        Running(publish_to_all_partitions, "meanwhile").result()
        assert Running(sequence, "default").result().outcome == "busy"
    drain(declared)
    assert handler.payloads == ["meanwhile"] * 8
    assert lag() == 0


def test_a_pattern_begins_as_it_says_whatever_else_its_group_reads(work: str) -> None:
    """A new handler of a group that has long existed must not be given all that was ever published."""
    register_subscription(declare(Recorder(), topic="work"), using="default")
    topic_of(1, "billing.eu")
    publish_each("old", topic="billing.eu")
    number()
    handler = Recorder()
    billing = declare(handler, topic="billing.*", start="latest")
    register_subscription(billing, using="default")
    topic_of(1, "billing.us")  # which it is there for from the beginning
    for topic in ("billing.eu", "billing.us"):
        publish_each("new", topic=topic)
    drain(billing)
    assert handler.payloads == ["new", "new"]


def test_the_first_topic_that_a_pattern_means_is_read_from_its_beginning(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "EVERY_S", 0)
    handler = Recorder()
    worker = Worker([declare(handler, topic="billing.*", start="latest")], using="default", wait_period_ms=20)
    running = Running(worker.run)
    try:
        assert worker.wait_until_listening(15)
        with transaction.atomic():
            topic_of(1, "billing.eu")
            publish("billing.eu", "first")
        wait_until(lambda: handler.payloads == ["first"], "it is handled")
    finally:
        worker.stop()
        running.result()


def test_a_removed_topic_does_not_keep_others_from_growing(
    work: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(maintenance, "EVERY_S", 0)
    topic_of(1, "gone")
    handler = Recorder()
    declared = [declare(handler, topic=name, group=name) for name in ("gone", "work", "billing.*")]
    worker = Worker(declared, using="default", wait_period_ms=20)
    running = Running(worker.run)
    try:
        assert worker.wait_until_listening(15)
        remove_topic("gone", force=True, actor="olivia", using="default")
        resize_topic("work", 16, actor="olivia", using="default")
        publish_to_all_partitions("grown")
        topic_of(1, "billing.eu")
        publish_each("made", topic="billing.eu")
        wait_until(lambda: Counter(handler.payloads) == {"grown": 8, "made": 1}, "all is handled")
    finally:
        worker.stop()
        running.result()
    assert 'group gone cannot read topic gone: There is no topic "gone"' in caplog.text


def test_a_topic_that_is_removed_and_made_again_starts_afresh(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another process, so that no signal says so here."""
    monkeypatch.setattr(maintenance, "EVERY_S", 0)
    topic_of(1, "again")
    handler = Recorder()
    worker = Worker([declare(handler, topic="again", start="latest")], using="default", wait_period_ms=20)
    running = Running(worker.run)
    try:
        assert worker.wait_until_listening(15)
        publish_each("old", topic="again")
        wait_until(lambda: handler.payloads == ["old"], "the first topic's event is handled")
        in_another_process("remove_topic('again', actor='olivia', using='default', force=True)")
        in_another_process("create_topic('again', actor='olivia', using='default', partitions=1)")
        forget_ids()  # as a publisher does within half a minute
        publish_each("new", topic="again")
        wait_until(lambda: handler.payloads == ["old", "new"], "the second topic's event is handled")
    finally:
        worker.stop()
        running.result()


def in_another_process(call: str) -> None:
    program = f"import django; django.setup()\nfrom pubsub.control import create_topic, remove_topic\n{call}"
    environment = os.environ | {"DATABASE_URL": database_url()}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd=CHECKOUT)


def test_a_subscription_that_is_undone_leaves_nothing(work: str) -> None:
    declared = declare(Recorder(), topic="work", start="latest")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        register_subscription(declared, using="default")
        raise ZeroDivisionError
    assert not Subscription.objects.exists()
    assert not ConsumerLag.objects.exists()


def test_a_queue_is_for_one_group() -> None:
    Topic.objects.create(name="queue", semantics="QUEUE", total_partitions=1)
    handler = Recorder()
    first = declare(handler, topic="queue", group="first")
    register_subscription(first, using="default")
    with pytest.raises(InvalidSubscription, match='"queue" is a queue, and group "first" works on it'):
        drain(declare(Recorder(), topic="queue", group="second"))
    publish_each(1, 2, topic="queue")
    drain(first)
    assert handler.payloads == [1, 2]
