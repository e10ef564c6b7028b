"""The roles of docs/roles.md, made by the page's own SQL: what each is for works under it, and nothing else does."""

import datetime as dt
import functools
import io
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from prometheus_client import generate_latest

from pubsub import publish, publish_many
from pubsub.delivery import Delivery
from pubsub.management.exits import REFUSED
from pubsub.models import ConsumerOffset, DeadLetter, DelayedMessage, OperatorEvent, OutboxMessage
from pubsub.monitoring.metrics import everything
from pubsub.subscriptions.declare import Registry
from pubsub.worker import maintenance
from pubsub.worker.worker import Worker
from tests.consuming.helpers import number, publish_each
from tests.factories import DeadLetterFactory
from tests.handlers import Recorder, declare
from tests.sessions import Running, connected_to, wait_until

PAGE = Path(__file__).resolve().parents[1] / "docs" / "roles.md"
ROLES = ("publisher", "consumer", "operator", "reader")
TABLES = sorted({model._meta.db_table for model in apps.get_app_config("pubsub").get_models()})

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("roles", "work")]


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def drop_roles() -> None:
    for role in ROLES:
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_roles WHERE rolname = %s", [f"pubsub_{role}"])
            if cursor.fetchone() is not None:
                cursor.execute(f"DROP OWNED BY pubsub_{role}; DROP ROLE pubsub_{role}")


@pytest.fixture
def roles(transactional_db: None) -> Iterator[None]:
    drop_roles()
    (made,) = re.findall(r"^```postgresql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    execute(made)
    yield
    drop_roles()


@contextmanager
def acting_as(role: str) -> Iterator[None]:
    options = connection.settings_dict["OPTIONS"]
    with connected_to(OPTIONS={**options, "options": f"{options.get('options', '')} -c role=pubsub_{role}"}):
        yield


@contextmanager
def stopped_in_the_end(worker: Worker, running: Running) -> Iterator[None]:
    try:
        yield
    finally:
        worker.stop()
        running.result()


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings and worse of the worker; of events that failed others tell."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("pubsub.worker")
    ]


def may_not(*statements: str) -> None:
    for statement in statements:
        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
            execute(statement)


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=out)
    return out.getvalue()


def test_a_publisher_publishes_and_does_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"payload": 6}\n')))
    with acting_as("publisher"):
        assert "Published 1 event" in run("pubsub_publish", "work")
        with transaction.atomic():
            publish("work", 1, key="k", host_id="h", user_id="u", type="t", to_group="readers", metadata={"a": 1})
            publish_many("work", [{"payload": 2}, {"payload": 3}])
            publish("work", 4, deliver_at=timezone.now() + dt.timedelta(hours=1))
            first, second = (publish("work", 5, dedup_key="once") for _ in range(2))
            assert first == second
        may_not(
            "SELECT payload FROM outbox_message_t",
            "UPDATE outbox_message_t SET payload = '1'",
            "DELETE FROM outbox_message_t",
            "INSERT INTO outbox_message_t (xid, payload) VALUES ('9999999999', '1')",
            "INSERT INTO outbox_message_t (transaction_id, payload) VALUES (gen_random_uuid(), '1')",
            "SELECT FROM outbox_delayed_message",
            "SELECT FROM dead_letter_queue",
            "UPDATE outbox_topics SET total_partitions = 1",
            "UPDATE consumer_offsets SET next_offset = 1",
            "INSERT INTO log_entry VALUES (1, 1, 1, 1, 1)",
            "CREATE TABLE mine ()",
        )
    assert (OutboxMessage.objects.count(), DelayedMessage.objects.count()) == (5, 1)


@pytest.mark.parametrize("delivery", Delivery)
@pytest.mark.parametrize("listens", [True, False], ids=["listening", "polling"])
def test_a_consumer_handles_and_sets_aside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, delivery: Delivery, listens: bool
) -> None:
    recorder = Recorder(fails=lambda event: event.payload == 2)
    registry = Registry()
    retry = [] if delivery is Delivery.AT_MOST_ONCE else [0]
    registry.add(declare(recorder, topic="work", delivery=delivery, retry=retry))
    monkeypatch.setattr("pubsub.management.commands.run_consumer.registry", registry)
    publish_each(1, 2, 3)
    with transaction.atomic():
        publish("work", 4, deliver_at=timezone.now())
    workers: list[Worker] = []
    make_worker = Worker.__init__

    @functools.wraps(make_worker)
    def made(worker: Worker, *arguments: Any, **named: Any) -> None:
        make_worker(worker, *arguments, **named)
        workers.append(worker)

    monkeypatch.setattr(Worker, "__init__", made)
    with acting_as("consumer"):
        if listens:
            running = Running(run, "run_consumer", "--no-maintenance", "--wait-period-ms=50")
            wait_until(lambda: workers, "it has begun")
            with stopped_in_the_end(workers[0], running):
                wait_until(lambda: {1, 2, 3, 4} == set(recorder.payloads), "all are handled")
                wait_until(lambda: DeadLetter.objects.filter(state="dead").exists(), "the one that fails is set aside")
        else:
            run("run_consumer", "--no-maintenance", "--no-listen", "--drain")
        may_not(
            "UPDATE outbox_message_t SET payload = '1'",
            "DELETE FROM outbox_message_t",
            "DROP TABLE outbox_message_t",
            "TRUNCATE log_entry",
            "UPDATE spark_findings SET job = ''",
        )
    assert {1, 2, 3, 4} == set(recorder.payloads)
    assert [letter.payload for letter in DeadLetter.objects.all()] == [2]
    assert complaints(caplog) == []


def test_a_consumer_that_is_not_the_owner_logs_once_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(maintenance, "EVERY_S", 0)
    maintenance._say_who_must.cache_clear()
    recorder = Recorder()
    publish_each(1)
    with acting_as("consumer"):
        worker = Worker([declare(recorder, topic="work")], using="default", wait_period_ms=20)
        with stopped_in_the_end(worker, Running(worker.run)):
            assert worker.wait_until_listening(15)
            publish_each(*range(2, 20))
            wait_until(lambda: len(recorder.payloads) == 19, "all are handled")
    assert complaints(caplog) == [
        "this worker does no maintenance, for its role does not own the tables of database default: run `manage.py "
        "run_cleanup` as their owner beside it, and this worker with --no-maintenance"
    ]


def test_an_operator_changes_topics_groups_and_dead_letters_and_publishes_nothing() -> None:
    publish_each(1, 2, 3)
    Worker([declare(Recorder(), topic="work")], using="default", drain=True).run()
    replayed, discarded = DeadLetterFactory.create_batch(2, group_id="readers")
    with acting_as("operator"):
        run("pubsub_topic", "create", "orders", "--partitions=2")
        run("pubsub_topic", "configure", "orders", "--max-age=7d")
        run("pubsub_topic", "resize", "work", "4")
        run("pubsub_topic", "sync")
        run("pubsub_topic", "remove", "orders")
        run("pubsub_group", "pause", "readers")
        run("pubsub_group", "seek", "readers", "--to=earliest")
        run("pubsub_group", "resume", "readers")
        run("pubsub_group", "force-complete", "readers", "--older-than=0s")
        run("pubsub_dead_letters", "replay", str(replayed.pk))
        run("pubsub_dead_letters", "discard", str(discarded.pk))
        run("pubsub_group", "cancel", "readers")
        run("pubsub_group", "remove", "readers", "--topic=work")
        may_not(
            "INSERT INTO outbox_message_t (payload) VALUES ('1')",
            "UPDATE outbox_message_t SET payload = '1'",
            "DELETE FROM log_entry",
            "UPDATE log_counter SET next_offset = 1",
            "UPDATE log_sequencer SET next_position = 1",
            "UPDATE operator_events SET actor = 'another'",
            "DELETE FROM operator_events",
        )
    assert OperatorEvent.objects.filter(action="seek").exists()
    assert not ConsumerOffset.objects.filter(group_id="readers").exists()


def test_a_reader_sees_everything_and_changes_nothing() -> None:
    publish_each(1, 2, 3)
    number()
    letter = DeadLetterFactory()
    client = Client()
    client.force_login(User.objects.create_superuser("olivia"))
    execute("GRANT SELECT ON auth_user, django_session, django_content_type, django_admin_log TO pubsub_reader")
    pages = [
        *(
            reverse(f"admin:pubsub_{name}_changelist")
            for name in ("overview", "topic", "subscription", "outboxmessage", "deadletter", "operatorevent", "finding")
        ),
        reverse("admin:pubsub_deadletter_change", args=[letter.pk]),
    ]
    with acting_as("reader"):
        assert '"work"' in run("pubsub_status", "--format=json")
        assert run("pubsub_tail", "work", "--from=earliest", "--no-follow", "--format=json").count("\n") >= 3
        assert b"pubsub_database_up 1.0" in generate_latest(everything())
        run("pubsub_topic", "list")
        run("pubsub_group", "list")
        run("pubsub_dead_letters", "show", str(letter.pk))
        assert {page: client.get(page).status_code for page in pages} == dict.fromkeys(pages, 200)
        may_not(*(f"DELETE FROM {table}" for table in TABLES if not table.endswith("_v")))
        may_not("INSERT INTO outbox_message_t (payload) VALUES ('1')", "SELECT * FROM outbox_topics FOR UPDATE")


@pytest.mark.parametrize(
    "arguments",
    [
        ["pubsub_status"],
        ["pubsub_workers", "list"],
        ["pubsub_tail", "work", "--no-follow", "--from=earliest"],
        ["pubsub_dead_letters", "list"],
        ["run_cleanup", "--dry-run"],
        ["run_consumer", "--drain"],
    ],
    ids=" ".join,
)
def test_a_command_that_the_role_may_not_run_says_so_and_where_it_is_explained(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    registry = Registry()
    registry.add(declare(Recorder(), topic="work"))
    monkeypatch.setattr("pubsub.management.commands.run_consumer.registry", registry)
    with acting_as("publisher"), pytest.raises(CommandError, match=r"permission denied for .*docs/roles\.md") as ended:
        run(*arguments)
    assert ended.value.returncode == REFUSED
    assert "\n" not in str(ended.value)


def test_system_checks_leave_out_what_the_role_may_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    registry.add(declare(Recorder(), topic="nowhere"))
    monkeypatch.setattr("pubsub.subscriptions.declare.registry", registry)
    with acting_as("publisher"):
        assert "pubsub.W003" in run("check", "--database=default")
    for role in ("consumer", "operator", "reader"):
        with acting_as(role):
            assert "pubsub.W003" in run("check", "--database=default")


def test_the_page_names_every_table() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.table_privileges "
            "WHERE grantee = 'pubsub_reader' AND privilege_type = 'SELECT'"
        )
        assert sorted(name for (name,) in cursor.fetchall()) == TABLES


def test_a_user_without_a_role_can_do_nothing() -> None:
    execute("CREATE ROLE pubsub_reader_of_nothing")
    try:
        with acting_as("reader_of_nothing"):
            may_not(*(f"SELECT FROM {table}" for table in TABLES))
    finally:
        execute("DROP ROLE pubsub_reader_of_nothing")
