"""Call this project's handlers with published events."""

import inspect
import os
import signal
import threading
from argparse import ArgumentParser
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS
from django.utils import autoreload

from pubsub.conf import LONGEST_MS, MOST
from pubsub.errors import PubSubError
from pubsub.management.arguments import LARGEST_ID, check_texts, whole_number
from pubsub.management.databases import DatabaseCommand, check_database
from pubsub.management.processes import from_a_signal, loaded_for_good, say
from pubsub.subscriptions.declare import registry
from pubsub.worker.worker import Worker

EXIT_NOT_FINISHED = 3
"""The exit code if --shutdown-timeout ended before the current batch was finished."""


class Command(DatabaseCommand):
    help = (
        "Calls this project's handlers with published events. Any number of processes can run: they share the "
        "partitions, and each partition is handled by one of them at a time, in order. Stop it with Ctrl-C or SIGTERM: "
        "it finishes the current batch first."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--topic", action="append", default=[], help="only this topic; may be repeated")
        parser.add_argument("--group", action="append", default=[], help="only this group; may be repeated")
        parser.add_argument(
            "--partition",
            dest="partitions",
            action="append",
            type=whole_number(0),
            help="only this partition; may be repeated (default: all, shared with the other processes)",
        )
        parser.add_argument(
            "--batch-size",
            type=whole_number(1, MOST["batch_size"]),
            help='events handled in one transaction, at least (default: PUBSUB["batch_size"])',
        )
        parser.add_argument(
            "--wait-period-ms",
            type=whole_number(1, LONGEST_MS),
            help='milliseconds between two looks for work while idle (default: PUBSUB["wait_period_ms"])',
        )
        parser.add_argument(
            "--threads",
            type=whole_number(1, 1000),
            default=1,
            help="partitions to handle at the same time, for handlers that wait for something else (default: 1)",
        )
        parser.add_argument("--drain", action="store_true", help="stop when there is nothing left to do")
        parser.add_argument(
            "--max-events",
            "--max-messages",
            type=whole_number(1, LARGEST_ID),
            metavar="N",
            help="stop after about this many events; the current transaction is finished first",
        )
        parser.add_argument(
            "--shutdown-timeout",
            type=whole_number(1),
            metavar="SECONDS",
            help="how long the current batch may take after Ctrl-C or SIGTERM before the process ends at once and the "
            "batch is undone (default: no limit)",
        )
        parser.add_argument(
            "--worker-id",
            metavar="ID",
            help="a name that is unique among all processes (default: host, pid and a number)",
        )
        parser.add_argument(
            "--liveness-file",
            metavar="FILE",
            help="touch this file after each batch and each look for work: if it gets old, a handler is hanging",
        )
        parser.add_argument("--reload", action="store_true", help="restart when the code changes, for development")
        parser.add_argument(
            "--no-listen",
            action="store_true",
            help="only poll, as it always does behind a transaction pooler",
        )
        parser.add_argument(
            "--no-maintenance",
            dest="maintenance",
            action="store_false",
            help="leave segments, retention and pruning to `manage.py run_cleanup`, as a worker must whose "
            "role does not own the tables",
        )
        parser.add_argument(
            "--metrics-port",
            type=whole_number(1, 65_535),
            metavar="PORT",
            help="serve metrics for Prometheus on this port (needs the extra `metrics`)",
        )
        parser.add_argument(
            "--metrics-address",
            default="127.0.0.1",
            metavar="ADDRESS",
            help="the address to serve them on (default: 127.0.0.1, for this machine only)",
        )
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="the database with the outbox's tables")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reload"]:
            autoreload.run_with_reloader(self.consume, **options)
        else:
            self.consume(**options)

    def consume(self, **options: Any) -> None:
        check_texts({name: options[name] for name in ("topic", "group", "worker_id")})
        check_database(options["database"], waits=not options["drain"])
        worker = self.make_worker(**options)
        groups = sorted({declared.group for declared in worker.declared})
        # Under --reload this is not the main thread, and the reloader itself handles Ctrl-C.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, partial(self.stop, worker, options["shutdown_timeout"]))
        self.say(f"Consuming as {', '.join(groups)}. Stop with Ctrl-C.")
        try:
            with self.metrics(options), loaded_for_good():
                worker.run()
        except PubSubError as error:
            raise CommandError(str(error)) from error
        passed = f"{worker.passed:,} event{'s' * (worker.passed != 1)}"
        failed = f"{worker.failed:,} failure{'s' * (worker.failed != 1)}"
        retried = f"; {worker.retried:,} that failed before {'was' if worker.retried == 1 else 'were'} tried again"
        self.say(f"Stopped after {passed}, with {failed}{retried if worker.retried else ''}.")

    def metrics(self, options: dict[str, Any]) -> AbstractContextManager[Any]:
        if options["metrics_port"] is None:
            return nullcontext()
        from pubsub.monitoring.metrics import serve  # needs an extra, which only this option requires

        try:
            server = serve(options["metrics_port"], address=options["metrics_address"], using=options["database"])
        except OSError as error:
            raise CommandError(
                f"Metrics cannot be served at {options['metrics_address']}:{options['metrics_port']}: {error}."
            ) from error
        return closing(server)

    def make_worker(self, **options: Any) -> Worker:
        try:
            declarations = registry.select(options["topic"], options["group"])
        except PubSubError as error:
            raise CommandError(str(error)) from error
        if not declarations:
            raise CommandError(
                "No handlers are declared. Write a subscribers.py in an installed app, with functions decorated "
                'with @pubsub.subscribe("topic", group="name").'
            )
        # The other options of a worker have the names of its constructor's parameters.
        shared = inspect.signature(Worker).parameters.keys() & options.keys()
        return Worker(
            declarations,
            using=options["database"],
            listen=not options["no_listen"],
            **{name: options[name] for name in shared},
        )

    def stop(self, worker: Worker, timeout_s: int | None, number: int, frame: Any) -> None:
        from_a_signal(worker.stop)
        signal.signal(number, signal.SIG_DFL)
        in_time = f", for at most {timeout_s} s" if timeout_s else ""
        self.say(f"Finishing the current batch{in_time}, then stopping. Press Ctrl-C again to stop immediately.")
        if timeout_s:
            force = threading.Timer(timeout_s, self.stop_at_once, [worker])
            force.daemon = True
            force.start()

    def stop_at_once(self, worker: Worker) -> None:
        tasks = ", ".join(f"{group} on partition {partition}" for group, _, partition in worker.in_hand)
        self.say(f"Not finished in time: {tasks or 'no batch'}. Stopping now; what is not committed is undone.")
        os._exit(EXIT_NOT_FINISHED)

    def say(self, text: str) -> None:
        say(self.stderr, text)
