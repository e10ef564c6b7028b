"""What became of one event in each group: what is known of it, and nothing else."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from pubsub.conf import conf
from pubsub.db.sql import load
from pubsub.db.transactions import run_uncompiled
from pubsub.models import DeadLetter, OperatorEvent, Status
from pubsub.subscriptions.filters import compile

DONE, FAILED, WAITING, NEVER = "✔", "✖", "…", "–"
"""Handled; failed; still to come; not to come, or not known."""

RECORDS = 500
"""Rows of the audit log that are looked at for the groups of a topic, the newest first."""

MOVES = ("seek", "force-complete")


@dataclass(frozen=True, kw_only=True)
class GroupDelivery:
    """An event's delivery to a group: a sign, and the same in words."""

    subscription_id: int
    group: str
    letter_id: int | None
    sign: str
    status: str


def deliveries(entry: Any, using: str) -> list[GroupDelivery]:
    """One for each group that subscribes to the topic of an event, a row of outbox_log_v."""
    rows = _rows(entry, using)
    wanted = _wanted(entry, rows, using)
    records = _records(entry, using) if any(row["has_passed"] for row in rows) else []
    found = []
    for row in rows:
        sign, status = _delivery(entry, row, wanted.get(row["id"], True), records)
        found.append(
            GroupDelivery(
                subscription_id=row["id"], group=row["group_id"], letter_id=row["letter_id"], sign=sign, status=status
            )
        )
    return found


def _rows(entry: Any, using: str) -> list[dict[str, Any]]:
    parameters = {
        "topic_id": entry.topic_id,
        "partition_id": entry.partition_id,
        "position": entry.position,
        "c_offset": entry.c_offset,
        "to_group": entry.to_group,
    }
    names, rows = run_uncompiled(using, load("admin/delivery_by_group"), parameters)
    return [dict(zip(names, row, strict=True)) for row in rows]


def _wanted(entry: Any, rows: Sequence[Mapping[str, Any]], using: str) -> dict[int, bool]:
    """Whether the filters of groups, as they are now, want the event, by subscription."""
    filters = {row["id"]: compile(json.loads(row["filter"])).named(f"filter_{row['id']}") for row in rows}
    filters = {number: each for number, each in filters.items() if not each.is_trivial}
    if not filters:
        return {}
    parameters: dict[str, Any] = {"id": entry.message_id}
    for each in filters.values():
        parameters |= each.parameters
    conditions = ", ".join(f"({each.sql})" for each in filters.values())
    _names, found = run_uncompiled(using, load("admin/wanted_by_groups", conditions=conditions), parameters)
    return dict(zip(filters, found[0], strict=True)) if found else {}


def _records(entry: Any, using: str) -> list[OperatorEvent]:
    """What was done to groups on the topic since the event, and where they began; the newest first."""
    began = Q(action__in=("subscribe", "rename"))
    moved = Q(action__in=MOVES, happened_at__gte=entry.created_at)
    return list(OperatorEvent.objects.using(using).filter(began | moved, topic=entry.topic).order_by("-id")[:RECORDS])


def _delivery(entry: Any, row: Mapping[str, Any], is_wanted: bool, records: Sequence[OperatorEvent]) -> tuple[str, str]:
    State = DeadLetter.State
    if row["letter_state"] in (State.DEAD, State.RETRYING, State.PARKED):
        return FAILED, _("failed: %(state)s") % {"state": State(row["letter_state"]).label}
    if row["letter_state"] == State.RESOLVED:
        return DONE, _("handled at a later attempt")
    if row["letter_state"] == State.DISCARDED:
        return NEVER, _("discarded after it failed")
    if row["is_for_others"]:
        return NEVER, _("not for this group")
    if not is_wanted:
        return NEVER, _("left out by the group’s filter")
    if not row["has_passed"]:
        return _not_passed(row)
    return _passed(entry, row["group_id"], records)


def _not_passed(row: Mapping[str, Any]) -> tuple[str, str]:
    offset = {"offset": row["next_offset"]}
    if row["status"] == Status.CANCELLED:
        return NEVER, _("not handled: the group is cancelled")
    if row["status"] == Status.DEAD:
        return NEVER, _("not handled: the group was given up")
    if row["next_offset"] is None:
        return WAITING, _("waiting: no consumer of the group has run yet")
    if row["status"] == Status.PAUSED:
        return WAITING, _("waiting: the group is paused at offset %(offset)s") % offset
    return WAITING, _("waiting: the group is at offset %(offset)s") % offset


def _passed(entry: Any, group: str, records: Sequence[OperatorEvent]) -> tuple[str, str]:
    """The cursor is behind the event. It came there by handling it, unless the audit log says otherwise."""
    for record in records:
        before, after = record.before or {}, record.after or {}
        if record.action == "rename" and after.get("group") == group:
            group = before.get("group", group)
        elif record.group_id != group:
            continue
        elif record.action == "subscribe":
            began = after.get("offset")
            if began is not None and entry.c_offset < began:
                return NEVER, _("before the group’s start, which was offset %(offset)s") % {"offset": began}
            return _handled(entry)
        elif record.action in MOVES:
            here = str(entry.partition_id)
            first, last = (each.get("next_offsets", {}).get(here) for each in (before, after))
            if first is None or last is None:
                continue
            if first <= entry.c_offset < last:
                return NEVER, _("skipped: %(who)s moved the group past it at %(when)s") % {
                    "who": record.actor,
                    "when": date_format(localtime(record.happened_at), "Y-m-d H:i:s"),
                }
            if last <= entry.c_offset < first:
                return _handled(entry)  # it came again
    return NEVER, _("passed: handled, or before the group’s start, which is not recorded")


def _handled(entry: Any) -> tuple[str, str]:
    kept = dt.timedelta(seconds=conf().dead_letter_retention_s)
    if entry.created_at < timezone.now() - kept:
        return NEVER, _("passed: whether it failed is no longer recorded")
    return DONE, _("handled")
