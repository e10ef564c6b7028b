"""The SQL of pubsub.migration_operations: triggers that publish what happens to a table."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg.sql
from django.db import ProgrammingError, transaction

from pubsub.db.sql import load
from pubsub.errors import InvalidPublication
from pubsub.suggest import hint

VERSION = "v1"
"""Of sql/publish_row_changes.sql. Triggers of an older version keep working beside it."""

EVENTS = ("insert", "update", "delete")

_TRANSITION_TABLES = {
    "insert": "NEW TABLE AS new_rows",
    "update": "OLD TABLE AS old_rows NEW TABLE AS new_rows",
    "delete": "OLD TABLE AS old_rows",
}


@dataclass(frozen=True, kw_only=True)
class Table:
    text: str
    """Its name, for people."""
    quoted: str
    """Its name, for a statement."""
    columns: Mapping[str, str]
    """By the names that can be used for them: a model's field has up to three."""
    primary_key: Sequence[str]

    def column(self, name: str) -> str:
        if name not in self.columns:
            raise InvalidPublication(f'{self.text} has no column "{name}". {hint(name, self.columns)}')
        return self.columns[name]


def model_of_state(name: str, state: Any) -> Any:
    """The model "app.Model" in the migrations' state so far; None if the name is a table's."""
    app_label, _, model_name = name.partition(".")
    if not model_name or (app_label, model_name.lower()) not in state.models:
        return None
    return state.apps.get_model(app_label, model_name)


def table_of_model(model: Any) -> Table:
    meta = model._meta
    name = meta.db_table
    return Table(
        text=name.replace('"', ""),
        # In Django a table in a schema is named with its quotes: "schema"."table".
        quoted=name if name.startswith('"') else quoted(name),
        columns={
            name: field.column
            for field in meta.local_concrete_fields
            for name in (field.name, field.attname, field.column)
        },
        primary_key=[field.column for field in meta.pk_fields],
    )


def table_in_database(name: str, connection: Any) -> Table:
    for candidate in (quoted(name), ".".join(map(quoted, name.split(".", 1)))):
        with connection.cursor() as cursor:
            cursor.execute(load("publishing/find_table"), {"table": candidate})
            found, columns, primary_key = cursor.fetchone()
        if found:
            return Table(
                text=name, quoted=candidate, columns={column: column for column in columns}, primary_key=primary_key
            )
    raise InvalidPublication(
        f'There is neither a model nor a table "{name}" in database "{connection.alias}". Name a model as "app.Model", '
        f"or a table that the migrations before this one have made."
    )


class Schemas(NamedTuple):
    """All quoted."""

    new: str
    """Where the migration creates."""
    outbox: str
    table: str
    """The table with its schema."""


def find_schemas(table: Table, connection: Any) -> Schemas:
    with connection.cursor() as cursor:
        cursor.execute(load("publishing/find_schemas"), {"table": table.quoted})
        return Schemas(*cursor.fetchone())


@dataclass(frozen=True, kw_only=True)
class Triggers:
    """One trigger, and its function, for each kind of statement."""

    topic: str
    key: str | None
    host_id: str | None
    fields: Sequence[str] | None
    exclude: Sequence[str]
    events: Sequence[str]
    type_prefix: str | None
    condition: str
    payload: str | None

    def name(self, event: str, table: Table) -> str:
        """By table and topic, so that one table can be published to two topics."""
        digest = hashlib.sha256(f"{table.quoted}\n{self.topic}".encode()).hexdigest()[:10]
        return f"pubsub_{event}_{digest}_{VERSION}"

    def removing(self, table: Table) -> Iterator[str]:
        for event in EVENTS:
            name = self.name(event, table)
            yield f"DROP TRIGGER IF EXISTS {name} ON {table.quoted}"
            yield f"DROP FUNCTION IF EXISTS {name}()"

    def installing(self, table: Table, connection: Any) -> list[str]:
        schemas = find_schemas(table, connection)
        return [self.installing_one(event, table, schemas) for event in EVENTS if event in self.events]

    def installing_one(self, event: str, table: Table, schemas: Schemas) -> str:
        name = self.name(event, table)
        return load(
            "publishing/publish_row_changes",
            name=name,
            function=f"{schemas.new}.{name}",
            outbox=schemas.outbox,
            tag=f"${name}$",
            event=event.upper(),
            table=table.quoted,
            table_text=_literal(table.text),
            topic=_literal(self.topic),
            type_prefix=_literal(self.type_prefix or table.text),
            transition_tables=_TRANSITION_TABLES[event],
            touched="old_rows" if event == "delete" else "new_rows",
            changes=self.changes(event, table),
        )

    def check(self, table: Table, connection: Any) -> None:
        """The triggers run with their owner's rights: raises if others could make them run something of theirs."""
        schemas = find_schemas(table, connection)
        for event in self.events:
            view = f"{schemas.new}.{self.name(event, table)}"
            making = load(
                "publishing/check_row_changes", view=view, table=schemas.table, changes=self.changes(event, table)
            )
            with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
                cursor.execute("SET LOCAL search_path = pg_catalog, pg_temp")
                try:
                    cursor.execute(making)
                except ProgrammingError as error:
                    raise InvalidPublication(
                        f"The changes of {table.text} cannot be published: {str(error).strip()}\nThe triggers run with "
                        f"their owner's rights, and see PostgreSQL's own functions and operators only: in condition "
                        f"and payload give others their schema, as in schema.function(…), schema.table, "
                        f"value::schema.type and OPERATOR(schema.=). A primary key must be of types that they compare."
                    ) from error
                cursor.execute(load("publishing/find_foreign_schemas"), {"view": view})
                foreign = [name for (name,) in cursor.fetchall()]
                transaction.set_rollback(True, using=connection.alias)
            if foreign:
                raise InvalidPublication(
                    f"The changes of {table.text} cannot be published: condition or payload use functions or "
                    f"operators of the schema {foreign[0]}, in which others may create theirs, and the triggers would "
                    f"run those with their owner's rights. REVOKE CREATE ON SCHEMA {quoted(foreign[0])} from them, or "
                    f"move the functions."
                )

    def changes(self, event: str, table: Table) -> str:
        """The query whose rows become events."""
        kind, rows = _kind_and_rows(event, table)
        return load(
            "publishing/row_changes",
            kind=kind,
            rows=rows,
            key=_text_of(kind, [table.column(self.key)] if self.key else table.primary_key),
            host_id=_text_of(kind, [table.column(self.host_id)] if self.host_id else []),
            new_row=self.published("new", table),
            old_row=self.published("old", table),
            condition=self.condition,
            payload=self.payload or load("publishing/row_change_payload"),
        )

    def published(self, row: str, table: Table) -> str:
        """The row as jsonb, without excluded columns; null if there is no such row."""
        row = f"to_jsonb({row}.*)"  # written like this it is not mistaken for a column of that name
        if self.fields is not None:
            wanted = _array(table.column(name) for name in self.fields)
            return (
                f"(SELECT jsonb_object_agg(name, value) FROM jsonb_each({row}) AS field (name, value) "  # noqa: S608
                f"WHERE name = ANY ({wanted}))"
            )
        hidden = [table.column(name) for name in self.exclude]
        return f"{row} - {_array(hidden)}" if hidden else row


def _kind_and_rows(event: str, table: Table) -> tuple[str, str]:
    if event == "insert":
        return "'insert'", "new_rows AS new LEFT JOIN new_rows AS old ON false"
    if event == "delete":
        return "'delete'", "old_rows AS old LEFT JOIN old_rows AS new ON false"
    if not table.primary_key:
        raise InvalidPublication(
            f"{table.text} has no primary key, by which a new row is matched with its old one. Give it one, or publish "
            f'events=["insert", "delete"] only.'
        )
    first = quoted(table.primary_key[0])
    kind = f"CASE WHEN new.{first} IS NULL THEN 'delete' WHEN old.{first} IS NULL THEN 'insert' ELSE 'update' END"
    same = " AND ".join(f"new.{quoted(column)} = old.{quoted(column)}" for column in table.primary_key)
    return kind, f"old_rows AS old FULL JOIN new_rows AS new ON {same}"


def _text_of(kind: str, columns: Sequence[str]) -> str:
    """Columns as one text: the new row's, or the old one's if it was deleted."""
    if not columns:
        return "NULL::text"
    new, old = (
        f"{row}.{quoted(columns[0])}::text"
        if len(columns) == 1
        else f"concat_ws(':', {', '.join(f'{row}.{quoted(column)}' for column in columns)})"
        for row in ("new", "old")
    )
    return f"CASE {kind} WHEN 'delete' THEN {old} ELSE {new} END"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return psycopg.sql.quote(text)


def _array(texts: Iterable[str]) -> str:
    return f"ARRAY[{', '.join(map(_literal, texts))}]::text[]"
