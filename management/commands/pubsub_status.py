"""The state of topics, groups and members, their lag and dead letters, and what holds anything back."""

import json
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections

from pubsub.management.arguments import LARGEST_ID, duration, whole_number
from pubsub.management.databases import DatabaseCommand, check_database
from pubsub.management.exits import MISUSED, REFUSED, UNREACHABLE
from pubsub.management.status_text import as_data, as_text, problems_of
from pubsub.management.tables import terminal_width
from pubsub.monitoring.problems import SEVERITIES, STUCK, WARNING
from pubsub.monitoring.status import SystemStatus, status
from pubsub.payloads.write import escaped
from pubsub.suggest import hint

CLEAR = "\033[H\033[2J"

LIMITS = ("fail_on", "fail_on_lag", "fail_on_age", "fail_on_dead_letters")


class Command(DatabaseCommand):
    help = (
        "Shows topics, groups and how far each is behind in each partition, its members and dead letters, and the "
        "transactions that hold anything back. It counts nothing large, so it can be called often. Exit code: "
        "0, or 1 if a limit that was given is exceeded, 2 if the command was misused, 3 if the database does not "
        "answer."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--topic", help="only this topic")
        parser.add_argument("--group", help="only this group")
        parser.add_argument("--partitions", action="store_true", help="every partition, including those without lag")
        parser.add_argument("--watch", action="store_true", help="refresh it until Ctrl-C")
        parser.add_argument(
            "--interval", type=whole_number(1), default=2, help="seconds between two refreshes (default: 2)"
        )
        parser.add_argument(
            "--fail-on", choices=[STUCK, WARNING], help="exit with 1 if a problem is as bad as that, or worse"
        )
        parser.add_argument(
            "--fail-on-lag", type=whole_number(0, LARGEST_ID), help="exit with 1 if a group is further behind"
        )
        parser.add_argument(
            "--fail-on-age", type=duration, help="exit with 1 if an event has waited for a group longer, such as 5m"
        )
        parser.add_argument(
            "--fail-on-dead-letters", type=whole_number(0), help="exit with 1 if a group has more dead letters"
        )
        parser.add_argument("--format", choices=["text", "json"], default="text", help="format of the output")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="the database with the outbox's tables")

    def handle(self, *args: Any, **options: Any) -> None:
        using = options["database"]
        check_database(using)
        if not options["watch"]:
            try:
                now = status(using)
            except OperationalError as error:
                reason = " ".join(str(error).split())
                raise CommandError(f'Database "{using}" does not answer: {reason}', returncode=UNREACHABLE) from error
            self.draw(now, options)
            if exceeded := self.exceeded(now, options):
                raise CommandError(" ".join(exceeded), returncode=REFUSED)
            return
        if any(options[name] is not None for name in LIMITS):
            raise CommandError("--watch never ends, so it takes no limits to fail on.", returncode=MISUSED)
        try:
            while True:
                try:
                    self.draw(status(using), options, clear=options["format"] == "text" and self.stdout.isatty())
                except OperationalError as error:
                    self.stderr.write(f"The database does not answer ({error}); trying again.")
                    connections[using].close()
                time.sleep(options["interval"])
        except KeyboardInterrupt:
            return

    def draw(self, now: SystemStatus, options: dict[str, Any], clear: bool = False) -> None:
        self.check_names(now, options["topic"], options["group"])
        if options["format"] == "json":
            data = as_data(now, options["topic"], options["group"], options["database"])
            text = escaped(json.dumps(data, cls=DjangoJSONEncoder, ensure_ascii=False))
        else:
            text = as_text(
                now,
                terminal_width(),
                topic=options["topic"],
                group=options["group"],
                every=options["partitions"],
                using=options["database"],
            )
        # In one piece, so that nothing flickers.
        self.stdout.write((CLEAR if clear else "") + text)
        self.stdout.flush()

    def check_names(self, now: SystemStatus, topic: str | None, group: str | None) -> None:
        """Ends the command if there is no such topic or group: a typo must not read as "all is well"."""
        topics = [found.name for found in now.topics]
        if topic and topic not in topics:
            raise CommandError(f'There is no such topic as "{topic}". {hint(topic, topics)}', returncode=MISUSED)
        groups = sorted({found.group for found in now.groups if topic in (None, found.topic)})
        if group and group not in groups:
            where = f' on topic "{topic}"' if topic else ""
            raise CommandError(f'There is no such group as "{group}"{where}. {hint(group, groups)}', returncode=MISUSED)

    def exceeded(self, now: SystemStatus, options: dict[str, Any]) -> list[str]:
        """What is beyond the limits. A group that is cancelled waits for nothing."""
        found = []
        if options["fail_on"]:
            beyond = SEVERITIES[: SEVERITIES.index(options["fail_on"]) + 1]
            problems = problems_of(now, options["topic"], options["group"])
            found += [problem.text for problem in problems if problem.severity in beyond]
        age = options["fail_on_age"]
        for group in now.groups:
            if group.status == "CANCELLED" or options["topic"] not in (None, group.topic):
                continue
            if options["group"] not in (None, group.group):
                continue
            name = f'Group "{group.group}" on topic "{group.topic}"'
            if options["fail_on_lag"] is not None and group.lag > options["fail_on_lag"]:
                found.append(f"{name} is {group.lag:,} events behind.")
            if age is not None and group.behind_s > age.total_seconds():
                found.append(f"{name} is {group.behind_s:,.0f} s behind.")
            if options["fail_on_dead_letters"] is not None and group.dead > options["fail_on_dead_letters"]:
                found.append(f"{name} has {group.dead:,} dead letters.")
        return found
