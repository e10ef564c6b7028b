"""The command that runs a worker: what it is given is what the worker gets."""

import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pubsub.management.commands.run_consumer import Command
from pubsub.management.exits import UNREACHABLE
from pubsub.models import Topic
from pubsub.subscriptions.declare import Registry
from tests.consuming.helpers import publish_each
from tests.handlers import Recorder, declare
from tests.sessions import connected_to


@pytest.fixture
def worker_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    registry = Registry()
    registry.add(declare(Recorder(), group="readers"))
    monkeypatch.setattr("pubsub.management.commands.run_consumer.registry", registry)

    def make(*arguments: str) -> Any:
        command = Command()
        return command.make_worker(**vars(command.create_parser("manage.py", "run_consumer").parse_args(arguments)))

    return make


def test_each_option_reaches_the_worker(worker_of: Any) -> None:
    worker = worker_of(
        *("--partition=0", "--partition=3", "--batch-size=7", "--wait-period-ms=250", "--threads=2", "--drain"),
        *("--max-events=9", "--no-listen", "--worker-id=here", "--liveness-file=/tmp/alive", "--database=default"),
        "--no-maintenance",
    )
    assert [declared.group for declared in worker.declared] == ["readers"]
    assert (worker.partitions, worker.batch_size, worker.wait_period_s) == ([0, 3], 7, 0.25)
    assert (worker.threads, worker.drain, worker.max_events) == (2, True, 9)
    assert worker._maintenance._jobs == ()
    assert (worker.worker_id, str(worker.liveness_file), worker.using) == ("here", "/tmp/alive", "default")


def test_without_options_the_settings_apply(worker_of: Any) -> None:
    worker = worker_of()
    assert (worker.partitions, worker.batch_size, worker.wait_period_s) == (None, 100, 1)
    assert (worker.threads, worker.drain, worker.max_events) == (1, False, None)


def test_the_former_name_of_max_events_is_understood(worker_of: Any) -> None:
    assert worker_of("--max-messages=9").max_events == 9


@pytest.mark.django_db(transaction=True)
def test_a_topic_that_does_not_exist_is_reported_with_the_handler_that_wants_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = Registry()
    registry.add(declare(Recorder(), group="invoices", topic="nowhere"))
    monkeypatch.setattr("pubsub.management.commands.run_consumer.registry", registry)
    with pytest.raises(CommandError, match=r'no topic "nowhere".*wanted by .*Recorder, in group "invoices"'):
        call_command("run_consumer", "--drain")


@pytest.mark.django_db(transaction=True)
def test_a_drain_says_that_it_has_tried_again_what_had_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    registry.add(declare(Recorder(fails=lambda event: True), topic="work", retry=[0, 3600]))
    monkeypatch.setattr("pubsub.management.commands.run_consumer.registry", registry)
    Topic.objects.create(name="work", total_partitions=1)
    publish_each(1)
    out = io.StringIO()
    call_command("run_consumer", "--drain", stderr=out)
    assert out.getvalue().endswith("Stopped after 1 event, with 1 failure; 1 that failed before was tried again.\n")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("settings", "reason"), [({"PASSWORD": "wrong"}, "password"), ({"NAME": "nowhere"}, 'database "nowhere"')]
)
def test_a_drain_ends_where_it_cannot_connect(settings: dict[str, str], reason: str) -> None:
    with (
        connected_to(**settings),
        pytest.raises(CommandError, match=f'Database "default" does not answer: .*{reason}') as ended,
    ):
        call_command("run_consumer", "--drain")
    assert ended.value.returncode == UNREACHABLE
