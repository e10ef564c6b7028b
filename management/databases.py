"""Whether a command can work with the database it was given."""

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections

from .exits import MISUSED, UNREACHABLE


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
