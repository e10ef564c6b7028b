"""Workers: which there are, what each has in hand and since when."""

from argparse import ArgumentParser
from typing import Any

from pubsub.management.operator_command import OperatorCommand
from pubsub.management.tables import seconds, table, terminal_width
from pubsub.monitoring.workers import WorkerStatus, read_workers


class Command(OperatorCommand):
    help = "Lists the processes that call handlers, and what each has in hand."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="ACTION")
        parts = actions.add_parser("list", help="every worker, alive or silent, and what it has in hand (the default)")
        self.add_reading_arguments(parts)
        self.add_reading_arguments(parser)
        parser.set_defaults(action="list")

    def list(self, **options: Any) -> None:
        workers = read_workers(options["database"])
        headings = ["worker", "state", "since>", "groups", "in hand", "for>"]
        rows = [row for worker in workers for row in _rows(worker)]
        lines = table(headings, rows, terminal_width()) if rows else ["No worker is running."]
        self.report(options, [worker.as_data() for worker in workers], lines)


def _rows(worker: WorkerStatus) -> list[list[str]]:
    """A row for the worker, and one for each call beyond the first."""
    calls = [
        (f"{call.group} on {call.topic}/{call.partition}, offset {call.offset:,}", seconds(call.seconds))
        for call in worker.calls
    ] or [("–", "–")]
    (what, long), *others = calls
    groups = ", ".join(dict.fromkeys(group for _, group in worker.groups))
    first = [worker.worker_id, worker.state, seconds(worker.heard_s), groups or "–", what, long]
    return [first, *(["", "", "", "", what, long] for what, long in others)]
