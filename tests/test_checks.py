"""System checks: what settings and the database have to say, before anything goes wrong."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core import checks
from django.db import connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import load_backend
from django.test import override_settings

import pubsub
from pubsub import checks as module
from pubsub import control, publish
from pubsub.checks import (
    check_database,
    check_engines,
    check_import_name,
    check_poolers,
    check_settings,
    check_tenants,
    check_vendors,
)
from pubsub.errors import WrongDatabase
from pubsub.models import Topic
from pubsub.subscriptions.declare import Registry
from pubsub.subscriptions.register import register_subscription
from tests.factories import MemberFactory
from tests.handlers import Recorder, declare
from tests.sessions import Session, connected_to

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


def test_a_database_in_another_encoding_is_an_error(session: Session) -> None:
    session.execute("CREATE DATABASE pubsub_in_latin1 ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        with connected_to(NAME="pubsub_in_latin1"):
            (message,) = check_database(databases=["default"])
    finally:
        session.execute("DROP DATABASE pubsub_in_latin1 WITH (FORCE)")
    assert (message.id, message.level) == ("pubsub.E006", checks.ERROR)
    assert message.msg.startswith('Database "default" must be encoded in UTF8, not in LATIN1')


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


@pytest.fixture
def sqlite(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A second database that is no PostgreSQL."""
    known = {**connection.settings_dict, "ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": {}}
    before, lite = connections["other"], load_backend(known["ENGINE"]).DatabaseWrapper(known, "other")
    connections["other"] = lite
    yield "other"
    lite.close()
    connections["other"] = before


on_both = pytest.mark.django_db(transaction=True, databases=["default", "other"])


class ToSqlite:
    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "other"


class NotToSqlite:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if (db, app_label) == ("other", "pubsub") else None


@on_both
def test_a_database_of_another_kind_is_reported_with_the_cure(sqlite: str) -> None:
    (message,) = check_vendors()
    assert (message.id, message.level) == ("pubsub.W012", checks.WARNING)
    assert message.msg == 'pubsub needs PostgreSQL, and database "other" is sqlite.'
    assert 'Keep the app out of "other" by a database router' in str(message.hint)
    with override_settings(DATABASE_ROUTERS=[ToSqlite()]):
        (message,) = check_vendors()
        assert (message.id, message.level) == ("pubsub.E012", checks.ERROR)
        with pytest.raises(WrongDatabase, match='database "other" is sqlite'), transaction.atomic(using="other"):
            publish("default", 1)
    with override_settings(DATABASE_ROUTERS=[NotToSqlite()]):
        assert check_vendors() == []


@on_both
def test_it_is_reported_once_and_not_of_each_comment(sqlite: str) -> None:
    found = checks.run_checks(app_configs=[apps.get_app_config("pubsub")], databases=[sqlite])
    assert [message.id for message in found] == ["pubsub.W012"]


@on_both
def test_migrating_it_makes_nothing_there_and_goes_back(sqlite: str) -> None:
    migrated = [("pubsub", "0001_initial")]
    MigrationExecutor(connections[sqlite]).migrate(migrated)
    assert connections[sqlite].introspection.table_names() == ["django_migrations"]
    MigrationExecutor(connections[sqlite]).migrate([("pubsub", None)])


def test_tenants_by_schema_are_refused() -> None:
    assert check_tenants() == []
    with override_settings(TENANT_APPS=["shop", "pubsub"]):
        (message,) = check_tenants()
    assert (message.id, message.level) == ("pubsub.E013", checks.ERROR)
    assert "Move it to SHARED_APPS" in str(message.hint)


def test_a_package_of_the_same_import_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_import_name() == []
    (tmp_path / "PyPubSub-4.0.3.dist-info").mkdir()
    (tmp_path / "PyPubSub-4.0.3.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: PyPubSub\n")
    monkeypatch.syspath_prepend(tmp_path)
    (message,) = check_import_name()
    assert (message.id, message.level) == ("pubsub.E011", checks.ERROR)
    assert "Uninstall both" in str(message.hint)


def test_where_it_was_installed_over_this_one_the_error_says_so(tmp_path: Path) -> None:
    shutil.copytree(Path(pubsub.__file__).parent, tmp_path / "pubsub", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pubsub" / "__init__.py").write_text('"""Publish-subscribe for Python objects."""\n')
    code = (
        "from django.conf import settings; settings.configure(INSTALLED_APPS=['pubsub']); import django; django.setup()"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "another package of the import name pubsub, such as PyPubSub, was installed over it" in ran.stderr


def test_a_second_set_of_tables_in_another_schema_is_reported(registry: Registry) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA tenant CREATE TABLE log_sequencer ()")
    try:
        (message,) = check_database(databases=["default"])
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA tenant CASCADE")
    assert (message.id, message.level) == ("pubsub.W013", checks.WARNING)
    assert message.msg == 'Database "default" has another set of pubsub\'s tables, in the schema tenant.'
