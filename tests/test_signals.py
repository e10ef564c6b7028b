"""Observers: told the facts, added to what is published, and unable to break anything."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal

from pubsub import Event, publish, publish_many, publish_on_commit, signals
from pubsub.errors import InvalidEvent, UnknownTopic
from pubsub.models import DelayedMessage, OutboxMessage
from pubsub.sequencing.sequencer import sequence

pytestmark = pytest.mark.django_db(transaction=True)


class Observer:
    """A hook that keeps what it saw; it fails where `fails` says so."""

    def __init__(self, fails: str = "", swallows: bool = False, adds: dict[str, Any] | None = None) -> None:
        self.fails = fails
        self.swallows = swallows
        self.adds = adds or {}
        self.seen: list[Any] = []

    def __call__(self, subject: Any) -> "Observer":
        self.seen.append(subject)
        if isinstance(subject, signals.Publishing):
            subject.metadata.update(self.adds)
        return self

    def __enter__(self) -> None:
        if self.fails == "enter":
            raise LookupError("enter")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.seen.append(error)
        if self.fails == "exit":
            raise LookupError("exit")
        return self.swallows


@pytest.fixture
def observe() -> Iterator[Any]:
    observers = []

    def add(hook: signals.Hook[Any], observer: Any) -> Any:
        observers.append((hook, observer))
        return hook.add(observer)

    yield add
    for hook, observer in observers:
        hook.remove(observer)


def metadata() -> list[Any]:
    return list(OutboxMessage.objects.order_by("id").values_list("metadata", flat=True))


def test_a_failing_receiver_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    signal, told = Signal(), []

    def fails(**facts: Any) -> None:
        raise LookupError("no")

    def listens(passed: int, **facts: Any) -> None:
        told.append(passed)

    signal.connect(fails)
    signal.connect(listens)
    with caplog.at_level(logging.ERROR):
        signals.tell(signal, passed=3)
    assert told == [3]
    assert "LookupError" in caplog.text


def test_a_pass_of_the_sequencer_signals_what_it_numbered() -> None:
    told = []

    def listens(**facts: Any) -> None:
        told.append(facts)

    signals.sequenced.connect(listens)
    try:
        sequence("default")
        assert told == []
        with transaction.atomic():
            publish_many("default", [{"payload": n} for n in range(3)])
        sequence("default")
    finally:
        signals.sequenced.disconnect(listens)
    (facts,) = told
    assert (facts["messages"], facts["topic_ids"]) == (3, (1,))
    assert 0 < facts["seconds"] < 10


def test_publishing_is_observed_and_its_metadata_added_to(observe: Any) -> None:
    observer = observe(signals.around_publishing, Observer(adds={"trace": "ours", "more": 1}))
    with transaction.atomic():
        event_id = publish("default", 1, type="order.created")
        publish("default", 2, metadata={"trace": "theirs"})
        publish_many("default", [{"payload": 3}, {"payload": 4, "metadata": {"own": 1}, "dedup_key": "x"}])
        publish_on_commit("default", 5)
    assert metadata() == [
        {"trace": "ours", "more": 1},
        {"trace": "theirs", "more": 1},
        {"trace": "ours", "more": 1},
        {"trace": "ours", "more": 1, "own": 1},
        {"trace": "ours", "more": 1},
    ]
    one, many = observer.seen[0], observer.seen[4]
    assert (one.topic, one.using, one.type, one.event_id, one.many) == (
        "default",
        "default",
        "order.created",
        event_id,
        False,
    )
    assert (many.many, many.count) == (True, 2)


def test_a_publishers_own_mapping_is_left_as_it_is(observe: Any) -> None:
    observe(signals.around_publishing, Observer(adds={"trace": "ours"}))
    event = {"payload": 1, "metadata": {"own": 1}}
    with transaction.atomic():
        publish_many("default", [event])
    assert event == {"payload": 1, "metadata": {"own": 1}}


def test_delayed_events_are_observed_too(observe: Any) -> None:
    from django.utils import timezone

    observe(signals.around_publishing, Observer(adds={"trace": "ours"}))
    with transaction.atomic():
        publish("default", 1, deliver_at=timezone.now())
    assert DelayedMessage.objects.get().metadata == {"trace": "ours"}


def test_a_refused_event_is_still_refused_and_observed(observe: Any) -> None:
    observer = observe(signals.around_publishing, Observer(adds={"trace": "ours"}, swallows=True))
    with transaction.atomic():
        with pytest.raises(InvalidEvent, match="metadata must be a mapping, not 'x'"):
            publish("default", 1, metadata="x")  # type: ignore[arg-type]
        with pytest.raises(InvalidEvent, match="Event 2: metadata must be a mapping"):
            publish_many("default", [{"payload": 1}, {"payload": 1, "metadata": "x"}])
        with pytest.raises(UnknownTopic):
            publish("defualt", 1)
    assert [type(error) for error in observer.seen[1::2]] == [InvalidEvent, InvalidEvent, UnknownTopic]
    assert metadata() == []


@pytest.mark.parametrize("fails", ["enter", "exit"])
def test_a_hook_that_fails_breaks_neither_publishing_nor_other_hooks(
    observe: Any, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    observe(signals.around_publishing, Observer(adds={"a": 1}))
    observe(signals.around_publishing, Observer(fails=fails))
    observe(signals.around_publishing, Observer(adds={"b": 2}))
    with transaction.atomic():
        publish("default", 1)
    assert metadata() == [{"a": 1, "b": 2}]
    assert "an observer failed" in caplog.text


@pytest.mark.parametrize("fails", ["", "enter", "exit"])
def test_a_hook_around_a_handler_sees_its_error_and_cannot_hide_it(observe: Any, fails: str) -> None:
    observer = observe(signals.around_handler, Observer(fails=fails, swallows=True))
    error = ValueError("the handler's")
    with pytest.raises(ValueError, match="the handler's"), signals.around():
        raise error
    assert observer.seen == ([()] if fails == "enter" else [(), error])


def test_a_generator_that_lets_the_error_through_has_not_failed(observe: Any, caplog: pytest.LogCaptureFixture) -> None:
    left = []

    @contextmanager
    def watch(events: Sequence[Event]) -> Iterator[None]:
        try:
            yield
        finally:
            left.append(events)

    observe(signals.around_handler, watch)
    observe(signals.around_handler, watch)  # once is enough
    with pytest.raises(ValueError, match="mine"), signals.around():
        raise ValueError("mine")
    assert left == [()]
    assert caplog.text == ""


def test_without_observers_nothing_is_built() -> None:
    assert signals.around() is signals.around()
    assert not signals.around_handler


def test_reraising_the_handlers_error_is_not_a_failure_of_the_observer(
    observe: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Raises(Observer):
        def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
            raise error

    observe(signals.around_handler, Raises())
    with pytest.raises(ValueError, match="mine"), signals.around():
        raise ValueError("mine")
    assert caplog.text == ""
