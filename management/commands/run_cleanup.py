"""Drop expired segments, and run the rest of the maintenance."""

import json
import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, close_old_connections

from pubsub.management.arguments import whole_number
from pubsub.management.databases import DatabaseCommand, check_database
from pubsub.management.processes import from_a_signal, say
from pubsub.retention.drop import LOCK_TIMEOUT_MS
from pubsub.retention.missed import describe_missed
from pubsub.worker.cleanup import Account, clean_up, dry_run

LABELS = {
    "make_partitions_ahead": "segments made ahead",
    "expire_idle": "idle temporary subscriptions removed",
    "forget_members": "crashed members removed",
    "remove_finished_letters": "finished dead letters removed",
    "prune_audit_log": "old audit log rows removed",
    "remove_old_sink_batches": "old batches of streams removed",
    "forget_expired_keys": "expired dedup keys removed",
}


class Command(DatabaseCommand):
    help = (
        "Drops segments of the log that have expired and that every group has passed, gives up groups without "
        "heartbeats, and prunes finished rows. Consumers do the same beside their work: you only need this if none "
        "runs permanently, or to see what is kept and why. Any number may run at once. Exit code: 0; 1 if, with "
        "--once, something failed; 2 if the command was misused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="run once, as from cron, and exit")
        parser.add_argument(
            "--interval",
            type=whole_number(1),
            default=60,
            metavar="S",
            help="seconds between two runs (default: 60)",
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="change nothing; print what would be dropped and why the rest is kept, and exit",
        )
        parser.add_argument(
            "--lock-timeout-ms",
            type=whole_number(1),
            default=LOCK_TIMEOUT_MS,
            help="how long publishers may be kept waiting while segments are detached; raise it at a quiet time if "
            f"other sessions are always in the way (default: {LOCK_TIMEOUT_MS})",
        )
        parser.add_argument("--format", choices=["text", "json"], default="text")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="the database with the outbox's tables")

    def handle(self, *args: Any, **options: Any) -> None:
        using = options["database"]
        check_database(using, waits=not (options["once"] or options["dry_run"]))
        if options["dry_run"]:
            self._show(dry_run(using), options["format"], self._preview_text)
            return
        stopping = threading.Event()
        if not options["once"]:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: from_a_signal(stopping.set))
            say(self.stderr, f"Cleaning up every {options['interval']} s. Stop with Ctrl-C.")
        while True:
            close_old_connections()
            account = clean_up(using, lock_timeout_ms=options["lock_timeout_ms"])
            self._show(account, options["format"], self._account_text)
            if options["once"]:
                if account["failed"]:
                    raise CommandError("Some of the maintenance failed; see above.")
                return
            if stopping.wait(options["interval"]):
                return

    def _show(self, account: Account, format_: str, as_text: Any) -> None:
        self.stdout.write(json.dumps(account, default=str) if format_ == "json" else "\n".join(as_text(account)))
        self.stdout.flush()

    def _account_text(self, account: Account) -> list[str]:
        lines = []
        if storage := account.get("storage"):
            if storage["dropped"]:
                lines.append(
                    f"dropped {', '.join(storage['dropped'])}: {storage['entries']:,} entries, {storage['bytes']:,} "
                    f"bytes; other sessions waited {storage['locked_ms']} ms"
                )
            for group, missed in storage["missed"].items():
                lines.append(f"{group} missed {describe_missed(missed)}")
        for session in account.get("in_the_way", []):
            lines.append(f"in the way: {self._session_text(session)}")
        for group in account.get("groups", []):
            lines.append(
                f"{group['group']} on {group['topic']}: {group['status']}, {group['misses']} heartbeats missed"
            )
        for name, label in LABELS.items():
            if done := account.get(name):
                lines.append(f"{len(done) if isinstance(done, list) else done} {label}")
        lines += [f"FAILED {name}: {error}" for name, error in account["failed"].items()]
        return lines or ["nothing to do"]

    def _preview_text(self, account: Account) -> list[str]:
        storage = account["storage"]
        lines = []
        if storage["goes"]:
            lines.append(
                f"would drop {', '.join(storage['goes'])}: {storage['entries']:,} entries, {storage['bytes']:,} bytes"
            )
        for each in storage["loses"]:
            lines.append(
                f"{each['group']} on {each['topic']}/{each['partition']} ({each['status'].lower()}) would miss its "
                f"unread events, from offset {each['from_offset']} on"
            )
        for each in storage["stays"]:
            lines.append(f"{each['partition']} stays ({each['entries']:,} entries): {'; '.join(each['why'])}")
        not_full = storage["not_full"]
        if not_full["entries"]:
            lines.append(f"{not_full['entries']:,} entries stay: their segment is not full, or has not been noted yet")
        lines += [f"using the tables now: {self._session_text(each)}" for each in storage["using_the_tables"]]
        for name, label in LABELS.items():
            if account.get(name):
                lines.append(f"{account[name]} {label.replace('removed', 'to remove')}")
        return lines or ["nothing to do"]

    def _session_text(self, session: Account) -> str:
        return (
            f"pid {session['pid']} ({session['application'] or session['user']}, {session['state']} since "
            f"{session['since']}): {session['query']}"
        )
