#!/usr/bin/env python
"""Draws docs/schema.md from a database that has been migrated: `python docs/draw_schema.py`.

Everything is read from the catalog, in a form that PostgreSQL 15 and 18 share; what a function promises and what calls
it, from the files. The segments of a table are not shown: they come and go.
"""

import functools
import itertools
import os
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("schema.md")
ROOT = PAGE.parent.parent
FUNCTION_FILES = ROOT / "pubsub" / "migrations" / "sql"
CODE = [ROOT / "pubsub", ROOT / "management", ROOT / "spark"]

# What refers to another table without a foreign key, so that publishers and the sequencer lock nothing.
UNENFORCED = {"topic_id": "outbox_topics", "message_id": "outbox_message_t"}

OURS = """
    relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
    AND relname = ANY (%s) AND NOT relispartition
"""

RELATIONS = f"""
    SELECT oid, relname, relkind, obj_description(oid, 'pg_class'),
           CASE WHEN relkind = 'p' THEN pg_get_partkeydef(oid) END
    FROM pg_class WHERE {OURS} ORDER BY relkind = 'v', relname
"""  # noqa: S608

COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod), attnotnull,
           CASE WHEN attidentity <> '' THEN 'identity' ELSE pg_get_expr(adbin, adrelid) END,
           col_description(attrelid, attnum)
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
    ORDER BY attnum
"""

# PostgreSQL 18 lists NOT NULL among the constraints; here it stands with the columns.
CONSTRAINTS = """
    SELECT conname, contype, pg_get_constraintdef(oid, true), confrelid::regclass::text,
           ARRAY(SELECT attname FROM unnest(conkey) WITH ORDINALITY AS key (number, nth)
                 JOIN pg_attribute ON attrelid = conrelid AND attnum = number ORDER BY nth)
    FROM pg_constraint WHERE conrelid = %s AND contype IN ('p', 'u', 'c', 'f')
    ORDER BY position(contype::text IN 'pufc'), conname
"""

INDEXES = """
    SELECT relname, pg_get_indexdef(indexrelid, 0, true)
    FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indrelid = %s AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u'))
    ORDER BY relname
"""

FUNCTIONS = """
    SELECT proname, pg_get_function_arguments(oid), pg_get_function_result(oid)
    FROM pg_proc
    WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
      AND proname ~ '^pubsub_\\w+_v[0-9]+$'
    ORDER BY proname
"""

SHORT = {"timestamp with time zone": "timestamptz"}


def draw(cursor: Any, relations: list[str]) -> str:
    """The page, as the catalog of the cursor's database tells it."""
    cursor.execute(RELATIONS, [relations])
    found = [Relation(cursor, *row) for row in cursor.fetchall()]
    if missing := set(relations) - {relation.name for relation in found}:
        raise SystemExit(f"The database lacks {', '.join(sorted(missing))}. Run `python manage.py migrate` first.")
    cursor.execute(FUNCTIONS, [])
    functions = [Function(*row) for row in cursor.fetchall()]
    tables = [relation for relation in found if not relation.is_view]
    views = [relation for relation in found if relation.is_view]
    parts = [
        "# The schema",
        "Drawn from the database's own catalog by `python docs/draw_schema.py`; don't edit it by hand.\n"
        "Segments are left out: `outbox_message_t` and `log_entry` have as many as the log is long.",
        "Solid lines are foreign keys; dotted ones are references that the database doesn't enforce, so that\n"
        "publishers and the sequencer lock nothing.",
        diagram(tables),
        "## Tables",
        *(relation.page() for relation in tables),
        "## Views",
        *(relation.page() for relation in views),
        "## Functions",
        "The text of each is in `pubsub/migrations/sql/`. A released one never changes: its next version is another\n"
        "function, so that old and new code run side by side during a deploy.",
        index(functions),
        "\n".join(f"- `{function.name}({function.arguments})` → `{function.result}`" for function in functions),
    ]
    return "\n\n".join(parts) + "\n"


class Relation:
    """A table or view and all that belongs to it."""

    def __init__(self, cursor: Any, oid: int, name: str, kind: str, comment: str | None, cut_by: str | None) -> None:
        self.name, self.comment, self.cut_by = name, comment, cut_by
        self.is_view = kind == "v"
        cursor.execute(COLUMNS, [oid])
        self.columns = [(column, SHORT.get(type_, type_), *rest) for column, type_, *rest in cursor.fetchall()]
        cursor.execute(CONSTRAINTS, [oid])
        self.constraints = cursor.fetchall()
        cursor.execute(INDEXES, [oid])
        self.indexes = cursor.fetchall()
        self.key = next((columns for _, kind, _, _, columns in self.constraints if kind == "p"), [])

    def page(self) -> str:
        parts = [f"### {self.name}"]
        if self.comment:
            parts.append(f"{self.comment}.")
        if self.cut_by:
            parts.append(f"Partitioned by `{self.cut_by}`.")
        header = ["column", "type", "meaning"] if self.is_view else ["column", "type", "null", "default", "meaning"]
        lines = [header, ["---"] * len(header)]
        for column, type_, required, default, comment in self.columns:
            facts = [] if self.is_view else ["" if required else "yes", default and f"`{default}`"]
            lines.append([f"`{column}`", type_, *facts, comment])
        parts.append(table_of(lines))
        if self.constraints:
            parts.append("\n".join(f"- `{name}`: `{text}`" for name, _, text, _, _ in self.constraints))
        if self.indexes:
            parts.append("\n".join(f"- index `{name}`: `{definition(text)}`" for name, text in self.indexes))
        return "\n\n".join(parts)


class Function:
    """A function in one version."""

    def __init__(self, name: str, arguments: str, result: str) -> None:
        self.name, self.arguments, self.result = name, arguments, result
        self.subject, _, version = name.rpartition("_v")
        self.version = int(version)
        self.file = FUNCTION_FILES / f"{name.removeprefix('pubsub_')}.sql"

    def promise(self) -> str:
        """The first paragraph of the comment at the head of its file."""
        lines = itertools.takewhile(lambda line: line.startswith("-- "), sources()[self.file].splitlines())
        return " ".join(line.removeprefix("-- ") for line in lines)

    def callers(self) -> list[str]:
        """The functions and tables of the schema, and the files of the code, that use it."""
        used = re.compile(rf"^(?!\s*--).*\b{self.name}\b", re.MULTILINE)
        return sorted({caller(path) for path, text in sources().items() if path != self.file and used.search(text)})


@functools.cache
def sources() -> dict[Path, str]:
    """All files of the code, which the functions are part of."""
    paths = (path for folder in CODE for path in folder.rglob("*") if path.suffix in (".py", ".sql"))
    return {path: path.read_text(encoding="utf-8") for path in paths}


def caller(path: Path) -> str:
    if path.parent != FUNCTION_FILES:
        return path.relative_to(ROOT).as_posix()
    versioned = re.fullmatch(r"(\w+)_v\d+", path.stem)
    return f"pubsub_{versioned[1]}" if versioned else path.stem


def index(functions: list[Function]) -> str:
    """Every function in its current version."""
    lines = [["function", "current", "promises", "called by"], ["---"] * 4]
    for subject, versions in itertools.groupby(functions, lambda function: function.subject):
        current = max(versions, key=lambda function: function.version)
        callers = ", ".join(f"`{name}`" for name in current.callers())
        lines.append([f"`{subject}`", f"v{current.version}", current.promise(), callers])
    return table_of(lines)


def table_of(lines: list[list[str | None]]) -> str:
    return "\n".join("| " + " | ".join(cell(text) for text in line) + " |" for line in lines)


def diagram(tables: list[Relation]) -> str:
    lines = ["```mermaid", "erDiagram"]
    for table in tables:
        lines.append(f"    {table.name} {{")
        references = references_of(table)
        for column, type_, *_ in table.columns:
            marks = [mark for mark, yes in (("PK", column in table.key), ("FK", column in references)) if yes]
            lines.append(f"        {type_.replace(' ', '_')} {column} {', '.join(marks)}".rstrip())
        lines.append("    }")
    for table in tables:
        for column, (target, enforced) in references_of(table).items():
            lines.append(f"    {target} ||{'--' if enforced else '..'}o{{ {table.name} : {column}")
    return "\n".join([*lines, "```"])


def references_of(table: Relation) -> dict[str, tuple[str, bool]]:
    """Column → the table that it refers to, and whether the database sees to it."""
    names = {column for column, *_ in table.columns}
    found = {column: (target, False) for column, target in UNENFORCED.items() if column in names}
    found |= {columns[0]: (target, True) for _, kind, _, target, columns in table.constraints if kind == "f"}
    return found


def definition(text: str) -> str:
    """The part of CREATE INDEX that isn't said already."""
    unique = "UNIQUE " if text.startswith("CREATE UNIQUE") else ""
    return unique + text.split(" USING ", 1)[1].removeprefix("btree ")


def cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


def our_relations() -> list[str]:
    """The tables and views that the app's models stand for."""
    from django.apps import apps

    return [model._meta.db_table for model in apps.get_app_config("pubsub").get_models()]


def main() -> None:
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    import django
    from django.db import connection

    django.setup()
    with connection.cursor() as cursor:
        page = draw(cursor, our_relations())
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
