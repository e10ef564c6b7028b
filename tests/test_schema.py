"""The schema is written twice, in models and in SQL files: both must say the same, readably."""

import hashlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, migrations

from pubsub.migrations._sql_files import run_sql_file

ROOT = Path(__file__).resolve().parent.parent
MIGRATIONS = ROOT / "pubsub" / "migrations"
SQL = MIGRATIONS / "sql"

MODELS = [model for model in apps.get_app_config("pubsub").get_models() if not model._meta.proxy]
TABLES = [model for model in MODELS if model._meta.managed]
VIEWS = [model for model in MODELS if not model._meta.managed]

by_table = pytest.mark.parametrize("model", TABLES, ids=lambda model: model._meta.db_table)

COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod), attnotnull, attidentity, pg_get_expr(adbin, adrelid)
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
"""

# Constraints, and indexes that belong to none, of what is neither a partition nor another app's.
NAMES = """
    WITH ours AS (
        SELECT oid FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relname = ANY (%s) AND NOT relispartition
    )
    SELECT conname FROM pg_constraint WHERE conrelid IN (SELECT oid FROM ours) AND contype IN ('u', 'c', 'x')
    UNION ALL
    SELECT indexrelid::regclass::text FROM pg_index
    WHERE indrelid IN (SELECT oid FROM ours) AND NOT indisprimary
      AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype = 'u')
"""

# Names that tell what they hold but not why: PostgreSQL's own, and those in which Django puts a hash.
AUTOMATIC = re.compile(r"_(check|key|idx|excl)\d*$|_[0-9a-f]{8}(_|$)")


def ask(statement, parameters=None):
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall()


def columns_of(relation):
    return {name: tuple(facts) for name, *facts in ask(COLUMNS, [relation])}


@pytest.mark.django_db
def test_the_migrations_match_the_models():
    call_command("makemigrations", "pubsub", check_changes=True, dry_run=True, verbosity=3)


@by_table
@pytest.mark.django_db
def test_a_table_is_what_django_would_make_of_its_model(model):
    """Types, NOT NULL, defaults and identity, of tables from SQL files above all; their order is free."""
    table = model._meta.db_table
    real = columns_of(table)
    home = ask("SELECT current_schema()")[0][0]
    with connection.cursor() as cursor, connection.schema_editor(collect_sql=True) as editor:
        editor.create_model(model)
        (create,) = [sql for sql in editor.collected_sql if sql.startswith("CREATE TABLE")]
        cursor.execute("CREATE SCHEMA as_django_makes_it")
        cursor.execute(f"SET LOCAL search_path = as_django_makes_it, {home}")
        cursor.execute(create)
    assert real == columns_of(f"as_django_makes_it.{table}")


@pytest.mark.parametrize("model", VIEWS, ids=lambda model: model._meta.db_table)
@pytest.mark.django_db
def test_a_view_has_the_columns_of_its_model(model):
    real = {name: type_ for name, (type_, *_) in columns_of(model._meta.db_table).items()}
    assert real == {field.column: field.db_type(connection) for field in model._meta.local_concrete_fields}


@pytest.mark.django_db
def test_no_table_lacks_a_model():
    found = ask(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND NOT relispartition"
        " AND relkind IN ('r', 'p', 'v', 'm') AND relname ~ '^(outbox|log|consumer|dead_letter|operator|pubsub|spark)_'"
    )
    assert {name for (name,) in found} == {model._meta.db_table for model in MODELS}


@pytest.mark.django_db
def test_every_constraint_has_a_name():
    """An operator meets the name of a constraint in an error, and an index's in a plan."""
    names = {name for (name,) in ask(NAMES, [[model._meta.db_table for model in TABLES]])}
    assert len(names) > 20
    assert {name for name in names if AUTOMATIC.search(name)} == set()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.db_table)
@pytest.mark.django_db
def test_every_table_says_what_it_is_for(model):
    ((comment,),) = ask("SELECT obj_description(%s::regclass, 'pg_class')", [model._meta.db_table])
    assert comment
    assert model._meta.db_table_comment in ("", comment)


@by_table
@pytest.mark.django_db
def test_the_models_comments_are_in_the_database(model):
    found = dict(
        ask(
            "SELECT attname, col_description(attrelid, attnum) FROM pg_attribute WHERE attrelid = %s::regclass",
            [model._meta.db_table],
        )
    )
    for field in model._meta.local_concrete_fields:
        if field.db_comment:
            assert found[field.column] == field.db_comment


def test_every_sql_file_is_run_by_a_migration():
    code = "".join(path.read_text(encoding="utf-8") for path in MIGRATIONS.glob("[0-9]*.py"))
    assert sorted(re.findall(r'run_sql_file\(\s*"(\w+)"', code)) == sorted(path.stem for path in SQL.glob("*.sql"))


@pytest.mark.parametrize("path", sorted(SQL.glob("*.sql")), ids=lambda path: path.stem)
def test_a_sql_file_makes_what_its_name_says_and_the_way_back_drops_it(path):
    made = re.findall(
        r"^\s*CREATE (?:OR REPLACE )?(?!INDEX|TRIGGER)(\w+) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
    )
    operation = run_sql_file(path.stem)
    if path.stem == "hot_rows":  # settings of tables, which go with them
        assert (made, operation.reverse_sql) == ([], migrations.RunSQL.noop)
    else:
        ((kind, name),) = made
        assert name == (f"pubsub_{path.stem}" if kind == "FUNCTION" else path.stem)
        assert operation.reverse_sql == f"DROP {kind} {name};"


SUMS = "(cd pubsub/migrations/sql && sha256sum *_v[0-9]*.sql > SHA256SUMS)"


def listed_functions():
    lines = (SQL / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    return {name: checksum for checksum, name in (line.split() for line in lines)}


def functions():
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in SQL.glob("*_v[0-9]*.sql")}


def test_a_released_function_does_not_change():
    changed = sorted(name for name, _ in listed_functions().items() - functions().items())
    assert not changed, (
        f"{', '.join(changed)}: changed or gone. A released function must not change, because databases that have been "
        f"migrated keep it as it was: add the next version, and a migration that runs it. If this one has never been "
        f"released, or only its comments have changed: {SUMS}"
    )


def test_every_function_is_listed_with_its_checksum():
    missing = sorted(functions().keys() - listed_functions().keys())
    assert not missing, f"{', '.join(missing)}: not listed in SHA256SUMS. Run {SUMS}"


def draw_schema() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_schema", ROOT / "docs" / "draw_schema.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.django_db
def test_the_page_about_the_schema_is_up_to_date():
    script = draw_schema()
    with connection.cursor() as cursor:
        page = script.draw(cursor, script.our_relations())
    assert script.PAGE.read_text(encoding="utf-8") == page, (
        "docs/schema.md is out of date: run `python manage.py migrate && python docs/draw_schema.py`"
    )
