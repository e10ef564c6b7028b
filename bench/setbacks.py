"""What a failure costs: parking the events of a key behind one that failed, and trying what was set aside again."""

import logging
import statistics
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import connections, transaction

from pubsub import publish
from pubsub.dead_letters import DISCARD, REPLAY, LetterFilter, apply_in_batches
from pubsub.delivery import Delivery
from pubsub.sequencing.sequencer import sequence
from pubsub.signals import batch_handled
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import register_subscription
from pubsub.worker.worker import Worker

from .publish import TOPIC, payload_of


class Handler:
    """Does nothing, or fails at the first so many events."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.began = self.ended = 0.0

    def __call__(self, event: Any) -> None:
        self.began = self.began or time.perf_counter()
        if event.offset <= self.failures:
            raise ValueError("This event fails, as the benchmark wants it.")

    def note_end(self, **facts: Any) -> None:
        self.ended = time.perf_counter()


def compare(
    *, using: str, events: int, size: int, batch: int, delivery: Delivery, rounds: int, say: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Events a second, of the same events of one key, each published by a transaction of its own: handled as ever,
    parked behind the first one, released when that is discarded, and handled again when all had failed."""
    _fill(using, events, size, say)
    drain = partial(_drain, using, events, batch, delivery)
    rates: dict[str, list[float]] = {"ordinary": [], "parked": [], "released": [], "replayed": []}
    logging.disable(logging.ERROR)  # a line for each failure
    try:
        for number in range(1, rounds + 1):
            say(f"round {number} of {rounds}")
            rates["ordinary"].append(drain(f"ordinary-{uuid.uuid4()}"))
            group = f"parking-{uuid.uuid4()}"
            rates["parked"].append(drain(group, failures=1, on_failure="park_key"))
            _act(DISCARD, LetterFilter(group=group, state="dead"), using)
            rates["released"].append(drain(group, on_failure="park_key"))
            group = f"failing-{uuid.uuid4()}"
            drain(group, failures=events)
            _act(REPLAY, LetterFilter(group=group), using)
            rates["replayed"].append(drain(group))
    finally:
        logging.disable(logging.NOTSET)
    return {
        name: {
            "events_per_s": statistics.median(measured),
            "times": statistics.median(ours / theirs for ours, theirs in zip(rates["ordinary"], measured, strict=True)),
        }
        for name, measured in rates.items()
    }


def _fill(using: str, events: int, size: int, say: Callable[[str], None]) -> None:
    payload = payload_of(size)
    for number in range(events):
        if number % 500 == 0:
            say(f"publishing: {number:,} of {events:,}")
        with transaction.atomic(using=using):
            publish(TOPIC, payload, type="order.placed", key="one", using=using)
    while sequence(using).messages:
        pass
    connections[using].connection.execute("VACUUM ANALYZE")


def _drain(
    using: str, events: int, batch: int, delivery: Delivery, group: str, failures: int = 0, **options: Any
) -> float:
    """From the first call of the handler to the end of the last batch."""
    handler = Handler(failures)
    declared = Declaration(topic=TOPIC, group=group, handler=handler, start="earliest", delivery=delivery, **options)
    register_subscription(declared, using=using)
    batch_handled.connect(handler.note_end)
    try:
        Worker([declared], using=using, batch_size=batch, drain=True).run()
    finally:
        batch_handled.disconnect(handler.note_end)
    return events / (handler.ended - handler.began)


def _act(action: Any, letters: LetterFilter, using: str) -> None:
    for _ in apply_in_batches(action, letters, using=using):
        pass
