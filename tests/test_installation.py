"""The schema installs as an ordinary role, beside whatever else is there, and goes without leaving anything."""

import datetime as dt
import os
import re
from contextlib import contextmanager

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import override_settings

from pubsub import listen, publish
from pubsub.control import create_topic
from pubsub.db.connections import dedicated_connection
from pubsub.models import DeadLetter, DedupKey, Sequencer, Topic
from pubsub.sequencing.sequencer import sequence
from pubsub.subscriptions.declare import Declaration
from pubsub.topics.registry import forget_ids
from pubsub.worker.worker import Worker
from tests.sessions import connected_to

pytestmark = pytest.mark.django_db(transaction=True)

ROLE = f"ordinary_{os.getpid()}"

OBJECTS = """
    SELECT relname FROM pg_class WHERE relnamespace = 'elsewhere'::regnamespace
    UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'elsewhere'::regnamespace
    UNION ALL SELECT typname FROM pg_type WHERE typnamespace = 'elsewhere'::regnamespace
"""


@pytest.fixture
def role(transactional_db):
    """A role that owns one schema, which isn't `public`, and may do nothing else."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD 'ordinary'")
        cursor.execute(f"CREATE SCHEMA elsewhere AUTHORIZATION {ROLE}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP OWNED BY {ROLE} CASCADE")
            cursor.execute(f"DROP ROLE {ROLE}")


def options(**more):
    return {**connection.settings_dict["OPTIONS"], "options": "-c search_path=elsewhere", **more}


@pytest.fixture
def elsewhere(role):
    """The same database, as that role."""
    with connected_with(USER=ROLE, PASSWORD="ordinary", OPTIONS=options()):
        yield


@pytest.fixture
def assumed(role):
    """As a user who may only log in, and becomes that role by Django's `assume_role`."""
    user = f"ordinary_user_{os.getpid()}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {user} LOGIN NOINHERIT PASSWORD 'ordinary'")
        cursor.execute(f"GRANT {ROLE} TO {user}")
    try:
        with connected_with(USER=user, PASSWORD="ordinary", OPTIONS=options(assume_role=ROLE)):
            yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP ROLE {user}")


@contextmanager
def connected_with(**settings):
    """The other role may have tables of its own, so that topics have other ids there."""
    try:
        with connected_to(**settings):
            yield
    finally:
        forget_ids()


def migrate(target=None):
    call_command("migrate", "pubsub", *([target] if target else []), verbosity=0)


def objects():
    with connection.cursor() as cursor:
        cursor.execute(OBJECTS)
        return {name for (name,) in cursor.fetchall() if not re.fullmatch(r"_?django_migrations(_\w+)?", name)}


def assert_that_events_arrive():
    def handle(event):
        if event.payload == "fail":
            raise ValueError("as it should")
        # In the transaction that moves the cursor, so that it happens once, though a batch with a failure is run again.
        effect = f"{event.payload} at {event.offset}"
        tomorrow = event.created_at + dt.timedelta(days=1)
        DedupKey.objects.create(topic_id=1, dedup_key=effect, event_id=event.id, expires_at=tomorrow)

    def drain():
        Worker([Declaration(topic="default", group="readers", handler=handle)], using="default", drain=True).run()

    drain()  # joins the log, at its end
    for payload in ("first", "fail", "second"):
        with transaction.atomic():
            publish("default", payload, key="k")
    drain()
    assert set(DedupKey.objects.values_list("dedup_key", flat=True)) == {"first at 1", "second at 3"}
    assert list(DeadLetter.objects.values_list("payload", flat=True)) == ["fail"]


@pytest.mark.usefixtures("elsewhere")
def test_an_ordinary_role_installs_and_uses_it_in_a_schema_of_its_own():
    migrate()
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, current_schemas(false) FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == (False, ["elsewhere"])
    assert_that_events_arrive()


@pytest.mark.usefixtures("elsewhere")
def test_it_is_removed_without_a_trace_and_installed_again():
    migrate()
    assert {"outbox_message_t", "log_entry_default", "consumer_lag_v", "pubsub_sequence_v1"} <= objects()
    assert_that_events_arrive()
    migrate("zero")
    assert objects() == set()
    migrate()
    assert_that_events_arrive()


@pytest.mark.usefixtures("elsewhere")
def test_migrating_with_fake_makes_nothing_and_fails_at_nothing():
    call_command("migrate", "pubsub", fake=True, verbosity=0)
    assert objects() == set()
    call_command("migrate", "pubsub", "zero", fake=True, verbosity=0)
    migrate()
    assert_that_events_arrive()


@pytest.mark.usefixtures("assumed")
def test_a_role_that_is_assumed_is_assumed_by_every_connection():
    migrate()
    with dedicated_connection("default") as beside:
        who = beside.execute("SELECT session_user <> current_user, current_user").fetchone()
        assert who == (True, ROLE)
    assert_that_events_arrive()
    with listen("default", start="earliest") as events:
        assert events.get(timeout=30).payload == "first"


@pytest.mark.usefixtures("elsewhere")
def test_a_topic_made_by_hand_gets_a_number_of_its_own():
    """The default topic is numbered by hand, those of the settings by `migrate`, however often that is run."""
    with override_settings(PUBSUB={"topics": {name: {} for name in ("one", "two", "three")}}):
        migrate()
        numbers = set(Topic.objects.values_list("pk", flat=True))
        assert len(numbers) == 4
        by_hand = Topic.objects.create(name="by.hand")
        assert by_hand.pk > max(numbers)
    with override_settings(PUBSUB={"topics": {"by.hand": {}, "four": {}}}):
        migrate()
        assert Topic.objects.get(name="four").pk > by_hand.pk
        migrate()
    assert create_topic("made", actor="olivia", using="default").pk > Topic.objects.get(name="four").pk
    assert Topic.objects.count() == 7


def test_publishing_works_after_a_flush():
    """Which is also what a TransactionTestCase does after each test."""
    Topic.objects.create(name="made.by.hand")
    with transaction.atomic():
        publish("made.by.hand", {})
    sequence("default")
    call_command("flush", interactive=False, verbosity=0)
    assert Sequencer.objects.count() == 1
    assert list(Topic.objects.filter(pk=1).values_list("name", flat=True)) == ["default"]
    assert_that_events_arrive()
    assert Topic.objects.create(name="made.by.hand").pk > 1
