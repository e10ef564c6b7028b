"""System checks: what settings and the database have to say, before anything goes wrong."""

import sys
from typing import Any

import pytest
from django.core import checks
from django.db import connection, connections
from django.db.utils import load_backend
from django.test import override_settings

from pubsub import checks as module
from pubsub import control
from pubsub.checks import check_database, check_engines, check_poolers, check_settings
from pubsub.models import Topic
from pubsub.subscriptions.declare import Registry
from pubsub.subscriptions.register import register_subscription
from tests.factories import MemberFactory
from tests.handlers import Recorder, declare

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry()
    monkeypatch.setattr("pubsub.subscriptions.declare.registry", registry)
    return registry


def found(databases: Any = ("default",)) -> list[str]:
    return [f"{message.id} {message.msg}" for message in check_database(databases=databases)]


def test_nothing_is_wrong_here(registry: Registry) -> None:
    registry.add(declare(Recorder()))
    registry.add(declare(Recorder(), topic="*", group="all"))
    assert found() == []
    assert check_poolers() == []


def test_only_a_deployment_check_mentions_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_engines() == []
    settings_of_plain = {**connection.settings_dict, "ENGINE": "django.db.backends.postgresql"}
    plain = load_backend(settings_of_plain["ENGINE"]).DatabaseWrapper(settings_of_plain, "other")
    monkeypatch.setitem(connections.settings, "other", settings_of_plain)
    before = connections["other"]
    connections["other"] = plain
    try:
        (message,) = check_engines()
        assert not [found for found in checks.run_checks(tags=["pubsub"]) if found.id == message.id]
        assert message in checks.run_checks(tags=["pubsub"], include_deployment_checks=True)
    finally:
        connections["other"] = before
    assert (message.id, message.level) == ("pubsub.I002", checks.INFO)
    assert message.msg == 'Database "other" is on the engine django.db.backends.postgresql.'
    assert '"ENGINE": "pubsub.db.backend"' in str(message.hint)


def test_a_server_that_is_too_old_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        running = int(cursor.fetchone()[0])
    monkeypatch.setattr(module, "OLDEST_POSTGRESQL", running + 1)
    (message,) = check_database(databases=["default"])
    assert (message.id, message.level) == ("pubsub.E003", checks.ERROR)
    assert message.msg == (f'PostgreSQL 15 or newer is needed; database "default" runs version {running // 10000}.')


def test_without_a_database_nothing_is_queried() -> None:
    assert check_database(databases=None) == []


def test_a_handler_of_an_unknown_topic_is_reported_with_the_nearest_name(registry: Registry) -> None:
    registry.add(declare(Recorder(), topic="defualt"))
    (message,) = check_database(databases=["default"])
    assert (message.id, message.level) == ("pubsub.W003", checks.WARNING)
    assert message.msg == 'tests.handlers.Recorder handles topic "defualt", which does not exist on "default".'
    assert str(message.hint).startswith('Did you mean "default"? ')
    with override_settings(PUBSUB={"topics": {"defualt": {}}}):
        assert found() == []
    with override_settings(PUBSUB={"unknown_topic": "create"}):
        assert found() == []


def test_before_the_first_migrate_handlers_are_not_checked(registry: Registry) -> None:
    registry.add(declare(Recorder(), topic="defualt"))
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE outbox_topics RENAME TO elsewhere")
    try:
        assert found() == []
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE elsewhere RENAME TO outbox_topics")


def test_a_group_that_was_renamed_in_the_code_is_found_before_it_handles_everything_again(registry: Registry) -> None:
    register_subscription(declare(Recorder(), group="shipping"), using="default")
    registry.add(declare(Recorder(), group="shipping2"))
    gone, new = check_database(databases=["default"])
    assert (gone.id, new.id) == ("pubsub.W005", "pubsub.W006")
    assert gone.msg == 'Group "shipping" has cursors on topic "default" of "default", and no handler.'
    assert "pubsub_group rename shipping shipping2 --topic=default" in str(gone.hint)
    assert "as group \"shipping2\" it begins at 'earliest'" in new.msg
    control.rename_group("default", "shipping", "shipping2", actor="deploy", using="default")
    assert found() == []


def test_a_group_of_another_program_is_not_reported_while_it_is_alive(registry: Registry) -> None:
    register_subscription(declare(Recorder(), group="billing"), using="default")
    registry.add(declare(Recorder(), topic="*", group="all"))
    assert [message.split()[0] for message in found()] == ["pubsub.W005"]
    MemberFactory(topic=Topic.objects.get(name="default"), group_id="billing")
    assert found() == []


@pytest.mark.usefixtures("through_pooler")
def test_a_transaction_pooler_is_found_by_asking(registry: Registry) -> None:
    assert [message.split()[0] for message in found()] == ["pubsub.W002"]


@pytest.mark.parametrize(
    ("option", "value", "sign"),
    [
        ("PORT", "6432", "port 6432 is PgBouncer's"),
        ("PORT", 6432, "port 6432 is PgBouncer's"),
        ("HOST", "db-pooler.example.com", "its host is db-pooler.example.com"),
        ("DISABLE_SERVER_SIDE_CURSORS", True, "DISABLE_SERVER_SIDE_CURSORS is set"),
    ],
)
def test_settings_that_look_like_a_pooler_are_only_mentioned(
    monkeypatch: pytest.MonkeyPatch, option: str, value: Any, sign: str
) -> None:
    monkeypatch.setitem(connections.settings["default"], option, value)
    monkeypatch.delitem(connections.settings, "other")
    (message,) = check_poolers()
    assert (message.id, message.level) == ("pubsub.I001", checks.INFO)
    assert sign in message.msg


def test_tracing_without_its_extra_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pubsub.monitoring.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with override_settings(PUBSUB={"tracing": True}):
        (message,) = check_settings()
    assert message.id == "pubsub.E005"
    assert "pip install 'django-outbox-pubsub[otel]'" in str(message.hint)
    with override_settings(PUBSUB={}):
        assert check_settings() == []
