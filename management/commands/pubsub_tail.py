"""Follow a topic in the terminal."""

import os
import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS

from pubsub.conf import conf
from pubsub.errors import PubSubError
from pubsub.events import Event
from pubsub.management.arguments import LARGEST_ID, check_texts, start, whole_number
from pubsub.management.databases import DatabaseCommand, check_database
from pubsub.management.exits import MISUSED
from pubsub.management.processes import from_a_signal
from pubsub.management.tables import cut, terminal_width
from pubsub.payloads.visible import visible, visible_facts, visible_json
from pubsub.payloads.write import write_line
from pubsub.streams.tail import Tail


class Command(DatabaseCommand):
    help = (
        "Shows the events of a topic as they arrive. It belongs to no group: it locks, moves and holds back nothing. "
        "Events of uncommitted transactions are never shown. Stop it with Ctrl-C; it prints where to continue. "
        "Exit code: 0, or 2 if the command was misused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic")
        parser.add_argument(
            "--from",
            dest="start",
            type=start,
            default="latest",
            metavar="START",
            help="an offset, earliest, latest, a time such as 2030-01-31T12:00, or how long ago, such as 2h (default: "
            "latest)",
        )
        parser.add_argument(
            "--last", type=whole_number(0, LARGEST_ID), default=0, help="start so many events before that"
        )
        parser.add_argument("--type", action="append", default=[], help="only events of this type; may be repeated")
        parser.add_argument(
            "--key", action="append", default=[], help="only events of this key, or host; may be repeated"
        )
        parser.add_argument(
            "--no-follow", action="store_true", help="stop at the end of the log instead of waiting for more"
        )
        parser.add_argument(
            "--max-events", "--max-messages", type=whole_number(1, LARGEST_ID), help="stop after so many events"
        )
        parser.add_argument("--no-listen", action="store_true", help="only poll, as behind a transaction pooler")
        parser.add_argument(
            "--wait-period-ms",
            type=whole_number(1),
            help='milliseconds between two looks without a wake-up (default: PUBSUB["wait_period_ms"])',
        )
        parser.add_argument(
            "--format", choices=["text", "json"], default="text", help="format of each event, one per line"
        )
        parser.add_argument("--reveal", action="store_true", help="include what PUBSUB redacts")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="the database with the outbox's tables")

    def handle(self, *args: Any, **options: Any) -> None:
        check_texts(options)
        check_database(options["database"])
        tail = Tail(
            topic=options["topic"],
            using=options["database"],
            start=options["start"],
            last=options["last"],
            types=options["type"],
            keys=options["key"],
            follow=not options["no_follow"],
            listen=not options["no_listen"],
            wait_period_s=(options["wait_period_ms"] or conf().wait_period_ms) / 1000,
        )
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: from_a_signal(tail.stop))
        shown = 0
        try:
            for event, to_group in tail:
                if not shown:
                    self.report_gone(tail)
                if options["format"] == "json":
                    self.stdout.write(visible_json(event, raw=options["reveal"], to_group=to_group))
                else:
                    width = terminal_width() if self.stdout.isatty() else 0
                    self.stdout.write(line(event, to_group, width, reveal=options["reveal"]))
                self.stdout.flush()
                shown += 1
                if shown == options["max_events"]:
                    break
        except BrokenPipeError:
            # As `| head` does. Otherwise Python would try once more when it exits, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stdout.fileno())
            return
        except PubSubError as error:
            raise CommandError(str(error), returncode=MISUSED) from error
        if not shown:
            self.report_gone(tail)
        self.stderr.write(f"{shown:,} event{'s' * (shown != 1)}. Go on with --from {tail.next_offset}.")

    def report_gone(self, tail: Tail) -> None:
        if tail.gone:
            first, last = tail.gone
            self.stderr.write(f"Offsets {first} to {last} are gone: retention has dropped them.", self.style.WARNING)


def line(event: Event, to_group: str | None, width: int, *, reveal: bool) -> str:
    """An event in one line; in a terminal it is not longer than the terminal is wide."""
    facts = visible_facts(event, raw=reveal)
    who = event.key if event.key is not None else event.host_id
    parts = [
        f"{event.offset}/{event.partition}",
        facts["created_at"][:19].replace("T", " "),
        visible(event.type) or "–",
        "–" if who is None else visible(who),
        f"→ {visible(to_group)}" if to_group else "",
        write_line(facts["payload"], at_most=width or None),
    ]
    text = "  ".join(filter(None, parts))
    return cut(text, width) if width else text
