"""The way of one event can be followed: few hops between files, in a process that has done the same before.

`make test ARGS="tests/consuming/test_hops.py -s"` shows the ways.
"""

from collections.abc import Callable

import pytest
from django.db import transaction

from pubsub import publish
from pubsub.sequencing.sequencer import sequence
from pubsub.signals import batch_handled
from pubsub.subscriptions.declare import Declaration
from pubsub.worker.worker import Worker

from ..hops import traced

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]


def publish_one() -> None:
    with transaction.atomic():
        publish("work", {"id": 1, "total": "129.90"}, type="order.placed", key=7)


def test_publishing() -> None:
    """From publish() to behind the commit."""
    publish_one()
    with traced() as trace:
        publish_one()
    print(f"\npublishing: {trace}")
    assert trace.hops <= 7
    assert "publishing/publish.py" in trace.calls


def test_handling(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the work that a worker has found to behind the commit."""
    monkeypatch.setattr(batch_handled, "receivers", [])  # other tests may have switched metrics on
    worker = Worker([Declaration(topic="work", group="hops", handler=print)], using="default", listen=False)
    worker._register()

    def handling_one() -> Callable[[], bool]:
        publish_one()
        sequence("default")
        (work,) = worker._finder.find()
        return lambda: worker._sessions.work_on([work])

    handling_one()()
    handle = handling_one()
    with traced() as trace:
        assert handle()
    print(f"\nhandling: {trace}")
    assert trace.hops <= 25
    assert "consuming/session.py" in trace.calls
