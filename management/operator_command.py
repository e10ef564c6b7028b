"""What the commands that change something share: who acts, on which database, dry runs, and the output."""

import contextlib
import getpass
import json
import os
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DEFAULT_DB_ALIAS

from pubsub.control import dry_run
from pubsub.db.transactions import read_committed
from pubsub.errors import PartitionInUse, PubSubError
from pubsub.payloads.write import escaped

from .arguments import check_texts
from .databases import DatabaseCommand, check_database
from .exits import IN_USE, REFUSED


class OperatorCommand(DatabaseCommand):
    """A command with sub-commands, each of which is a method of that name."""

    def add_reading_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--format", choices=["text", "json"], default="text", help="format of the output")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="the database with the outbox's tables")

    def add_changing_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")
        parser.add_argument("--reason", default="", help="why, for the audit log")
        parser.add_argument(
            "--actor", default=system_user(), help="who, for the audit log (default: the system's user)"
        )
        self.add_reading_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        check_texts(options)
        check_database(options["database"])
        try:
            getattr(self, options["action"].replace("-", "_"))(**options)
        except PartitionInUse as error:
            raise CommandError(str(error), returncode=IN_USE) from error
        except PubSubError as error:
            raise CommandError(str(error), returncode=REFUSED) from error

    @contextlib.contextmanager
    def changing(self, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """A transaction that is undone in a dry run; yields what the functions of `pubsub.control` need to know."""
        using = options["database"]
        with dry_run(using=using) if options["dry_run"] else read_committed(using):
            yield {"actor": options["actor"], "using": using, "reason": options["reason"]}

    def report(self, options: dict[str, Any], data: Any, lines: list[str]) -> None:
        if options["format"] == "json":
            if options.get("dry_run"):
                data = (
                    [{"dry_run": True, **each} for each in data]
                    if isinstance(data, list)
                    else {"dry_run": True, **data}
                )
            self.stdout.write(escaped(json.dumps(data, cls=DjangoJSONEncoder, ensure_ascii=False)))
            return
        for line in lines:
            self.stdout.write(line)
        if options.get("dry_run"):
            self.stderr.write("This was a dry run: nothing was changed.")


def system_user() -> str:
    """The name of the user that the process runs as, for the audit log."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in some containers
        return f"uid {os.getuid()}"
