"""What Django cannot make lives in `sql/NAME.sql`: tables that are partitioned, views, functions.

A function's name ends in its version. A released one never changes: a new version is a new file and a new migration, so
that old and new code run side by side during a deploy.
"""

import re
from pathlib import Path
from typing import Any

from django.db import migrations
from django.db.migrations.operations.base import Operation

FOLDER = Path(__file__).parent / "sql"

_CREATED = re.compile(r"^CREATE (TABLE|VIEW|FUNCTION) (\w+)", re.MULTILINE)


def run_sql_file(name: str, *state_operations: Operation) -> migrations.RunSQL:
    """Runs `sql/NAME.sql`. On the way back, what the file creates is dropped; what it alters goes with its table."""
    text = (FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    created = _CREATED.findall(text)
    drops = "\n".join(f"DROP {kind} {relation};" for kind, relation in reversed(created))
    return migrations.RunSQL(text, drops or migrations.RunSQL.noop, state_operations=state_operations)


class OnPostgreSQL(migrations.Migration):
    """Makes nothing in a database of another kind. A check says there that a router should keep the app out of it."""

    def apply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if schema_editor.connection.vendor == "postgresql":
            return super().apply(project_state, schema_editor, collect_sql)
        return self.mutate_state(project_state, preserve=False)

    def unapply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if schema_editor.connection.vendor == "postgresql":
            return super().unapply(project_state, schema_editor, collect_sql)
        return project_state
