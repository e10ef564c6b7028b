"""What one group of a process has read is at hand for the others."""

from typing import Any

import pytest
from django.db import transaction

from pubsub import publish
from pubsub.consuming import kept as module
from pubsub.consuming import reader
from pubsub.consuming.kept import KeptEntries
from pubsub.consuming.session import PartitionSession
from pubsub.consuming.transactional import handle_batch
from pubsub.control import resize_topic
from pubsub.db.pipeline import execute_together
from pubsub.events import Entry
from pubsub.subscriptions.task import PartitionTask
from tests.handlers import Recorder, declare, drain

from .helpers import lag, number, publish_each, task_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work")]


def entry(position: int) -> Entry:
    fields: dict[str, Any] = dict.fromkeys(Entry._fields)
    return Entry(**{**fields, "position": position, "payload": "x" * 10, "metadata": "{}"})


def positions(kept: KeptEntries, position: int | None = None) -> list[int]:
    run = kept.of(1, 0, position)
    return [each.position for each in run.entries] if run else []


def test_a_run_grows_and_begins_again_where_it_was_left() -> None:
    kept = KeptEntries()
    kept.add(1, 0, 1, [entry(2), entry(5)])
    kept.add(1, 0, 6, [entry(6), entry(9)])
    kept.add(1, 0, 6, [entry(6), entry(9)])
    assert positions(kept) == [2, 5, 6, 9]
    assert positions(kept, 5) == [5, 6, 9]
    assert positions(kept, 10) == []
    assert positions(kept, 0) == [], "what is before is not known"
    kept.add(1, 0, 20, [entry(20)])
    assert positions(kept) == [20]


def test_what_was_read_longest_ago_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CHARACTERS", 40)
    kept = KeptEntries()
    kept.add(1, 1, 1, [entry(1)])
    for position in (2, 3, 4, 5):
        kept.add(1, 0, position, [entry(position)])
    assert positions(kept) == [3, 4, 5]
    assert kept.of(1, 1) is None


def test_groups_of_a_process_read_the_log_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def send(connection: Any, statements: list[str], parameters: Any) -> Any:
        reads.extend(each for each in statements if "pubsub_read_v1(" in each)
        return execute_together(connection, statements, parameters)

    monkeypatch.setattr(reader, "execute_together", send)
    publish_each(*range(200))
    handlers = {group: Recorder() for group in ("a", "b", "c", "d")}

    drain(*(declare(handler, topic="work", group=group) for group, handler in handlers.items()), batch_size=10)

    assert all(handler.payloads == list(range(200)) for handler in handlers.values())
    assert lag() == 0
    assert len(reads) <= 11 + 3 * 4, "where it ends, each group looks for more"


def test_an_event_for_one_group_reaches_that_one_alone() -> None:
    publish_each(*range(60))
    with transaction.atomic():
        publish("work", "for a", key="k", to_group="a")
    publish_each(*range(60, 100))
    a, b = Recorder(), Recorder()

    drain(declare(a, topic="work", group="a"), declare(b, topic="work", group="b"), batch_size=10)

    assert a.payloads == [*range(60), "for a", *range(60, 100)]
    assert b.payloads == list(range(100))


def test_a_group_stops_before_a_resize_that_another_has_passed() -> None:
    tasks = {group: task_of(declare(Recorder(), topic="work", group=group)) for group in ("a", "b")}
    publish_each(*range(30))
    number()
    resize_topic("work", 2, actor="test", using="default")
    publish_each(*(n for n in range(30, 90)), key="k")
    publish_each(*(n for n in range(30, 90)), key="l")
    number()
    kept = KeptEntries()
    drain(tasks["a"].declared)
    read(tasks["a"], kept)
    run = kept.of(tasks["a"].topic_id, 0, 1)
    assert run
    assert len(run.entries) > 30

    handle_all(tasks["b"], kept)

    assert tasks["b"].declared.handler.payloads == list(range(30))  # type: ignore[attr-defined]


def read(task: PartitionTask, kept: KeptEntries) -> None:
    """All of the partition, as a group that has passed everything would have read it."""
    kept.add(task.topic_id, 0, 1, list(reader.EntryReader(task, 100).begin_at(1)))


def handle_all(task: PartitionTask, kept: KeptEntries) -> None:
    with PartitionSession(task, 10, kept=kept, may_go_on=lambda passed, reads: True) as session:
        handle_batch(session, 10)
        while session.goes_on:
            handle_batch(session, 10)
