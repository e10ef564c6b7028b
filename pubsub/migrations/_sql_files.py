"""SQL objects live in `sql/NAME.up.sql`, and what takes them away again in `sql/NAME.down.sql`.

A function's name ends in its version: a changed one is a new file and a new migration, so that old and new code run
side by side during a deploy.
"""

from collections.abc import Sequence
from pathlib import Path

from django.db import migrations
from django.db.migrations.operations.base import Operation

FOLDER = Path(__file__).parent / "sql"


def run_sql_file(name: str, state_operations: Sequence[Operation] = ()) -> migrations.RunSQL:
    up, down = ((FOLDER / f"{name}.{way}.sql").read_text(encoding="utf-8") for way in ("up", "down"))
    return migrations.RunSQL(up, down, state_operations=list(state_operations))
