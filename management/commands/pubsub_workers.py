"""Workers: which there are, what each has in hand and since when; and stopping one."""

from argparse import ArgumentParser
from typing import Any

from pubsub import control
from pubsub.management.operator_command import OperatorCommand
from pubsub.management.tables import seconds, table, terminal_width
from pubsub.monitoring.workers import WorkerStatus, read_workers


class Command(OperatorCommand):
    help = "Lists the processes that call handlers, and what each has in hand; stops one of them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="ACTION")
        parts = actions.add_parser("list", help="every worker, alive or silent, and what it has in hand (the default)")
        self.add_reading_arguments(parts)
        parts = actions.add_parser("stop", help="let a worker finish its batches, and then end, as SIGTERM does")
        parts.add_argument("worker_id", metavar="WORKER")
        parts.add_argument(
            "--now",
            action="store_true",
            help="end the database sessions of the calls that it has in hand, too: for one that hangs",
        )
        self.add_changing_arguments(parts)
        self.add_reading_arguments(parser)
        parser.set_defaults(action="list")

    def list(self, **options: Any) -> None:
        workers = read_workers(options["database"])
        headings = ["worker", "state", "since>", "groups", "in hand", "for>"]
        rows = [row for worker in workers for row in _rows(worker)]
        lines = table(headings, rows, terminal_width()) if rows else ["No worker is running."]
        self.report(options, [worker.as_data() for worker in workers], lines)

    def stop(self, worker_id: str, now: bool, **options: Any) -> None:
        using = options["database"]
        if options["dry_run"]:
            done = control.preview_stop(worker_id, now=now, using=using)
        else:
            who = {"actor": options["actor"], "reason": options["reason"], "using": using}
            done = control.stop_worker(worker_id, now=now, **who)
        data = {"worker_id": worker_id, "now": now, "sessions": done.sessions, "leases": done.leases}
        data |= {"calls": [vars(call) for call in done.worker.calls]}
        self.report(options, data, _about(done, options["dry_run"]))


def _about(stop: control.WorkerStop, is_dry: bool) -> list[str]:
    lines = [
        f"{call.group} on {call.topic}/{call.partition}: offset {call.offset:,} in hand for {seconds(call.seconds)}"
        for call in stop.worker.calls
    ]
    lines.append(f"Worker {stop.worker.worker_id} {'would be' if is_dry else 'was'} asked to stop.")
    if stop.now:
        ended = ", ".join(map(str, stop.sessions)) or "none"
        lines.append(
            f"Database sessions {'that would end' if is_dry else 'ended'}: {ended}. The process can commit nothing "
            f"there. If it hangs, it ends when its handler comes back, or when you kill it: pid {stop.worker.pid} on "
            f"{stop.worker.host}."
        )
    elif stop.worker.calls:
        lines.append("It ends when these calls have come back; --now ends their database sessions.")
    return lines


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
