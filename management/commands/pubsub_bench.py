"""Measure what this database can do, beside a floor and a baseline in the same run."""

import json
from argparse import ArgumentParser
from importlib.resources import files
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DEFAULT_DB_ALIAS, connections

from pubsub.bench import publishing, rounds
from pubsub.management.arguments import whole_number


class Command(BaseCommand):
    help = (
        "Measures publishing in a scratch database beside the real one, which is made and dropped for it. All figures "
        "are medians of rounds in which the contestants took turns; what counts are the ratios."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("subject", choices=["publish"], help="what to measure")
        parser.add_argument("--clients", type=whole_number(1), default=8, help="publishing processes (default: 8)")
        parser.add_argument("--batch", type=whole_number(1), default=1, help="events in each transaction (default: 1)")
        parser.add_argument(
            "--payload-bytes", type=whole_number(1), default=1024, help="size of a payload (default: 1024)"
        )
        parser.add_argument(
            "--work-ms", type=float, default=0, help="milliseconds a transaction goes on after publishing (default: 0)"
        )
        parser.add_argument("--seconds", type=float, default=3, help="length of one turn (default: 3)")
        parser.add_argument("--rounds", type=whole_number(1), default=3, help="turns of each contestant (default: 3)")
        parser.add_argument("--copy", action="store_true", help="also compare with a raw COPY, for large batches")
        parser.add_argument("--format", choices=["text", "json"], default="text")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS)

    def handle(self, *args: Any, **options: Any) -> None:
        using = options["database"]
        connection = connections[using]
        real_name = connection.settings_dict["NAME"]
        connection.settings_dict["TEST"]["NAME"] = f"{real_name}_bench"
        connection.creation.create_test_db(verbosity=0, autoclobber=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(files("pubsub.bench").joinpath("reference.sql").read_text())
            only = {"publish", "locked counter", "raw insert"} | ({"raw copy"} if options["copy"] else set())
            results = rounds.compete(
                publishing.contestants(
                    using=using,
                    batch=options["batch"],
                    size=options["payload_bytes"],
                    work_ms=options["work_ms"],
                    only=only,
                ),
                using=using,
                clients=options["clients"],
                seconds=options["seconds"],
                rounds=options["rounds"],
                say=self._say,
            )
        finally:
            connections.close_all()
            connection.creation.destroy_test_db(real_name, verbosity=0)
        self._report(options, rounds.summary(results, "publish"))

    def _say(self, text: str) -> None:
        if self.stderr.isatty():
            self.stderr.write(text)

    def _report(self, options: dict[str, Any], table: dict[str, dict[str, float]]) -> None:
        if options["format"] == "json":
            names = ("subject", "clients", "batch", "payload_bytes", "work_ms", "seconds", "rounds")
            self.stdout.write(json.dumps({"options": {name: options[name] for name in names}, "results": table}))
            return
        self.stdout.write(
            f"{options['clients']} clients, {options['batch']} events of {options['payload_bytes']} bytes a transaction"
        )
        self.stdout.write(
            f"{'':16}{'events/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'client µs':>11}{'WAL bytes':>11}   publish is"
        )
        for name, row in table.items():
            self.stdout.write(
                f"{name:16}{row['events_per_s']:>10,.0f}{row['p50_ms']:>9.2f}{row['p99_ms']:>9.2f}"
                f"{row['cpu_us_per_event']:>11,.0f}{row['wal_bytes_per_event']:>11,.0f}   {row['times']:.2f} times this"
            )
