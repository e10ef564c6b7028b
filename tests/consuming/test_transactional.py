"""Handlers: in order, in batches that never split a transaction, with effects that happen exactly once."""

import asyncio
import datetime as dt
import functools
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection, transaction

from pubsub import Backoff, Delivery, OnFailure, Start, publish, publish_many, subscribe
from pubsub.errors import InvalidSubscription
from pubsub.models import ConsumerLag, ConsumerOffset, DeadLetter, Subscription, Topic
from pubsub.subscriptions.declare import Declaration, Registry
from pubsub.subscriptions.register import register_subscription
from pubsub.worker.worker import Worker
from tests.handlers import Recorder, declare, drain

from .helpers import fail_as

pytestmark = pytest.mark.django_db(transaction=True)


def publish_each(*payloads: Any, topic: str = "default", **options: Any) -> None:
    for payload in payloads:
        with transaction.atomic():
            publish(topic, payload, **options)


def test_every_group_gets_every_event_in_the_order_of_its_key() -> None:
    for n in range(30):
        publish_each({"n": n}, key=n % 3)
    first, second = Recorder(), Recorder()
    drain(declare(first, group="first"), declare(second, group="second"))
    assert sorted(first.offsets) == sorted(second.offsets) == list(range(1, 31))
    for key in range(3):
        of_key = [event.payload["n"] for event in first.events if event.key == str(key)]
        assert of_key == list(range(key, 30, 3))


@pytest.mark.parametrize("available", [0, 1, 4, 5, 6, 23])
def test_batches_lose_and_repeat_nothing_at_their_edges(available: int) -> None:
    publish_each(*range(available), key="one")
    handler = Recorder()
    drain(declare(handler), batch_size=5)
    drain(declare(handler), batch_size=5)
    assert handler.payloads == list(range(available))
    cursors = ConsumerOffset.objects.filter(group_id="readers")
    assert max(cursor.next_offset for cursor in cursors) == available + 1
    assert sum(cursor.passed for cursor in cursors) == available


def test_a_transaction_larger_than_the_batch_is_handled_in_one() -> None:
    with transaction.atomic():
        publish_many("default", ({"payload": n, "key": "one"} for n in range(120)))
    publish_each(120, key="one")
    seen: list[tuple[int, int]] = []

    def handler(event: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_xact_id()::text::bigint")
            seen.append((event.payload, cursor.fetchone()[0]))

    drain(declare(handler), batch_size=100)
    assert [payload for payload, _ in seen] == list(range(121))
    assert len({xid for payload, xid in seen if payload < 120}) == 1
    assert len({xid for _, xid in seen}) == 2


def test_a_failing_handlers_effects_are_undone_and_its_transaction_set_aside_as_a_whole() -> None:
    with transaction.atomic():
        publish_many("default", [{"payload": n, "key": "one"} for n in (1, 2, 3)])
    publish_each(4, key="one")

    def handler(event: Any) -> None:
        Topic.objects.create(name=f"effect-{event.payload}")
        if event.payload == 2:
            raise ValueError("two is right out")

    worker = drain(declare(handler))
    assert [topic.name for topic in Topic.objects.filter(name__startswith="effect-")] == ["effect-4"]
    assert (worker.passed, worker.failed) == (4, 3)
    letters = DeadLetter.objects.order_by("c_offset")
    assert [letter.payload for letter in letters] == [1, 2, 3]
    assert {letter.transaction_id for letter in letters} == {letters[0].transaction_id}
    assert {(letter.state, letter.attempts) for letter in letters} == {("dead", 1)}
    assert letters[0].exception_class == "builtins.ValueError"
    assert letters[0].exception_message == "two is right out"
    assert "two is right out" in letters[0].traceback
    assert letters[0].handler.endswith("handler")


def test_a_broken_transaction_or_a_deferred_constraint_only_fails_its_own_event() -> None:
    publish_each("fine", "swallows", "deferred", "fine too", key="one")

    def handler(event: Any) -> None:
        if event.payload == "swallows":
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT 1 / 0")
            except Exception:
                pass
        elif event.payload == "deferred":
            Subscription.objects.create(topic_id=4711, group_id="dangling")

    drain(declare(handler))
    letters = {letter.payload: letter.exception_class for letter in DeadLetter.objects.all()}
    assert set(letters) == {"swallows", "deferred"}
    assert letters["deferred"] == "django.db.utils.IntegrityError"
    assert not ConsumerLag.objects.filter(lag__gt=0).exists()


def test_an_event_that_cannot_be_decoded_only_fails_itself() -> None:
    publish_each("before", key="one")
    with transaction.atomic(), connection.cursor() as cursor:
        # More digits than Python reads.
        cursor.execute("INSERT INTO outbox_message_t (key, payload) VALUES ('one', ('1' || repeat('0', 5000))::jsonb)")
    publish_each("after", key="one")
    handler = Recorder()
    worker = drain(declare(handler))
    assert handler.payloads == ["before", "before", "after"]  # the first time in the batch, then one by one
    assert list(DeadLetter.objects.values_list("exception_class", flat=True)) == ["pubsub.errors.UnreadableEvent"]
    assert worker.passed == 3


@pytest.mark.parametrize("failure", [SystemExit(3), asyncio.CancelledError(), ValueError()])
def test_whatever_a_handler_raises_only_fails_its_own_event(failure: BaseException) -> None:
    publish_each("bad", "good", key="one")
    handled = []

    def handler(event: Any) -> None:
        if event.payload == "bad":
            raise failure from failure
        handled.append(event.payload)

    drain(declare(handler))
    assert handled == ["good"]
    assert DeadLetter.objects.get().payload == "bad"


@pytest.mark.usefixtures("pythons_ctrl_c")
def test_ctrl_c_fails_no_event() -> None:
    publish_each("one")

    def handler(event: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drain(declare(handler))
    assert not DeadLetter.objects.exists()


@pytest.mark.parametrize("is_named", [True, False])
def test_a_failing_hook_after_the_commit_stops_no_other(is_named: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Those without a name, such as partial(), are Django's own stumbling block."""
    publish_each(*range(5), key="one")
    hooks: list[int] = []

    def handler(event: Any) -> None:
        def hook() -> None:
            hooks.append(event.payload)
            if event.payload == 2:
                raise ValueError("after the commit")

        transaction.on_commit(hook if is_named else functools.partial(hook))

    worker = drain(declare(handler))
    assert hooks == [0, 1, 2, 3, 4]
    assert (worker.passed, worker.failed) == (5, 0)
    assert "after the commit" in caplog.text
    assert "trying again" not in caplog.text


def test_a_partition_whose_handler_meets_a_failing_database_holds_up_no_other() -> None:
    publish_each("one", "two", "three")
    attempts: list[str] = []

    def unlucky(event: Any) -> None:
        attempts.append(event.payload)
        if len(attempts) < 4:
            fail_as("40P01")

    lucky = Recorder()
    drain(declare(unlucky, group="a"), declare(lucky, group="b"), wait_period_ms=1)
    assert sorted(lucky.payloads) == ["one", "three", "two"]
    assert sorted(attempts[3:]) == ["one", "three", "two"]
    assert not DeadLetter.objects.exists()


def test_a_group_that_has_begun_reads_new_partitions_from_their_beginning() -> None:
    topic = Topic.objects.create(name="grows", total_partitions=1)
    handler = Recorder()
    declaration = declare(handler, topic="grows", start="latest")
    register_subscription(declaration, using="default")
    Topic.objects.filter(pk=topic.pk).update(total_partitions=4)
    for n in range(20):
        publish_each(n, topic="grows", key=n)
    drain(declaration)
    assert sorted(handler.payloads) == list(range(20))


def test_draining_waits_for_another_workers_batch() -> None:
    publish_each("one")
    handler = Recorder()
    declaration = declare(handler)
    register_subscription(declaration, using="default")
    busy = connection.copy()
    busy.set_autocommit(False)
    with busy.cursor() as cursor:
        cursor.execute("SELECT FROM consumer_offsets FOR UPDATE")
    worker = Worker([declaration], using="default", drain=True)

    def work() -> None:
        try:
            worker.run()
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        thread.join(0.5)
        assert thread.is_alive()
        assert handler.payloads == []
    finally:
        busy.rollback()
        busy.close()
        thread.join(10)
    assert handler.payloads == ["one"]


def test_an_event_for_another_group_is_passed_unseen() -> None:
    publish_each("mine", to_group="readers")
    publish_each("theirs", to_group="others")
    publish_each("for all")
    mine, others = Recorder(), Recorder()
    drain(declare(mine), declare(others, group="others"))
    assert sorted(mine.payloads) == ["for all", "mine"]
    assert sorted(others.payloads) == ["for all", "theirs"]


def test_start_latest_is_everything_after_the_subscription_and_earliest_everything() -> None:
    publish_each("before")
    late, early = Recorder(), Recorder()
    declarations = declare(late, group="late", start="latest"), declare(early, group="early")
    drain()
    for declaration in declarations:
        register_subscription(declaration, using="default")
    publish_each("after")
    drain(*declarations)
    assert late.payloads == ["after"]
    assert early.payloads == ["before", "after"] or sorted(early.payloads) == ["after", "before"]
    assert not ConsumerLag.objects.exclude(lag=0).exists()


def test_lag_is_exact_per_partition() -> None:
    declaration = declare(Recorder())
    register_subscription(declaration, using="default")
    for n in range(20):
        publish_each(n, key=n)
    drain()
    lags = {lag.partition_id: lag for lag in ConsumerLag.objects.all()}
    assert sum(lag.lag for lag in lags.values()) == 20
    assert all(lag.tip == 20 and (lag.waiting_since is not None) == (lag.lag > 0) for lag in lags.values())
    drain(declaration)
    assert {lag.lag for lag in ConsumerLag.objects.all()} == {0}


def test_registering_is_harmless_to_repeat() -> None:
    declaration = declare(Recorder())
    for _ in range(3):
        register_subscription(declaration, using="default")
    assert Subscription.objects.count() == 1
    assert ConsumerOffset.objects.count() == Topic.objects.get(pk=1).total_partitions


def test_a_missing_partition_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    drain(declare(Recorder()), partitions=[0, 3])
    assert "nothing to do" not in caplog.text
    drain(declare(Recorder()), partitions=[0, 99])
    assert "none of the topics default has partition 99: there is nothing to do in it" in caplog.text


def test_only_the_chosen_partitions_are_worked_on() -> None:
    for n in range(40):
        publish_each(n, key=n)
    handler = Recorder()
    drain(declare(handler), partitions=[0, 3])
    assert {event.partition for event in handler.events} == {0, 3}
    drain(declare(handler))
    assert len(handler.events) == 40


def test_one_handler_per_topic_and_group() -> None:
    registry = Registry()
    registry.add(declare(Recorder()))
    with pytest.raises(InvalidSubscription, match='Group "readers" already handles topic "default"'):
        registry.add(declare(publish_each))
    registry.add(declare(publish_each, group="functions"))
    registry.add(declare(publish_each, group="functions"))
    with pytest.raises(InvalidSubscription):
        registry.add(declare(Recorder()))
    with pytest.raises(
        InvalidSubscription, match='No handler is declared for group "reader"; there are: functions, readers'
    ):
        registry.select(groups=["reader"])


@dataclass(frozen=True, kw_only=True)
class OnWeekdays:
    """A policy such as a user would write."""

    retries: int = 1
    shown: Any = "on weekdays"

    def delay_after(self, attempts: int) -> float | None:
        return 0 if attempts <= self.retries else None

    def as_json(self) -> Any:
        return self.shown


def test_a_custom_retry_policy_says_when_and_how_often() -> None:
    handler = Failing()
    declaration = declare(handler, retry=OnWeekdays(retries=2))
    publish_each("bad")
    for _ in range(4):
        drain(declaration)
    # A batch that fails is run again, transaction by transaction, as the same attempt.
    assert sorted(set(handler.attempts)) == [1, 2, 3]
    assert DeadLetter.objects.get().state == "dead"
    assert Subscription.objects.get().retry_delays == "on weekdays"


class Failing:
    def __init__(self) -> None:
        self.attempts: list[int] = []

    def __call__(self, event: Any) -> None:
        self.attempts.append(event.attempt)
        raise ValueError("bad")


def test_an_enum_and_its_string_are_the_same() -> None:
    names = {"topic": "default", "group": "g", "handler": print}
    by_string = Declaration(**names, start="earliest", delivery="at_least_once", on_failure="park_key")
    by_member = Declaration(
        **names, start=Start.EARLIEST, delivery=Delivery.AT_LEAST_ONCE, on_failure=OnFailure.PARK_KEY
    )
    assert by_string == by_member
    assert by_string.on_failure is OnFailure.PARK_KEY
    assert by_string.start is Start.EARLIEST


def lazy(event: Any) -> Any:
    yield event


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": " "}, "group must be a name"),
        ({"group": "ü" * 101}, "group must be a name of at most 200 bytes, not '.*'… of 202"),
        ({"start": "newest"}, "an offset of at least 1, not 'newest'"),
        ({"retry": ("1",)}, "retry must be a list of seconds"),
        ({"retry": (-1,)}, "retry must be a list of seconds"),
        ({"retry": "60"}, "retry must be a list of seconds"),
        ({"start": 0}, "or an offset of at least 1, not 0"),
        ({"start": dt.datetime(2026, 1, 1)}, "a datetime with a time zone"),
        ({"delivery": "twice"}, "delivery must be 'transactional', 'at_least_once' or 'at_most_once', not 'twice'"),
        ({"delivery": Delivery.AT_MOST_ONCE, "retry": (1,)}, "contradict each other"),
        ({"on_failure": "ignore"}, "on_failure must be 'dead_letter', 'park_key' or 'stop', not 'ignore'"),
        ({"handler": lazy}, "lazy does nothing when it is called"),
        ({"retry": 60}, "a Backoff, or an object with retries, delay_after"),
        ({"retry": Backoff}, "a Backoff, or an object with retries, delay_after"),
        ({"retry": OnWeekdays(retries=-1)}, "retries of OnWeekdays.* at least 0, not -1"),
        ({"retry": OnWeekdays(shown={1, 2})}, "as_json.* of OnWeekdays"),
    ],
)
def test_a_bad_declaration_is_refused_where_it_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSubscription, match=message):
        Declaration(**{"topic": "default", "group": "g", "handler": print, **options})
    options = dict(options)
    handler = options.pop("handler", publish_each)
    with pytest.raises(InvalidSubscription):
        subscribe("default", **{"group": "g", **options})(handler)
