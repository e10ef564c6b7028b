"""Consumer groups: list, create, pause, resume, cancel, move, rename and remove them, and list their members."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError

from pubsub import control
from pubsub.management.arguments import LARGEST_ID, duration, start, steps, whole_number
from pubsub.management.exits import MISUSED
from pubsub.management.operator_command import OperatorCommand
from pubsub.management.status_text import group_as_data
from pubsub.management.tables import seconds, table, terminal_width
from pubsub.models import Member
from pubsub.monitoring.status import GroupStatus, SystemStatus, status
from pubsub.subscriptions.declare import registry
from pubsub.subscriptions.register import register_subscription
from pubsub.topics.registry import unknown_topic

TEXTS = {
    "pause": "stop it after its current batches; it keeps its cursors",
    "resume": "let a paused or dead group continue from its cursors",
    "cancel": "end its subscription for good: it no longer holds anything back",
}


class Command(OperatorCommand):
    help = (
        "Lists consumer groups and changes their state. Changes are recorded in the audit log, with who and why. Exit "
        "code: 0 if done, or if there was nothing to change; 1 if it was refused; 2 if the command was misused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        parts = actions.add_parser("list", help="every group: its state, its members and its lag")
        parts.add_argument("--topic", help="only groups of this topic")
        self.add_reading_arguments(parts)
        parts = actions.add_parser("members", help="the processes that handle a group's events")
        self._add_group(parts)
        self.add_reading_arguments(parts)
        parts = actions.add_parser("create", help="subscribe it as its handlers are declared, before any consumer runs")
        self._add_group(parts)
        self.add_changing_arguments(parts)
        for action, text in TEXTS.items():
            parts = actions.add_parser(action, help=text)
            self._add_group(parts)
            self.add_changing_arguments(parts)
        parts = actions.add_parser("seek", help="move its cursors; --dry-run shows how far behind it would be")
        self._add_group(parts)
        where = parts.add_mutually_exclusive_group(required=True)
        where.add_argument(
            "--to",
            type=start,
            help="earliest, latest, an offset, a time such as 2030-01-31T12:00, or how long ago, such as 2h",
        )
        where.add_argument("--by", type=steps, help="this many events in each partition forward (+100) or back (-100)")
        parts.add_argument(
            "--partition", type=whole_number(0), action="append", help="only this one; may be repeated (default: all)"
        )
        self._add_force(parts, "wait for workers' transactions and end leases, instead of refusing")
        self.add_changing_arguments(parts)
        parts = actions.add_parser("force-complete", help="skip old unread events")
        self._add_group(parts)
        parts.add_argument("--older-than", type=duration, required=True, help="such as 3d or 12h")
        self._add_force(parts, "wait for workers' transactions and end leases, instead of refusing")
        self.add_changing_arguments(parts)
        parts = actions.add_parser("skip", help="pass one event without handling it: it becomes a dead letter")
        self._add_group(parts)
        parts.add_argument("--partition", type=whole_number(0), required=True, help="the event's partition")
        parts.add_argument("--offset", type=whole_number(1, LARGEST_ID), required=True, help="the event's offset")
        self._add_force(parts, "end the database sessions of workers that have it in hand, instead of refusing")
        self.add_changing_arguments(parts)
        parts = actions.add_parser("rename", help="give it another name, under which it continues where it was")
        self._add_group(parts)
        parts.add_argument("name", help="the new name")
        self.add_changing_arguments(parts)
        parts = actions.add_parser("remove", help="remove it; refused if anything would be lost")
        self._add_group(parts)
        self._add_force(parts, "remove it even if it is active or has unread events, and discard its dead letters")
        self.add_changing_arguments(parts)

    def _add_group(self, parser: ArgumentParser) -> None:
        parser.add_argument("group")
        parser.add_argument("--topic", help="only on this topic (default: all topics it reads)")

    def _add_force(self, parser: ArgumentParser, text: str) -> None:
        parser.add_argument("--force", action="store_true", help=text)
        parser.add_argument("--wait", type=whole_number(1), default=30, help="longest wait, in seconds (default: 30)")

    def list(self, topic: str | None = None, **options: Any) -> None:
        now = status(options["database"])
        if topic and topic not in (known := [found.name for found in now.topics]):
            raise unknown_topic(topic, known)
        groups = [group for group in now.groups if topic in (None, group.topic)]
        headings = ["group", "topic", "status", "members>", "heartbeat>", "lag>", "behind>", "dead>", "retrying>"]
        lines = table(headings, [row(group, now) for group in groups], terminal_width())
        self.report(
            options, [group_as_data(group) for group in groups], lines if groups else ["No group is subscribed."]
        )

    def members(self, group: str, topic: str | None = None, **options: Any) -> None:
        using = options["database"]
        chosen = control.subscriptions_of(group, topic=topic, using=using)
        found = [
            (subscription.topic.name, member)
            for subscription in chosen
            for member in Member.objects.using(using)
            .filter(topic_id=subscription.topic_id, group_id=group)
            .order_by("-last_heartbeat_at")
        ]
        now = status(using).taken_at
        rows = [
            [
                name,
                member.worker_id,
                member.host,
                str(member.pid or "–"),
                seconds((now - member.joined_at).total_seconds()),
                seconds((now - member.last_heartbeat_at).total_seconds()),
            ]
            for name, member in found
        ]
        headings = ["topic", "worker", "machine", "pid>", "joined>", "heartbeat>"]
        lines = table(headings, rows, terminal_width()) if rows else [f'Group "{group}" has no members.']
        self.report(
            options,
            [
                {
                    "topic": name,
                    "worker_id": member.worker_id,
                    "host": member.host,
                    "pid": member.pid,
                    "joined_at": member.joined_at,
                    "last_heartbeat_at": member.last_heartbeat_at,
                }
                for name, member in found
            ],
            lines,
        )

    def create(self, group: str, topic: str | None = None, **options: Any) -> None:
        declarations = registry.select([topic] if topic else [], [group])
        with self.changing(options) as who:
            made = [new for declared in declarations for new in register_subscription(declared, **who)]
        lines = [f"{new}." for new in made] or [f'Group "{group}" is subscribed already, as declared.']
        self.report(options, [vars(new) for new in made], lines)

    def pause(self, **options: Any) -> None:
        self._change_status(control.pause, **options)

    def resume(self, **options: Any) -> None:
        self._change_status(control.resume, **options)

    def cancel(self, **options: Any) -> None:
        self._change_status(control.cancel, **options)

    def _change_status(self, change: Any, group: str, topic: str | None = None, **options: Any) -> None:
        with self.changing(options) as who:
            chosen = control.subscriptions_of(group, topic=topic, using=who["using"])
            states = [change(subscription.topic.name, group, **who) for subscription in chosen]
        self.report(
            options,
            [{**vars(state), "changed": state.changed} for state in states],
            [
                f'Group "{group}" on topic "{state.topic}": '
                + (f"{state.before} → {state.after}" if state.changed else f"{state.after} already")
                for state in states
            ],
        )

    def seek(self, group: str, topic: str | None = None, **options: Any) -> None:
        topic = self._one_topic(group, topic, options)
        where = {"to": options["to"], "by": options["by"], "partitions": options["partition"]}
        if options["dry_run"]:
            moves = control.preview_seek(topic, group, using=options["database"], **where)
        else:
            with self.changing(options) as who:
                moves = control.seek(topic, group, force=options["force"], wait_s=options["wait"], **where, **who)
        self._report_moves(group, topic, moves, options)

    def force_complete(self, group: str, topic: str | None = None, **options: Any) -> None:
        topic = self._one_topic(group, topic, options)
        older_than = options["older_than"]
        if options["dry_run"]:
            moves = control.preview_force_complete(topic, group, older_than=older_than, using=options["database"])
        else:
            with self.changing(options) as who:
                moves = control.force_complete(
                    topic, group, older_than=older_than, force=options["force"], wait_s=options["wait"], **who
                )
        self._report_moves(group, topic, moves, options)

    def skip(self, group: str, topic: str | None = None, **options: Any) -> None:
        topic = self._one_topic(group, topic, options)
        event = {"partition": options["partition"], "offset": options["offset"]}
        if options["dry_run"]:
            done = control.preview_skip(topic, group, using=options["database"], **event)
        else:
            who = {"actor": options["actor"], "reason": options["reason"], "using": options["database"]}
            done = control.skip_event(topic, group, force=options["force"], wait_s=options["wait"], **event, **who)
        lines = [
            f"Worker {call.worker_id} has been handling offset {call.offset:,} for {seconds(call.seconds)}: "
            f"its database session {call.session_pid or '–'} {'would end' if options['dry_run'] else 'was ended'}."
            for call in done.calls
        ]
        if options["dry_run"]:
            lines.append(f"{done.before:,} events have to be handled before offset {done.offset:,}.")
        else:
            lines.append(
                f'Group "{group}" has passed offset {done.offset:,} of topic "{topic}": {done.letters:,} '
                f"{'event is a dead letter' if done.letters == 1 else 'events are dead letters'} now."
            )
        self.report(options, {**vars(done), "calls": [vars(call) for call in done.calls]}, lines)

    def rename(self, group: str, name: str, topic: str | None = None, **options: Any) -> None:
        with self.changing(options) as who:
            chosen = control.subscriptions_of(group, topic=topic, using=who["using"])
            renamed = [control.rename_group(subscription.topic.name, group, name, **who) for subscription in chosen]
        self.report(
            options,
            [vars(each) for each in renamed],
            [f'Group "{group}" on topic "{each.topic}" is now "{each.after}".' for each in renamed],
        )

    def remove(self, group: str, topic: str | None = None, **options: Any) -> None:
        topic = self._one_topic(group, topic, options)
        with self.changing(options) as who:
            before = control.remove_group(topic, group, force=options["force"], wait_s=options["wait"], **who)
        lost = f" It had {before['lag']:,} unread events." if before["lag"] else ""
        letters = f" Discarded {before['discarded_letters']:,} dead letters." if before["discarded_letters"] else ""
        self.report(
            options,
            {"group": group, "topic": topic, "removed": True, **before},
            [f'Removed group "{group}" from topic "{topic}".{lost}{letters}'],
        )

    def _one_topic(self, group: str, topic: str | None, options: dict[str, Any]) -> str:
        chosen = control.subscriptions_of(group, topic=topic, using=options["database"])
        names = [subscription.topic.name for subscription in chosen]
        if len(names) > 1:
            raise CommandError(
                f'Group "{group}" reads {", ".join(names)}: choose one with --topic.', returncode=MISUSED
            )
        return names[0]

    def _report_moves(
        self, group: str, topic: str, moves: Sequence[control.CursorMove], options: dict[str, Any]
    ) -> None:
        before, after = sum(move.lag_before for move in moves), sum(move.lag_after for move in moves)
        headings = ["partition>", "from offset>", "to offset>", "lag now>" if options["dry_run"] else "lag was>"]
        headings += ["lag then>" if options["dry_run"] else "lag is>", "in use by"]
        rows = [
            [
                str(move.partition),
                f"{move.offset_before:,}",
                f"{move.offset_after:,}",
                f"{move.lag_before:,}",
                f"{move.lag_after:,}",
                move.in_use,
            ]
            for move in moves
        ]
        lines = [
            *table(headings, rows, terminal_width()),
            f'Group "{group}" on topic "{topic}": {before:,} events behind → {after:,}.',
        ]
        self.report(
            options,
            {
                "group": group,
                "topic": topic,
                "lag_before": before,
                "lag_after": after,
                "partitions": [vars(move) for move in moves],
            },
            lines if moves else [f'Group "{group}" on topic "{topic}": there was nothing to move.'],
        )


def row(group: GroupStatus, now: SystemStatus) -> list[str]:
    return [
        group.group,
        group.topic,
        group.status,
        str(group.members) + (f" (+{group.silent} silent)" if group.silent else ""),
        seconds(now.seconds_since(group.heard_at)) if group.heard_at else "–",
        f"{group.lag:,}",
        seconds(group.behind_s),
        f"{group.dead:,}{'+' * group.letters_bounded}",
        f"{group.retrying:,}",
    ]
