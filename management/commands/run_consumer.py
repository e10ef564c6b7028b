"""Run handlers on what has been published."""

import signal
from argparse import ArgumentParser
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS

from pubsub.errors import PubSubError
from pubsub.management.arguments import whole_number
from pubsub.subscribing import registry
from pubsub.worker import Worker


class Command(BaseCommand):
    help = (
        "Hands published events to the handlers of this project. Any number of processes may run: they share the "
        "partitions, each partition is with one of them at a time, in order. Stop it with Ctrl-C or SIGTERM: the batch "
        "in hand is finished first."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--topic", action="append", default=[], help="only this topic; may be repeated")
        parser.add_argument("--group", action="append", default=[], help="only this group; may be repeated")
        parser.add_argument(
            "--partition",
            action="append",
            type=whole_number(0),
            help="only this partition; may be repeated (default: all, shared with the other processes)",
        )
        parser.add_argument(
            "--batch-size",
            type=whole_number(1),
            help='events handled in one transaction, at least (default: PUBSUB["batch_size"])',
        )
        parser.add_argument(
            "--wait-period-ms",
            type=whole_number(1),
            help='milliseconds between two looks for work when idle (default: PUBSUB["wait_period_ms"])',
        )
        parser.add_argument("--drain", action="store_true", help="stop when nothing is left to do")
        parser.add_argument(
            "--no-listen",
            action="store_true",
            help="only poll, as behind a transaction pooler (found out by itself otherwise)",
        )
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="the database with the outbox's tables")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            declarations = registry.select(options["topic"], options["group"])
        except PubSubError as error:
            raise CommandError(str(error)) from error
        if not declarations:
            raise CommandError(
                "No handlers are declared. Write a subscribers.py in an installed app, with functions that are "
                'decorated by @pubsub.subscribe("topic", group="name").'
            )
        worker = Worker(
            declarations,
            using=options["database"],
            partitions=options["partition"],
            batch_size=options["batch_size"],
            wait_period_ms=options["wait_period_ms"],
            drain=options["drain"],
            listen=not options["no_listen"],
        )

        def stop(number: int, frame: Any) -> None:
            worker.stop()
            signal.signal(number, signal.SIG_DFL)
            # Whoever read it may be gone, or be in the middle of writing himself.
            with suppress(OSError, RuntimeError):
                self.stderr.write("Finishing the batch in hand, then stopping. Once more to stop at once.")

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        groups = sorted({declared.group for declared in declarations})
        self.stderr.write(f"Consuming as {', '.join(groups)}. Stop with Ctrl-C.")
        worker.run()
        self.stderr.write(f"Stopped: {worker.passed} events passed, {worker.failed} failed.")
