"""Topics: list, create, configure, resize, remove, or bring in line with the settings."""

import datetime as dt
from argparse import SUPPRESS, ArgumentParser
from typing import Any

from pubsub import control
from pubsub.control.topics import Changes
from pubsub.management.arguments import duration, or_none, size, whole_number
from pubsub.management.operator_command import OperatorCommand
from pubsub.management.status_text import topic_as_data, topic_cells
from pubsub.management.tables import seconds, table, terminal_width
from pubsub.monitoring.status import status
from pubsub.topic_options import OPTIONS, column_of


class Command(OperatorCommand):
    help = (
        "Lists, creates, changes and removes topics. Changes are recorded in the audit log, with who and why. Exit "
        "code: 0 if done, or if there was nothing to change; 1 if it was refused; 2 if the command was misused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        self.add_reading_arguments(actions.add_parser("list", help="every topic, its size, its rate and its options"))
        for action, text in (("create", "create a topic"), ("configure", "change options; omitted ones stay")):
            parts = actions.add_parser(action, help=text)
            parts.add_argument("topic")
            parts.add_argument("--partitions", type=whole_number(1), help="the number of partitions")
            parts.add_argument(
                "--retention", type=duration, help="the minimum time for which events are kept, such as 7d or 36h"
            )
            parts.add_argument(
                "--semantics",
                choices=["PUB_SUB", "QUEUE"],
                help="whether every group gets each event, or the topic has only one group",
            )
            parts.add_argument(
                "--zero-subscribers",
                choices=["keep", "refuse"],
                help="what publishing does while no group is subscribed",
            )
            parts.add_argument(
                "--max-age",
                type=or_none(duration),
                default=SUPPRESS,
                help="a group that falls further behind misses the older events; or none",
            )
            parts.add_argument(
                "--max-bytes",
                type=or_none(size),
                default=SUPPRESS,
                help="a group that holds back more misses the oldest events; or none",
            )
            self.add_changing_arguments(parts)
        parts = actions.add_parser("resize", help="change the number of partitions, keeping the order of keys")
        parts.add_argument("topic")
        parts.add_argument("partitions", type=whole_number(1))
        self.add_changing_arguments(parts)
        parts = actions.add_parser("remove", help="remove a topic; refused if anything would be lost")
        parts.add_argument("topic")
        parts.add_argument("--force", action="store_true", help="remove it even if something would be lost")
        self.add_changing_arguments(parts)
        self.add_changing_arguments(actions.add_parser("sync", help='apply PUBSUB["topics"], as migrate does'))

    def list(self, **options: Any) -> None:
        topics = status(options["database"]).topics
        headings = ["topic", "semantics", "partitions>", "tip>", "kept>", "size>", "events/s>", "retention>"]
        rows = [[*topic_cells(topic), seconds(topic.retention.total_seconds())] for topic in topics]
        self.report(options, [topic_as_data(topic) for topic in topics], table(headings, rows, terminal_width()))

    def create(self, topic: str, **options: Any) -> None:
        given = _given(options)
        with self.changing(options) as who:
            made = control.create_topic(topic, **given, **who)
            data = {"topic": topic, "created": True, **{option: getattr(made, column_of(option)) for option in OPTIONS}}
        self.report(options, data, [f'Created topic "{topic}", with {_many(made.total_partitions, "partition")}.'])

    def configure(self, topic: str, **options: Any) -> None:
        with self.changing(options) as who:
            changes = control.configure_topic(topic, **_given(options), **who)
        self.report(options, {"topic": topic, "changed": _as_data(changes)}, _lines(topic, changes))

    def resize(self, topic: str, partitions: int, **options: Any) -> None:
        with self.changing(options) as who:
            resized = control.resize_topic(topic, partitions, **who)
        text = f'Topic "{topic}" has {_many(partitions, "partition")} already.'
        if resized.changed:
            text = (
                f'Topic "{topic}" has {_many(partitions, "partition")} instead of {resized.before}, from offset '
                f"{resized.offset} on. Each group continues there once it has read everything before it."
            )
        data = {"topic": topic, "before": resized.before, "after": resized.after, "from_offset": resized.offset}
        self.report(options, data, [text])

    def remove(self, topic: str, force: bool, **options: Any) -> None:
        with self.changing(options) as who:
            lost = control.remove_topic(topic, force=force, **who)
        text = f'Removed topic "{topic}".' + (f" Lost: {'; '.join(lost)}." if lost else "")
        self.report(options, {"topic": topic, "removed": True, "lost": lost}, [text])

    def sync(self, **options: Any) -> None:
        with self.changing(options) as who:
            done = control.sync_topics(actor=who["actor"], using=who["using"])
        lines = [line for topic, changes in done.items() for line in _lines(topic, changes)]
        data = {topic: _as_data(changes) for topic, changes in done.items()}
        self.report(options, data, lines or ['All topics match PUBSUB["topics"].'])


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The topic options that were given. For the last two, "none" means None."""
    return {
        option: options[option]
        for option in OPTIONS
        if option in options and (options[option] is not None or option in ("max_age", "max_bytes"))
    }


def _as_data(changes: Changes) -> dict[str, Any]:
    return {option: {"before": before, "after": after} for option, (before, after) in changes.items()}


def _lines(topic: str, changes: Changes) -> list[str]:
    if not changes:
        return [f'Topic "{topic}" is like this already.']
    return [f"{topic}: {option} {_said(before)} → {_said(after)}" for option, (before, after) in changes.items()]


def _said(value: Any) -> str:
    if value is None:
        return "none"
    return seconds(value.total_seconds()) if isinstance(value, dt.timedelta) else str(value)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
