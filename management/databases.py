"""Whether a command can work with the database it was given."""

from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, DatabaseError, OperationalError, connections

from pubsub.db.errors import INSUFFICIENT_PRIVILEGE, sqlstate

from .exits import MISUSED, REFUSED, UNREACHABLE


class DatabaseCommand(BaseCommand):
    """A command that a role without the rights for it cannot run, and says so."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except (DatabaseError, psycopg.Error) as error:
            if sqlstate(error) != INSUFFICIENT_PRIVILEGE:
                raise
            reason = str(error).partition("\n")[0]
            raise CommandError(
                f"The database role that this command runs as has not the rights for it: {reason}. docs/roles.md says "
                "which role runs which command, and how to grant it.",
                returncode=REFUSED,
            ) from error


def check_alias(using: str) -> None:
    """Ends the command if there is no database of this name."""
    if using not in connections:
        raise CommandError(f'There is no database "{using}"; there are: {", ".join(connections)}.', returncode=MISUSED)


def check_database(using: str, *, waits: bool = False) -> None:
    """Ends the command if the database does not answer or is not migrated. One that `waits` for it continues."""
    check_alias(using)
    try:
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT to_regclass('log_sequencer') IS NOT NULL")
            (is_migrated,) = cursor.fetchone()
    except OperationalError as error:
        connections[using].close()
        if waits:
            return
        reason = " ".join(str(error).split())
        raise CommandError(f'Database "{using}" does not answer: {reason}', returncode=UNREACHABLE) from error
    if not is_migrated:
        option = "" if using == DEFAULT_DB_ALIAS else f" --database={using}"
        raise CommandError(
            f'The outbox\'s tables are not in database "{using}"; run `manage.py migrate{option}`.', returncode=MISUSED
        )
