"""Stopping a worker that hangs, and letting its group pass the event: others go on, and nothing is lost."""

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from pubsub import control
from pubsub.delivery import Delivery
from pubsub.errors import PartitionInUse, Refused, UnknownWorker
from pubsub.models import ConsumerOffset, DeadLetter, OperatorEvent
from pubsub.monitoring.workers import read_workers
from tests.consuming.helpers import number, publish_each, publish_together
from tests.processes import child
from tests.retention.helpers import sql
from tests.sessions import wait_until
from tests.worker.test_watch import WORKER, hanging, in_hand

pytestmark = pytest.mark.django_db(transaction=True)

# Another worker of the group, whose handler does not hang.
HEALTHY = WORKER.replace('"w1"', '"w2"').replace(
    "def hang(events):\n", "def hang(events):\n    return handle(events)\n"
)

STOPS = {"actor": "olivia", "using": "default", "reason": "it hangs"}
SKIPS = {"partition": 0, **STOPS}


def run(*arguments: Any) -> str:
    out = io.StringIO()
    call_command(*map(str, arguments), stdout=out, stderr=out)
    return out.getvalue()


def letters() -> list[tuple[Any, ...]]:
    return list(DeadLetter.objects.order_by("c_offset").values_list("payload", "state", "exception_message"))


def test_a_worker_that_is_asked_to_stop_ends_as_by_a_signal(work: str) -> None:
    with child(HEALTHY, json.dumps({})) as process:
        wait_until(lambda: bool(read_workers("default")), "it has shown itself")
        assert "was asked to stop" in run("pubsub_workers", "stop", "w2", "--actor", "olivia", "--reason", "a deploy")
        process.wait_for("left")
        assert process.ends() == 0
    event = OperatorEvent.objects.get(action="stop-worker")
    assert (event.actor, event.reason, event.after["worker"], event.after["now"]) == ("olivia", "a deploy", "w2", False)


@pytest.mark.parametrize("delivery", [Delivery.TRANSACTIONAL, Delivery.AT_LEAST_ONCE])
@pytest.mark.parametrize("where", ["python", "sql"])
def test_a_worker_that_hangs_is_stopped_at_once_and_another_one_goes_on(
    work: str, delivery: Delivery, where: str
) -> None:
    publish_each("a")
    number()
    mode = {"delivery": delivery.value}
    with hanging(**mode, sleeps_in=where), child(HEALTHY, json.dumps(mode)) as other:
        dry = run("pubsub_workers", "stop", "w1", "--now", "--dry-run")
        (call,) = in_hand()
        assert f"Database sessions that would end: {call.session_pid}." in dry
        assert read_workers("default")[0].state == "alive"
        said = run("pubsub_workers", "stop", "w1", "--now")
        assert f"Database sessions ended: {call.session_pid}." in said
        other.wait_for("handled a")
        wait_until(lambda: ConsumerOffset.objects.get().next_offset == 2, "the group has passed it")
    assert letters() == []


def test_a_worker_that_is_not_there_is_not_stopped(work: str) -> None:
    with pytest.raises(UnknownWorker, match='There is no worker "w9"'):
        control.stop_worker("w9", **STOPS)
    publish_each("a")
    number()
    with hanging() as process:
        process.kill()
        wait_until(lambda: not in_hand(), "the server has noticed")
        with pytest.raises(Refused, match="is not connected any more"):
            control.stop_worker("w1", **STOPS)


def test_a_role_that_may_not_end_sessions_is_refused_and_nothing_changes(work: str) -> None:
    publish_each("a")
    number()
    sql("CREATE ROLE bystander")
    try:
        with hanging():
            sql("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO bystander")
            sql("SET ROLE bystander")
            try:
                with pytest.raises(Refused, match="GRANT pg_signal_backend, pg_read_all_stats"):
                    control.stop_worker("w1", now=True, **STOPS)
            finally:
                sql("RESET ROLE")
            (worker,) = read_workers("default")
            assert (worker.state, worker.stop_requested_at) == ("alive", None)
    finally:
        connection.cursor().execute("DROP OWNED BY bystander; DROP ROLE bystander")


@pytest.mark.parametrize("delivery", [Delivery.TRANSACTIONAL, Delivery.AT_LEAST_ONCE])
def test_an_event_in_which_a_worker_hangs_is_skipped_and_becomes_a_dead_letter(work: str, delivery: Delivery) -> None:
    publish_each("a", "b")
    number()
    with hanging(delivery=delivery.value):
        with pytest.raises(PartitionInUse, match="Worker w1 has been handling offset 1 of work for group emails"):
            control.skip_event(work, "emails", offset=1, **SKIPS)
        at = ("--topic", work, "--partition", 0, "--offset", 1)
        assert "would end" in run("pubsub_group", "skip", "emails", *at, "--dry-run")
        assert letters() == []
        said = run("pubsub_group", "skip", "emails", *at, "--force", "--actor", "olivia", "--reason", "it hangs")
        assert 'has passed offset 1 of topic "work": 1 event is a dead letter now.' in said
        assert letters() == [("a", "dead", "skipped by olivia: it hangs")]
        assert DeadLetter.objects.get().exception_class == "pubsub.errors.Skipped"
        cursor = ConsumerOffset.objects.get()
        assert (cursor.next_offset, cursor.passed) == (2, 1)
        event = OperatorEvent.objects.get(action="skip")
        assert (event.actor, event.group_id, event.after["workers"]) == ("olivia", "emails", ["w1"])
        with child(HEALTHY, json.dumps({"delivery": delivery.value})) as other:
            other.wait_for("handled b")


def test_what_comes_before_it_is_handled_first(work: str) -> None:
    """A batch that is undone is handled once more, by a worker that lives."""
    publish_each("a", "b")
    number()
    hangs_later = HEALTHY.replace(
        "    return handle(events)\n", "    if events.payload == 'a': return handle(events)\n"
    )
    with hanging(batch=True), child(hangs_later, json.dumps({})) as other:
        control.skip_event(work, "emails", offset=2, force=True, **SKIPS)
        other.wait_for("handled a")
    assert letters() == [("b", "dead", "skipped by olivia: it hangs")]


def test_without_a_worker_nothing_before_it_is_skipped(work: str) -> None:
    publish_each("a", "b")
    number()
    with hanging(), pytest.raises(PartitionInUse, match="1 events come before it"):
        control.skip_event(work, "emails", offset=2, force=True, wait_s=0, **SKIPS)
    assert letters() == []


def test_what_was_published_together_is_skipped_together(work: str) -> None:
    publish_together("a", "b")
    publish_each("c")
    number()
    with hanging():
        assert control.skip_event(work, "emails", offset=2, force=True, **SKIPS).letters == 2
        assert ConsumerOffset.objects.get().next_offset == 3


def test_what_a_group_has_passed_or_does_not_read_is_not_skipped(work: str) -> None:
    publish_each("a")
    number()
    with hanging(delivery="at_most_once"):
        with pytest.raises(Refused, match="has passed offset 1 of work already"):
            control.skip_event(work, "emails", offset=1, **SKIPS)
        with pytest.raises(Refused, match="reads no event at offset 9 in partition 0"):
            control.skip_event(work, "emails", offset=9, **SKIPS)
        with pytest.raises(CommandError, match="reads no event"):
            run("pubsub_group", "skip", "emails", "--topic", work, "--partition", 5, "--offset", 1, "--dry-run")
