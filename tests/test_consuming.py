"""Handlers: in order, in batches that never split a transaction, with effects that happen exactly once."""

from typing import Any

import pytest
from django.db import connection, transaction

from pubsub import publish, publish_many, subscribe
from pubsub.errors import InvalidSubscription
from pubsub.models import ConsumerLag, ConsumerOffset, DeadLetter, Subscription, Topic
from pubsub.subscribing import Declaration, Registry, enrol

from .handlers import Recorder, declare, drain

pytestmark = pytest.mark.django_db(transaction=True)


def publish_each(*payloads: Any, **options: Any) -> None:
    for payload in payloads:
        with transaction.atomic():
            publish(options.pop("topic", "default"), payload, **options)


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


def test_the_effects_of_a_failing_handler_are_undone_and_its_transaction_set_aside_whole() -> None:
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


def test_a_broken_transaction_or_a_deferred_constraint_is_the_fault_of_its_event_alone() -> None:
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


def test_an_event_for_another_group_is_passed_unseen() -> None:
    publish_each("mine", to_group="readers")
    publish_each("theirs", to_group="others")
    publish_each("everybody's")
    mine, others = Recorder(), Recorder()
    drain(declare(mine), declare(others, group="others"))
    assert sorted(mine.payloads) == ["everybody's", "mine"]
    assert sorted(others.payloads) == ["everybody's", "theirs"]


def test_start_latest_is_what_comes_after_the_subscription_and_earliest_everything() -> None:
    publish_each("before")
    late, early = Recorder(), Recorder()
    declarations = declare(late, group="late", start="latest"), declare(early, group="early")
    drain()
    enrol(declarations, "default")
    publish_each("after")
    drain(*declarations)
    assert late.payloads == ["after"]
    assert early.payloads == ["before", "after"] or sorted(early.payloads) == ["after", "before"]
    assert not ConsumerLag.objects.exclude(lag=0).exists()


def test_lag_is_exact_per_partition() -> None:
    declaration = declare(Recorder())
    enrol([declaration], "default")
    for n in range(20):
        publish_each(n, key=n)
    drain()
    lags = {lag.partition_id: lag for lag in ConsumerLag.objects.all()}
    assert sum(lag.lag for lag in lags.values()) == 20
    assert all(lag.tip == 20 and (lag.waiting_since is not None) == (lag.lag > 0) for lag in lags.values())
    drain(declaration)
    assert {lag.lag for lag in ConsumerLag.objects.all()} == {0}


def test_enrolling_is_harmless_to_repeat() -> None:
    declaration = declare(Recorder())
    for _ in range(3):
        enrol([declaration], "default")
    assert Subscription.objects.count() == 1
    assert ConsumerOffset.objects.count() == Topic.objects.get(pk=1).total_partitions


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
    with pytest.raises(InvalidSubscription, match='No handler is declared for group "reader"; there are: readers'):
        registry.select(groups=["reader"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": " "}, "group must be a name"),
        ({"start": "newest"}, "start must be 'earliest' or 'latest', not 'newest'"),
        ({"retry": (1.5,)}, "retry must be a list of seconds"),
        ({"retry": (-1,)}, "retry must be a list of seconds"),
    ],
)
def test_a_bad_declaration_is_refused_where_it_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSubscription, match=message):
        Declaration(**{"topic": "default", "group": "g", "handler": print, **options})
    with pytest.raises(InvalidSubscription):
        subscribe("default", **{"group": "g", **options})(publish_each)
