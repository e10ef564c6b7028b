"""All maintenance once, with an account of what was done; or a dry run: what would be done, and why the rest stays."""

import datetime as dt
import logging
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.models import Q
from django.utils import timezone

from pubsub.conf import conf
from pubsub.db.errors import is_transient
from pubsub.models import DeadLetter, DedupKey, OperatorEvent
from pubsub.retention import drop
from pubsub.retention.detach import LockHolder, find_lock_holders
from pubsub.retention.plan import Unread

from . import maintenance

logger = logging.getLogger(__name__)

Account = dict[str, Any]


def clean_up(using: str, *, lock_timeout_ms: int = drop.LOCK_TIMEOUT_MS) -> Account:
    """Run every job of maintenance once. One that fails is listed under "failed", and the others run all the same.

    >>> clean_up("default")["failed"]
    {}
    """
    account: Account = {"failed": {}}
    for job in maintenance.JOBS:
        name = job.__name__
        if name == "drop_expired":
            _run(account, "storage", lambda: _storage(drop.drop_expired(using, lock_timeout_ms=lock_timeout_ms)))
        elif name == "watch_groups":
            _run(account, "groups", lambda job=job: [vars(change) for change in job(using)])  # type: ignore[misc]
        else:
            _run(account, name, lambda job=job: job(using))  # type: ignore[misc]
    if account.get("storage", {}).get("blocked"):
        account["in_the_way"] = [_session(each) for each in find_lock_holders(using)]
    return account


def _run(account: Account, name: str, job: Callable[[], Any]) -> None:
    try:
        account[name] = job()
    except Exception as error:
        logger.warning("%s failed: %s", name, error, exc_info=not is_transient(error))
        account["failed"][name] = f"{type(error).__name__}: {error}"


def _storage(dropped: drop.Dropped) -> Account:
    return {
        "dropped": list(dropped.partitions),
        "entries": dropped.entries,
        "bytes": dropped.bytes,
        "missed": dropped.missed,
        "locked_ms": round(dropped.locked_ms, 1),
        "blocked": dropped.blocked,
    }


def dry_run(using: str) -> Account:
    """What `clean_up` would do now. Changes nothing.

    >>> dry_run("default")["storage"]["goes"]
    []
    """
    plan = drop.dry_run(using)
    now = timezone.now()
    return {
        "storage": {
            "goes": plan.names,
            "entries": sum(segment.entries for segment in plan.going),
            "bytes": plan.bytes,
            "loses": [_loss(each) for each in plan.missed],
            "stays": [
                {
                    "partition": segment.name,
                    "entries": segment.entries,
                    "bytes": segment.bytes,
                    "why": plan.why(segment),
                }
                for segment in plan.staying
            ],
            "not_full": _not_full(using),
            "using_the_tables": [_session(each) for each in find_lock_holders(using)],
        },
        "remove_finished_letters": DeadLetter.objects.using(using)
        .filter(
            Q(state__in=["resolved", "discarded"]),
            updated_at__lt=now - dt.timedelta(seconds=conf().dead_letter_retention_s),
        )
        .count(),
        "prune_audit_log": OperatorEvent.objects.using(using)
        .filter(happened_at__lt=now - dt.timedelta(seconds=conf().audit_log_retention_s))
        .count(),
        "forget_expired_keys": DedupKey.objects.using(using).filter(expires_at__lte=now).count(),
    }


def _not_full(using: str) -> Account:
    """What the partition that is being filled holds: nothing in it can go before it is full."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT next_position - coalesce((SELECT max(upper) FROM log_segments), 1) FROM log_sequencer")
        row = cursor.fetchone()
    return {"entries": int(row[0]) if row else 0, "of": conf().segment_rows}


def _loss(unread: Unread) -> Account:
    return {
        "group": unread.group,
        "topic": unread.topic,
        "partition": unread.partition,
        "from_offset": unread.offset,
        "status": unread.status,
    }


def _session(holder: LockHolder) -> Account:
    return {**vars(holder), "since": holder.since.isoformat() if holder.since else None}
