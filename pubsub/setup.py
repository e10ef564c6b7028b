"""What the tables need before the first message: done with each `migrate`, and harmless to repeat."""

from typing import Any

from django.db import connections, router
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from . import control
from .retention import partitions
from .topics import registry
from .topics.names import DEFAULT_TOPIC

APP = "pubsub"


class OwnMigrations(MigrationLoader):
    """Loads this app's migrations where MIGRATION_MODULES switches them off."""

    @classmethod
    def migrations_module(cls, app_label: str) -> tuple[str | None, bool]:
        return (f"{APP}.migrations", False) if app_label == APP else super().migrations_module(app_label)


def install_before_migrate(*, using: str, **kwargs: Any) -> None:
    """Runs this app's migrations where a project runs none, as tests do with `--nomigrations`.

    Made of models alone, the tables would lack their functions and segments. `migrate` leaves tables alone that exist.
    """
    if _belongs_to(using) and MigrationLoader.migrations_module(APP)[0] is None:
        executor = MigrationExecutor(connections[using])
        executor.loader = OwnMigrations(connections[using])
        executor.migrate(executor.loader.graph.leaf_nodes(APP))


def prepare_after_migrate(*, using: str, **kwargs: Any) -> None:
    registry.forget_ids()
    if _belongs_to(using):
        prepare(using)


def _belongs_to(using: str) -> bool:
    return connections[using].vendor == "postgresql" and router.allow_migrate(using, APP, model_name="outboxmessage")


def prepare(using: str) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT to_regclass('log_sequencer') IS NOT NULL")
        if cursor.fetchone() != (True,):
            return  # migrated back to zero, or with --fake
        cursor.execute(
            "INSERT INTO log_sequencer (id, system_identifier) SELECT 1, system_identifier FROM pg_control_system() "
            "ON CONFLICT DO NOTHING"
        )
    registry.create_topics(connections[using], {DEFAULT_TOPIC: {}})
    control.sync_topics(using=using)
    partitions.make_partitions_ahead(using)


def make_way_for_loaded_topic(*, instance: Any, raw: bool, using: str, **kwargs: Any) -> None:
    """What `loaddata` loads replaces an unused topic that `migrate` has made under the same name and another number."""
    if not raw:
        return
    for made in type(instance).objects.using(using).filter(name=instance.name).exclude(pk=instance.pk):
        if not control.losses(made, using=using):
            made.delete(using=using)
