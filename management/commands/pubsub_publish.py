"""Publish JSON lines from standard input."""

import json
import os
import signal
import sys
import threading
from argparse import ArgumentParser
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, DatabaseError, transaction

from pubsub import publish_many
from pubsub.conf import conf
from pubsub.db.errors import sqlstate
from pubsub.errors import BadLine, PubSubError
from pubsub.management.arguments import whole_number
from pubsub.management.databases import DatabaseCommand, check_database
from pubsub.management.json_lines import LineParser, lines
from pubsub.payloads.visible import visible
from pubsub.topics.names import check_name
from pubsub.topics.registry import topic_id

BATCH_BYTES = 16 * 1024 * 1024
"""A batch ends at this size, however few lines it has, so that memory stays bounded."""


class Command(DatabaseCommand):
    help = (
        "Publishes JSON lines from standard input. Each line is an object with what publish() takes, such as "
        '{"payload": {"id": 1}, "type": "order.created", "key": 1}; with --raw each line is a payload. A line that '
        "cannot be published is reported with its number, and the others are published, in their order. Exit code: 0 "
        "if every line was published, 1 if not, 2 if the command was misused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("topic")
        parser.add_argument("--raw", action="store_true", help="each line is a payload, without options")
        parser.add_argument("--type", default="", help="for lines without one")
        parser.add_argument("--key-field", help="where in the payload the key is, such as customer.id")
        parser.add_argument("--host-id", help="for lines without one")
        parser.add_argument("--user-id", help="for lines without one")
        parser.add_argument(
            "--batch-size",
            type=whole_number(1),
            default=1000,
            help="lines published in one transaction (default: 1000); 1 publishes each line as soon as it is read",
        )
        parser.add_argument("--stop-on-error", action="store_true", help="publish nothing after the first bad line")
        parser.add_argument("--dry-run", action="store_true", help="look for bad lines, and publish nothing")
        parser.add_argument("--format", choices=["text", "json"], default="text", help="format of the summary")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="the database with the outbox's tables")

    def handle(self, *args: Any, **options: Any) -> None:
        topic, using, dry_run = options["topic"], options["database"], options["dry_run"]
        check_database(using)
        try:
            # A dry run creates no topic, where publishing would.
            if dry_run and conf().unknown_topic == "create":
                check_name(topic)
            else:
                topic_id(topic, using)
        except PubSubError as error:
            raise CommandError(str(error), returncode=2) from error
        if sys.stdin.isatty():
            self.stderr.write("Reading JSON lines from the terminal. End with Ctrl-D.", self.style.NOTICE)

        parser = LineParser(
            raw=options["raw"],
            key_field=options["key_field"],
            defaults={
                name: options[name] for name in ("type", "host_id", "user_id") if options[name] not in (None, "")
            },
        )
        publisher = LinePublisher(
            topic, using, parser, options["batch_size"], options["stop_on_error"], dry_run, command=self
        )
        failure = None
        try:
            with publisher.finishing_its_batch():
                publisher.run(sys.stdin.buffer)
        except KeyboardInterrupt:
            failure = f"Interrupted: line {publisher.last_line + 1:,} and those after it were not processed."
        except DatabaseError as error:
            failure = f"The database refused line {publisher.last_line + 1:,} or one after it: {error}"
        except PubSubError as error:
            # The events themselves were checked before: the topic is gone, or refuses them.
            failure = f"Line {publisher.last_line + 1:,} and those after it were not published: {error}"
        finally:
            publisher.erase_progress()
        self.say(self.stdout, self.summary(publisher, options))
        if failure:
            self.say(self.stderr, failure)
            sys.exit(128 + publisher.interrupted if publisher.interrupted else 1)
        if publisher.refused:
            sys.exit(1)

    def summary(self, publisher: "LinePublisher", options: dict[str, Any]) -> str:
        published = 0 if publisher.dry_run else publisher.good
        if options["format"] == "json":
            return json.dumps(
                {
                    "topic": publisher.topic,
                    "dry_run": publisher.dry_run,
                    "published": published,
                    "publishable": publisher.good,
                    "refused": publisher.refused,
                    "last_line": publisher.last_line,
                    "interrupted": bool(publisher.interrupted),
                }
            )
        events = f"{publisher.good:,} event{'s' * (publisher.good != 1)}"
        result = f"{events} could be published to" if publisher.dry_run else f"Published {events} to"
        refused = f" Refused {publisher.refused:,}." if publisher.refused else ""
        return (
            f"{result} {publisher.topic}, from {publisher.last_line:,} line{'s' * (publisher.last_line != 1)}.{refused}"
        )

    def say(self, stream: Any, text: str) -> None:
        """Writes to a reader that may have gone, such as `| head`: what is published stays published."""
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            # Otherwise Python would try once more when it exits, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@dataclass
class LinePublisher:
    """Reads lines, publishes batches, and keeps count."""

    topic: str
    using: str
    parser: LineParser
    batch_size: int
    stop_on_error: bool
    dry_run: bool
    command: Command

    good: int = 0
    """Events published, or found publishable in a dry run."""
    refused: int = 0
    last_line: int = 0
    """This line and all before it are done."""
    interrupted: int = 0
    """The signal that asked to stop."""
    is_over: bool = False
    """Nothing more is published, because a line was refused."""
    publishing: bool = False
    batch: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Events by the number of their line."""
    batch_bytes: int = 0

    def run(self, stream: BinaryIO) -> None:
        number = 0
        for number, line in lines(stream, at_most=8 * conf().max_payload_bytes + 64 * 1024):
            try:
                if line is None:
                    raise BadLine('it is longer than PUBSUB["max_payload_bytes"] allows.')
                if not line.isspace():
                    self.batch[number] = self.parser.event(line)
                    self.batch_bytes += len(line)
            except BadLine as error:
                self.refuse(number, error)
                if self.stop_on_error:
                    break
            if len(self.batch) >= self.batch_size or self.batch_bytes >= BATCH_BYTES:
                self.publish(number)
                if self.is_over:
                    return
        self.publish(number)

    def refuse(self, number: int, error: object) -> None:
        self.erase_progress()
        self.command.say(self.command.stderr, visible(f"Line {number}: {error}"))
        self.refused += 1

    def publish(self, number: int) -> None:
        """Publishes the batch, which ends at this line, in one transaction; line by line, if a row is refused."""
        self.publishing = True
        if self.dry_run:
            self.good += len(self.batch)
        elif self.batch:
            try:
                self.publish_together(self.batch)
            except DatabaseError as error:
                if not is_about_a_row(error):
                    raise
                self.publish_one_by_one()
        if not self.is_over:
            self.last_line = number
        self.batch, self.batch_bytes = {}, 0
        self.publishing = False
        if self.interrupted:
            raise KeyboardInterrupt
        if self.command.stderr.isatty():
            self.command.stderr.write(f"\r{self.good:,} events, {self.last_line:,} lines", ending="")

    def publish_together(self, events: dict[int, dict[str, Any]]) -> None:
        with transaction.atomic(using=self.using):
            publish_many(self.topic, list(events.values()), using=self.using)
        self.good += len(events)

    def publish_one_by_one(self) -> None:
        for number, event in self.batch.items():
            try:
                self.publish_together({number: event})
            except DatabaseError as error:
                if not is_about_a_row(error):
                    raise
                (said, *_) = str(error).splitlines()  # the others quote the row
                self.refuse(number, f"the database refused it: {said}")
                self.is_over = self.stop_on_error
            self.last_line = number
            if self.is_over:
                return

    def erase_progress(self) -> None:
        if self.command.stderr.isatty():
            self.command.stderr.write("\r\033[K", ending="")

    def finishing_its_batch(self) -> "Signals":
        return Signals(self)


def is_about_a_row(error: DatabaseError) -> bool:
    """Whether a row was refused: by its type, by a constraint, or by a trigger of the site's."""
    return (sqlstate(error) or "").startswith(("22", "23", "P0"))


class Signals:
    """While a batch is being published a signal waits for it, so that the count is what has been committed."""

    def __init__(self, publisher: LinePublisher) -> None:
        self.publisher = publisher
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self.stop)

    def __exit__(self, *raised: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def stop(self, number: int, frame: Any) -> None:
        self.publisher.interrupted = number
        if not self.publisher.publishing:
            raise KeyboardInterrupt
