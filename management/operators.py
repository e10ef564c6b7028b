"""What the commands of operators have in common: who acts, on which database, in earnest or not, and how it is told."""

import contextlib
import gc
import getpass
import json
import os
import shutil
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections

from pubsub.errors import PubSubError
from pubsub.operating import rehearsal

REFUSED, MISUSED = 1, 2


class OperatorCommand(BaseCommand):
    """A command with sub-commands, each of which is a method of that name."""

    def add_reading_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--format", choices=["text", "json"], default="text", help="of what is printed")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="the database with the outbox's tables")

    def add_changing_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")
        parser.add_argument("--reason", default="", help="why, for the journal")
        parser.add_argument("--actor", default=system_user(), help="who, for the journal (default: the system's user)")
        self.add_reading_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        check_database(options["database"])
        try:
            getattr(self, options["action"].replace("-", "_"))(**options)
        except PubSubError as error:
            raise CommandError(str(error), returncode=REFUSED) from error

    @contextlib.contextmanager
    def changing(self, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """A transaction that is undone in a dry run; gives what each function of `pubsub.operating` wants to know."""
        with rehearsal(options["database"], really=not options["dry_run"]):
            yield {"actor": options["actor"], "using": options["database"], "reason": options["reason"]}

    def tell(self, options: dict[str, Any], data: Any, lines: list[str]) -> None:
        if options["format"] == "json":
            self.stdout.write(json.dumps(data, cls=DjangoJSONEncoder, ensure_ascii=False))
            return
        for line in lines:
            self.stdout.write(line)
        if options.get("dry_run"):
            self.stderr.write("This was a dry run: nothing was changed.")


def check_alias(using: str) -> None:
    """Ends a command that was given a name of no database."""
    if using not in connections:
        raise CommandError(f'There is no database "{using}"; there are: {", ".join(connections)}.', returncode=MISUSED)


def check_database(using: str, *, waits: bool = False) -> None:
    """Ends a command that could do nothing, in words. One that `waits` for a database that is away goes on."""
    check_alias(using)
    try:
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT to_regclass('log_sequencer') IS NOT NULL")
            (is_migrated,) = cursor.fetchone()
    except OperationalError as error:
        connections[using].close()
        if waits:
            return
        said = " ".join(str(error).split())
        raise CommandError(f'Database "{using}" does not answer: {said}', returncode=REFUSED) from error
    if not is_migrated:
        option = "" if using == DEFAULT_DB_ALIAS else f" --database={using}"
        raise CommandError(
            f'The outbox\'s tables are not in database "{using}"; run `manage.py migrate{option}`.', returncode=MISUSED
        )


@contextlib.contextmanager
def loaded_for_good() -> Iterator[None]:
    """Spares the garbage collector what is loaded so far, which it would walk through again and again, in each process
    that is forked from this one as well, where it would copy all of it."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in some containers
        return f"uid {os.getuid()}"


def from_a_signal(stop: Callable[[], object]) -> None:
    """Stops something from within a signal's handler.

    In a thread of its own: whoever the signal interrupts may be about to wait for that very thing, with the lock of it
    in hand, and would then wait for itself.
    """
    threading.Thread(target=stop, name="pubsub-stopping").start()


def say(out: OutputWrapper, text: str) -> None:
    """For people who watch a process that goes on for long; it goes on all the same where nobody does.

    Whoever read it may be gone, or be in the middle of writing himself; there may never have been anybody (``2>&-``).
    """
    with contextlib.suppress(RuntimeError, ValueError, AttributeError):
        try:
            out.write(text)
            out.flush()
        except OSError:
            # What it has kept would fail once more when the process ends, and spoil its exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def terminal_width() -> int:
    """Columns of the terminal; of a file or a pipe, what most people can read."""
    return shutil.get_terminal_size((120, 24)).columns
