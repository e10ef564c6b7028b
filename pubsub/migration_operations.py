"""Migration operations: the database itself publishes what happens to a table, whatever program writes it."""

from collections.abc import Sequence
from typing import Any

from django.db import NotSupportedError, router
from django.db.migrations.operations.base import Operation, OperationCategory

from pubsub.publishing.row_changes import EVENTS, Table, Triggers, model_of_state, table_in_database, table_of_model
from pubsub.topics.names import check_name
from pubsub.topics.registry import create_topics

from .conf import conf
from .errors import InvalidPublication, WrongDatabase


class PublishRowChanges(Operation):
    """Publishes each row that is inserted, updated or deleted, by triggers: psql, COPY and other programs included.

    In a migration, after the one that makes the table::

        operations = [
            PublishRowChanges("shop.Customer", topic="customers.events", key="region_id", exclude=["password"]),
        ]

    The first argument is a model, or the name of a table: ``"customers"``, ``"crm.customers"``. Types and payloads::

        shop_customer.insert  {"new": {…}}
        shop_customer.update  {"old": {…}, "new": {…}, "changed": ["email"]}   only rows that really changed
        shop_customer.delete  {"old": {…}}

    An update of the primary key is published as a delete and an insert.

    - ``key``, ``host_id``: columns. By default the primary key is the key, so that a row's events keep their order.
    - ``fields`` or ``exclude``: the columns that are published, or that are not. Excluded values never leave the
      table; columns that are added later are published unless ``fields`` is given.
    - ``events``: some of "insert", "update" and "delete".
    - ``type_prefix``: how the types begin, instead of with the table's name.
    - ``condition``: an SQL expression over ``new`` and ``old``; rows for which it is not true are not published.
    - ``payload``: an SQL expression of type jsonb, over ``new``, ``old`` and, without what is excluded, the jsonb
      values ``new_row`` and ``old_row``. Null publishes nothing.

    The triggers run with the rights of the role that migrates. So ``condition`` and ``payload`` see PostgreSQL's own
    functions and operators only; give others their schema, in which only trusted roles may create.

    A row that does not exist, such as the old one of an insert, is null. TRUNCATE is not published (triggers do not get
    its rows), nor is what is written into a partition by its own name, or by logical replication. No consumer is woken:
    an idle one finds the events when it next looks, after ``PUBSUB["wait_period_ms"]``.

    The topic is looked up by name when rows change: topics are created after all migrations. If it is missing then, the
    writer gets an error that says so, and nothing is written. If PUBSUB["topics"] declares it, the migration creates it
    already, for data migrations that follow.

    To change an option, give the operation again with all its options: it replaces what it finds. To stop, use
    :class:`StopRowChanges`; given with the old options before the new operation, it makes the change reversible.

    >>> PublishRowChanges("shop.Customer", topic="customers.events", exclude=["password"]).describe()
    'Publish the changes of shop.Customer to customers.events'
    """

    category = OperationCategory.SQL
    reversible = True
    reduces_to_sql = True

    def __init__(
        self,
        table: str,
        topic: str,
        *,
        key: str | None = None,
        host_id: str | None = None,
        fields: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        events: Sequence[str] = EVENTS,
        type_prefix: str | None = None,
        condition: str = "true",
        payload: str | None = None,
    ) -> None:
        for option, names in (("fields", fields), ("exclude", exclude), ("events", events)):
            if isinstance(names, str):
                raise InvalidPublication(f"{option} must be a list such as [{names!r}], not {names!r}.")
        if not events or not set(events) <= set(EVENTS):
            raise InvalidPublication(f"events must be some of {', '.join(EVENTS)}, not {list(events)!r}.")
        if fields is not None and (exclude or not fields):
            raise InvalidPublication("fields must name the columns that are published, and rules out exclude.")
        self.table = table
        self.topic = check_name(topic)
        self.triggers = Triggers(
            topic=topic,
            key=key,
            host_id=host_id,
            fields=fields,
            exclude=exclude,
            events=events,
            type_prefix=type_prefix,
            condition=condition,
            payload=payload,
        )

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Triggers belong to the database; no model changes."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self.install(app_label, schema_editor, from_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self.remove(app_label, schema_editor, from_state)

    def describe(self) -> str:
        return f"Publish the changes of {self.table} to {self.topic}"

    @property
    def migration_name_fragment(self) -> str:
        return f"publish_{self.table}".replace(".", "_").lower()

    def install(self, app_label: str, schema_editor: Any, state: Any) -> None:
        table = self.find(app_label, schema_editor, state)
        if table is None:
            return
        if not schema_editor.collect_sql:
            self.prepare_outbox(schema_editor.connection)
            self.triggers.check(table, schema_editor.connection)
        statements = self.triggers.installing(table, schema_editor.connection)
        for statement in (*self.triggers.removing(table), *statements):
            schema_editor.execute(statement, params=None)

    def remove(self, app_label: str, schema_editor: Any, state: Any) -> None:
        table = self.find(app_label, schema_editor, state)
        if table is not None:
            for statement in self.triggers.removing(table):
                schema_editor.execute(statement, params=None)

    def find(self, app_label: str, schema_editor: Any, state: Any) -> Table | None:
        """The table, or None where the routers keep it from this database."""
        connection = schema_editor.connection
        model = model_of_state(self.table, state)
        hints = {"model_name": model._meta.model_name, "model": model} if model else {}
        if not router.allow_migrate(connection.alias, model._meta.app_label if model else app_label, **hints):
            return None
        if connection.vendor != "postgresql":
            raise NotSupportedError(
                f'{self.describe()}: database "{connection.alias}" is {connection.vendor}, and the triggers are '
                f"PostgreSQL's. Keep this migration away from it by a database router."
            )
        if not router.allow_migrate(connection.alias, "pubsub", model_name="outboxmessage"):
            raise WrongDatabase(
                f'{self.describe()}: the outbox\'s tables are not on database "{connection.alias}", so a change '
                f"and its event could not commit together. Let the router migrate pubsub there as well."
            )
        return table_of_model(model) if model else table_in_database(self.table, connection)

    def prepare_outbox(self, connection: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass('outbox_message_t') IS NOT NULL")
            if cursor.fetchone() != (True,):
                raise InvalidPublication(
                    f'{self.describe()}: the outbox\'s tables are not there yet. Add ("pubsub", "0001_initial") to the '
                    f"dependencies of this migration."
                )
        if self.topic in conf().topics:
            create_topics(connection, {self.topic: conf().topics[self.topic]})


class StopRowChanges(PublishRowChanges):
    """Removes what :class:`PublishRowChanges` has installed. Migrating back installs it again.

    Give it the same options, so that migrating back knows them.

    >>> StopRowChanges("shop.Customer", topic="customers.events", exclude=["password"]).describe()
    'Stop publishing the changes of shop.Customer to customers.events'
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self.remove(app_label, schema_editor, from_state)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        self.install(app_label, schema_editor, from_state)

    def describe(self) -> str:
        return f"Stop publishing the changes of {self.table} to {self.topic}"

    @property
    def migration_name_fragment(self) -> str:
        return f"stop_{super().migration_name_fragment}"
