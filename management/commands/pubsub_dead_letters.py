"""List what groups could not handle, and replay or discard it."""

import json
import sys
import uuid
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS

from pubsub.dead_letters import actions
from pubsub.dead_letters.actions import ACTIONS, Letter, topic_names
from pubsub.dead_letters.describe import describe, full_description
from pubsub.dead_letters.filter import LetterFilter
from pubsub.errors import LettersInUse, PubSubError, UnknownGroup
from pubsub.management.arguments import LARGEST_ID, check_texts, moment, whole_number
from pubsub.management.databases import DatabaseCommand, check_database
from pubsub.management.exits import IN_USE, MISUSED, REFUSED
from pubsub.management.operator_command import system_user
from pubsub.models import DeadLetter, Subscription
from pubsub.payloads.visible import visible
from pubsub.suggest import hint

STATES = [state.value for state in DeadLetter.State]


def identifier(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ArgumentTypeError(f"expected a UUID, got {text!r}") from None


def check_group(group: str | None, using: str) -> None:
    """A typo must not read as "all is well". A group that is gone may have left dead letters."""
    known = sorted(set(Subscription.objects.using(using).values_list("group_id", flat=True))) if group else []
    if group and group not in known and not DeadLetter.objects.using(using).filter(group_id=group).exists():
        raise UnknownGroup(f'No group "{group}" is subscribed to any topic, or has dead letters. {hint(group, known)}')


class Command(DatabaseCommand):
    help = (
        "Lists dead letters, shows one, replays or discards them. Replay and discard include the rest of each "
        "publisher's transaction, as far as it went to the same partition. Exit code: 0 if done, 1 if there was "
        "nothing to do, 2 if the command was misused, 3 if the database does not answer, 4 if a worker was trying them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="list | show | replay | discard")
        listed = actions.add_parser("list", help="the newest that match, without their payloads")
        self.add_filters(listed)
        listed.add_argument("--state", choices=STATES, help="only in this state")
        listed.add_argument("--limit", type=whole_number(1), default=50, help="at most this many (default: 50)")
        listed.add_argument("--before", type=whole_number(1, LARGEST_ID), help="only ids below this one: the next page")
        shown = actions.add_parser("show", help="one in full, with its payload")
        shown.add_argument("id", type=whole_number(1, LARGEST_ID))
        shown.add_argument("--reveal", action="store_true", help="include what PUBSUB redacts")
        self.add_common(shown)
        for action, what in (
            ("replay", "tries them again, now, also those that wait for a later attempt"),
            ("discard", "gives them up"),
        ):
            acting = actions.add_parser(action, help=f"{what}, with the rest of their transactions")
            acting.add_argument("id", nargs="*", type=whole_number(1, LARGEST_ID))
            self.add_filters(acting)
            acting.add_argument("--state", choices=ACTIONS[action].states, help="only in this state")
            acting.add_argument("--all", action="store_true", help="all of them")
            acting.add_argument("--reason", default="", help="why, for the audit log")
            acting.add_argument(
                "--actor", default=system_user(), help="who, for the audit log (default: the system's user)"
            )
            acting.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")

    def add_filters(self, parser: ArgumentParser) -> None:
        parser.add_argument("--transaction", type=identifier, help="of this publisher's transaction")
        parser.add_argument("--group", help="of this consumer group")
        parser.add_argument("--topic", help="of this topic")
        parser.add_argument("--type", help="of this type")
        parser.add_argument("--exception", help="with this exception, such as smtplib.SMTPServerDisconnected")
        parser.add_argument("--key", help="with this key")
        parser.add_argument("--host", help="with this host_id")
        parser.add_argument(
            "--since", type=moment, help="failed first at this time or later: 2030-01-31T12:00, 24h, 1d12h"
        )
        parser.add_argument("--until", type=moment, help="failed first before this time")
        self.add_common(parser)

    def add_common(self, parser: ArgumentParser) -> None:
        parser.add_argument("--format", choices=["text", "json"], default="text")
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="the database with the outbox's tables")

    def handle(self, *args: Any, **options: Any) -> None:
        check_texts(options)
        using, action = options["database"], options["action"]
        check_database(using)
        try:
            check_group(options.get("group"), using)
            if action == "list":
                self.list_letters(using, options)
            elif action == "show":
                self.show_letter(using, options)
            else:
                self.apply(using, options)
        except PubSubError as error:
            returncode = IN_USE if isinstance(error, LettersInUse) else MISUSED
            raise CommandError(str(error), returncode=returncode) from error

    def letter_filter(self, options: dict[str, Any]) -> LetterFilter:
        names = ("transaction", "group", "topic", "type", "exception", "key", "host", "state", "since", "until")
        given = {name: options[name] for name in names if options.get(name) is not None}
        if isinstance(options.get("id"), list) and options["id"]:
            given["ids"] = tuple(options["id"])
        return LetterFilter(**given)

    def list_letters(self, using: str, options: dict[str, Any]) -> None:
        letter_filter = self.letter_filter(options)
        letter_filter.parameters(using)  # a topic that does not exist is an error, not an empty list
        letters = letter_filter.among(DeadLetter.objects.using(using)).select_related("topic").order_by("-pk")
        if options["before"]:
            letters = letters.filter(pk__lt=options["before"])
        found = [describe(letter) for letter in letters.defer(*LARGE)[: options["limit"]]]
        if options["format"] == "json":
            self.stdout.write(json.dumps(found))
            return
        for it in found:
            self.stdout.write(
                visible(
                    f"{it['id']:>8}  {it['state']:<9}  {it['group']}  {it['topic']}:{it['offset']}  "
                    f"{it['type'] or '–'}  {it['exception'].rpartition('.')[2]}  attempts {it['attempts']}  "
                    f"{it['failed_first']:.19}"
                )
            )
        if not found:
            self.stderr.write("No dead letters match.")
        elif len(found) == options["limit"]:
            self.stderr.write(f"There may be more: add --before {found[-1]['id']}.")

    def show_letter(self, using: str, options: dict[str, Any]) -> None:
        letter = DeadLetter.objects.using(using).select_related("topic").defer(*LARGE).filter(pk=options["id"]).first()
        if letter is None:
            raise CommandError(f"There is no dead letter {options['id']}.", returncode=REFUSED)
        told = full_description(letter, using=using, reveal=options["reveal"])
        if options["format"] == "json":
            self.stdout.write(told.as_json())
        else:
            self.stdout.write(told.as_text())

    def apply(self, using: str, options: dict[str, Any]) -> None:
        action, letter_filter = ACTIONS[options["action"]], self.letter_filter(options)
        if letter_filter.is_everything and not options["all"]:
            raise CommandError(
                f"Say which ones to {action.name}: ids, --transaction, filters such as --group and --type, or --all.",
                returncode=MISUSED,
            )
        if options["dry_run"]:
            self.dry_run(action, letter_filter, using, options)
            return
        events, transactions = 0, 0
        told: list[Letter] = []
        ids: set[int] = set()
        batches = actions.apply_in_batches(
            action, letter_filter, using=using, actor=options["actor"], reason=options["reason"]
        )
        for changed in batches:
            events += len(changed)
            transactions += len({(it.group, it.topic_id, it.partition, it.transaction_id) for it in changed})
            if letter_filter.ids:
                ids.update(it.id for it in changed)
            told += changed[: ROWS_TOLD - len(told)]
            if self.stderr.isatty():
                self.stderr.write(f"\r{events:,} events", ending="")
        if self.stderr.isatty():
            self.stderr.write("\r\033[K", ending="")
        self.report(action.name, events, transactions, told, ids, using, options)

    def dry_run(self, action: actions.Action, letter_filter: LetterFilter, using: str, options: dict[str, Any]) -> None:
        counts = actions.count(action, letter_filter, using=using)
        told = actions.preview(action, letter_filter, using=using, shown=ROWS_TOLD)
        events, transactions = sum(it.events for it in counts), sum(it.transactions for it in counts)
        ids = {it.id for it in actions.preview(action, letter_filter, using=using)} if letter_filter.ids else set()
        self.report(action.name, events, transactions, told, ids, using, options)

    def report(
        self,
        action: str,
        events: int,
        transactions: int,
        told: list[Letter],
        changed: set[int],
        using: str,
        options: dict[str, Any],
    ) -> None:
        names = topic_names({it.topic_id for it in told}, using=using)
        rows = [
            {"id": it.id, "group": it.group, "topic": names[it.topic_id], "offset": it.offset, "was": it.state,
             "transaction": str(it.transaction_id)}
            for it in told
        ]  # fmt: skip
        rest = set(options["id"]) - changed
        states = dict(DeadLetter.objects.using(using).filter(pk__in=rest).values_list("pk", "state"))
        unchanged = [{"id": it, "state": states.get(it)} for it in sorted(rest)]
        if options["format"] == "json":
            summary = {
                "action": action,
                "dry_run": options["dry_run"],
                "events": events,
                "transactions": transactions,
                "letters": rows,
                "unchanged": unchanged,
            }
            self.stdout.write(json.dumps(summary))
        else:
            for it in rows:
                row = f"{it['id']:>8}  {it['group']}  {it['topic']}:{it['offset']}  was {it['was']}"
                self.stdout.write(visible(row))
            if events > len(rows):
                self.stdout.write(f"          and {events - len(rows):,} more")
            for one in unchanged:
                self.stdout.write(f"{one['id']:>8}  not changed: {one['state'] or 'there is no such dead letter'}")
            would = "would be " if options["dry_run"] else ""
            done = {"replay": "replayed", "discard": "discarded"}[action]
            self.stdout.write(
                f"{events:,} event{'s' * (events != 1)} of {transactions:,} transaction{'s' * (transactions != 1)} "
                f"{would}{done}."
            )
        if not events:
            sys.exit(REFUSED)


LARGE = ("payload", "metadata", "original_payload", "traceback")
ROWS_TOLD = 100
"""Letters that are listed one by one; the others are counted."""
