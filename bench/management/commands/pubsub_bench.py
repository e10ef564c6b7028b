"""Measure what this database can do, beside a floor and a baseline in the same run."""

import json
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from bench import consume, drop, fan_out, publish, rounds, setbacks, wake
from bench.scratch import scratch_database
from pubsub.delivery import Delivery
from pubsub.management.arguments import whole_number
from pubsub.management.databases import check_alias
from pubsub.management.processes import loaded_for_good

Table = dict[str, dict[str, float]]


MEANINGFUL = {
    "publish": ("clients", "batch", "alone", "payload_bytes", "work_ms", "seconds", "rounds"),
    "consume": ("events", "together", "groups", "consumers", "batch", "payload_bytes", "delivery", "rounds"),
    "fanout": ("writers", "together", "groups", "consumers", "batch", "payload_bytes", "seconds", "rounds"),
    "setbacks": ("events", "batch", "payload_bytes", "delivery", "rounds"),
    "wake": ("count", "rounds"),
    "latency": ("count", "rounds"),
}
HEADINGS = {
    "publish": "{clients} clients, {batch} events of {payload_bytes} bytes a transaction",
    "consume": (
        "{groups} groups, {consumers} consumers each, of {events} events of {payload_bytes} bytes, {together} a "
        "transaction, {batch} in a batch, {delivery}"
    ),
    "fanout": (
        "{writers} writers, {together} events of {payload_bytes} bytes a transaction; {groups} groups with {consumers} "
        "consumers each, {batch} in a batch"
    ),
    "setbacks": (
        "{events} events of {payload_bytes} bytes and of one key, each a transaction, {batch} in a batch, {delivery}"
    ),
    "wake": "{count} commits a round; latencies until a listener is notified",
    "latency": "{count} events a round, 100 a second; latencies until the handler is called",
}
COLUMNS = {
    "events_per_s": ("events/s", ",.0f"),
    "written_per_s": ("written/s", ",.0f"),
    "read_per_s": ("read/s", ",.0f"),
    "most_behind": ("most behind", ",.0f"),
    "p50_ms": ("p50 ms", ".2f"),
    "p99_ms": ("p99 ms", ".2f"),
    "cpu_us_per_event": ("client µs", ",.0f"),
    "wal_bytes_per_event": ("WAL bytes", ",.0f"),
}


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not value > 0:
        raise ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def add_payload_bytes(parser: ArgumentParser) -> None:
    parser.add_argument("--payload-bytes", type=whole_number(1), default=1024, help="of a payload (default: 1024)")


def add_batch(parser: ArgumentParser) -> None:
    parser.add_argument("--batch", type=whole_number(1), default=100, help="events in a batch (default: 100)")


def add_delivery(parser: ArgumentParser) -> None:
    parser.add_argument("--delivery", choices=[mode.value for mode in Delivery], default=Delivery.TRANSACTIONAL.value)


class Command(BaseCommand):
    help = (
        "Measures in a scratch database beside the real one, which is made and dropped for it. All figures are medians "
        "of rounds in which the contestants took turns; what counts are the ratios."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        subjects = parser.add_subparsers(
            dest="subject", required=True, metavar="publish|consume|fanout|setbacks|wake|latency|drop"
        )
        publishing = subjects.add_parser("publish", help="events published a second")
        publishing.add_argument("--clients", type=whole_number(1), default=8, help="publishing processes (default: 8)")
        publishing.add_argument("--batch", type=whole_number(1), default=1, help="events in a transaction (default: 1)")
        publishing.add_argument(
            "--alone",
            action="store_true",
            help="events that belong to no transaction: publish_on_commit() outside of any",
        )
        add_payload_bytes(publishing)
        publishing.add_argument(
            "--work-ms",
            type=whole_number(0),
            default=0,
            help="milliseconds that a transaction goes on after publishing (default: 0)",
        )
        publishing.add_argument("--seconds", type=positive, default=3, help="length of one turn (default: 3)")
        publishing.add_argument("--copy", action="store_true", help="also compare with a raw COPY, for large batches")
        consuming = subjects.add_parser("consume", help="events a second that consumers drain a backlog by")
        consuming.add_argument("--events", type=whole_number(1), default=100_000, help="the backlog (default: 100000)")
        consuming.add_argument(
            "--together",
            type=whole_number(1),
            default=10,
            help="events of a publisher's transaction, to whose end a batch goes on (default: 10)",
        )
        consuming.add_argument("--groups", type=whole_number(1), default=1, help="that read all of it (default: 1)")
        consuming.add_argument("--consumers", type=whole_number(1), default=1, help="processes of each (default: 1)")
        add_batch(consuming)
        add_payload_bytes(consuming)
        add_delivery(consuming)
        fanning_out = subjects.add_parser("fanout", help="writers and several groups at the same time")
        fanning_out.add_argument("--writers", type=whole_number(1), default=2, help="publishing processes (default: 2)")
        fanning_out.add_argument(
            "--together", type=whole_number(1), default=50, help="events in a transaction (default: 50)"
        )
        fanning_out.add_argument("--groups", type=whole_number(1), default=5, help="that read all of it (default: 5)")
        fanning_out.add_argument("--consumers", type=whole_number(1), default=2, help="processes of each (default: 2)")
        add_batch(fanning_out)
        add_payload_bytes(fanning_out)
        fanning_out.add_argument("--seconds", type=positive, default=20, help="length of one turn (default: 20)")
        failing = subjects.add_parser("setbacks", help="events a second that are parked, released, replayed")
        failing.add_argument("--events", type=whole_number(2), default=3000, help="of one key (default: 3000)")
        add_batch(failing)
        add_payload_bytes(failing)
        add_delivery(failing)
        waking = subjects.add_parser("wake", help="from a commit to a process that is notified of it")
        waking.add_argument("--count", type=whole_number(1), default=300, help="commits in each turn (default: 300)")
        latency = subjects.add_parser("latency", help="from a commit to the call of a handler")
        latency.add_argument("--count", type=whole_number(1), default=300, help="events in each turn (default: 300)")
        dropping = subjects.add_parser("drop", help="how long dropping old storage keeps publishers waiting")
        dropping.add_argument(
            "--rows", type=whole_number(1000), default=1_000_000, help="of a partition (default: 1000000)"
        )
        dropping.add_argument("--clients", type=whole_number(1), default=4, help="publishing meanwhile (default: 4)")
        add_payload_bytes(dropping)
        for subject in (publishing, consuming, fanning_out, failing, waking, latency, dropping):
            subject.add_argument("--rounds", type=whole_number(1), default=3, help="turns of each (default: 3)")
            subject.add_argument("--format", choices=["text", "json"], default="text")
            subject.add_argument("--database", default=DEFAULT_DB_ALIAS)

    def handle(self, *args: Any, **options: Any) -> None:
        check_alias(options["database"])
        if options.get("alone") and (options["batch"] > 1 or options["work_ms"] or options["copy"]):
            raise CommandError("--alone is about single events: it goes with neither --batch, --work-ms nor --copy.")
        if options["subject"] == "drop":
            self._drop(options)
            return
        measure = getattr(self, f"_{options['subject']}")
        with self._scratch_database(options["database"]), loaded_for_good():
            table = measure(options)
        if options["format"] == "json":
            chosen = {name: options[name] for name in ("subject", *MEANINGFUL[options["subject"]])}
            self.stdout.write(json.dumps({"options": chosen, "results": table}))
        else:
            self._draw(options["subject"], options, table)

    def _publish(self, options: dict[str, Any]) -> Table:
        every = publish.contestants(
            using=options["database"],
            batch=options["batch"],
            size=options["payload_bytes"],
            work_ms=options["work_ms"],
            alone=options["alone"],
        )
        results = rounds.compete(
            [contestant for contestant in every if options["copy"] or contestant.name != "raw copy"],
            using=options["database"],
            clients=options["clients"],
            seconds=options["seconds"],
            rounds=options["rounds"],
            say=self._say,
        )
        return rounds.summary(results, "publish")

    def _wake(self, options: dict[str, Any]) -> Table:
        return wake.compare(using=options["database"], count=options["count"], rounds=options["rounds"], say=self._say)

    def _consume(self, options: dict[str, Any]) -> Table:
        return consume.compare(
            using=options["database"],
            events=options["events"],
            together=options["together"],
            size=options["payload_bytes"],
            groups=options["groups"],
            consumers=options["consumers"],
            batch=options["batch"],
            delivery=Delivery(options["delivery"]),
            rounds=options["rounds"],
            say=self._say,
        )

    def _fanout(self, options: dict[str, Any]) -> Table:
        chosen = ("writers", "together", "groups", "consumers", "batch", "seconds", "rounds")
        return fan_out.compare(
            using=options["database"],
            size=options["payload_bytes"],
            say=self._say,
            **{name: options[name] for name in chosen},
        )

    def _setbacks(self, options: dict[str, Any]) -> Table:
        return setbacks.compare(
            using=options["database"],
            events=options["events"],
            size=options["payload_bytes"],
            batch=options["batch"],
            delivery=Delivery(options["delivery"]),
            rounds=options["rounds"],
            say=self._say,
        )

    def _latency(self, options: dict[str, Any]) -> Table:
        return wake.compare(
            using=options["database"],
            count=options["count"],
            rounds=options["rounds"],
            say=self._say,
            to_handler=True,
        )

    def _drop(self, options: dict[str, Any]) -> None:
        chosen = {name: options[name] for name in ("rows", "clients", "payload_bytes", "rounds")}
        with self._scratch_database(options["database"]):
            figures = drop.measure(using=options["database"], say=self._say, **chosen)
        if options["format"] == "json":
            self.stdout.write(json.dumps({"options": {"subject": "drop", **chosen}, "results": figures}))
            return
        self.stdout.write(
            "{rows:,} messages of {payload_bytes} bytes in a partition; {clients} clients publish".format(**chosen)
        )
        for name, value in figures.items():
            self.stdout.write(f"{name.replace('_', ' '):36}{value:>14,.1f}")

    @contextmanager
    def _scratch_database(self, using: str) -> Iterator[None]:
        with scratch_database(using):
            with connections[using].cursor() as cursor:
                cursor.execute(files("bench").joinpath("reference.sql").read_text())
            yield

    def _say(self, text: str) -> None:
        if self.stderr.isatty():
            self.stderr.write(text)

    def _draw(self, subject: str, options: dict[str, Any], table: Table) -> None:
        self.stdout.write(HEADINGS[subject].format(**options))
        reference = next(iter(table))
        columns = [name for name in COLUMNS if name in table[reference]]
        self.stdout.write(" " * 16 + "".join(f"{COLUMNS[name][0]:>12}" for name in columns) + f"   {reference} is")
        for contestant, row in table.items():
            figures = "".join(f"{row[name]:>12{COLUMNS[name][1]}}" for name in columns)
            self.stdout.write(f"{contestant:16}{figures}   {row['times']:.2f} times this")
