"""All of the housekeeping once, with an account of what was done; or what would be done, and why the rest stays."""

import datetime as dt
import logging
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.models import Q
from django.utils import timezone

from pubsub.conf import conf
from pubsub.consuming.failures import is_transient
from pubsub.models import DeadLetter, DedupKey, OperatorEvent

from . import housekeeping, retention

logger = logging.getLogger("pubsub.cleanup")

Account = dict[str, Any]


def clean(using: str, *, lock_timeout_ms: int = retention.LOCK_TIMEOUT_MS) -> Account:
    """Does everything once. What fails is told under "failed", and keeps nothing else from being done.

    >>> clean("default")["failed"]
    {}
    """
    account: Account = {"failed": {}}
    for job in housekeeping.JOBS:
        name = job.__name__
        if name == "retire":
            _do(account, "storage", lambda: _told(retention.retire(using, lock_timeout_ms=lock_timeout_ms)))
        elif name == "watch_groups":
            _do(account, "groups", lambda job=job: [vars(verdict) for verdict in job(using)])  # type: ignore[misc]
        else:
            _do(account, name, lambda job=job: job(using))  # type: ignore[misc]
    if account.get("storage", {}).get("blocked"):
        account["in_the_way"] = [_session(each) for each in retention.examine(using).sessions]
    return account


def _do(account: Account, name: str, job: Callable[[], Any]) -> None:
    try:
        account[name] = job()
    except Exception as error:
        logger.warning("%s failed: %s", name, error, exc_info=not is_transient(error))
        account["failed"][name] = f"{type(error).__name__}: {error}"


def _told(done: retention.Retired) -> Account:
    return {
        "dropped": list(done.partitions),
        "entries": done.entries,
        "bytes": done.bytes,
        "missed": done.missed,
        "locked_ms": round(done.locked_ms, 1),
        "blocked": done.blocked,
    }


def preview(using: str) -> Account:
    """Says what `clean` would do now. Changes nothing.

    >>> preview("default")["storage"]["goes"]
    []
    """
    outlook = retention.examine(using)
    now = timezone.now()
    going = outlook.going
    return {
        "storage": {
            "goes": [*(segment.name for segment in going), *outlook.messages],
            "entries": sum(segment.entries for segment in going),
            "bytes": sum(segment.bytes for segment in going),
            "loses": [_loser(each) for each in outlook.unread if going and each.position < going[-1].upper],
            "stays": [
                {"partition": segment.name, "entries": segment.entries, "bytes": segment.bytes, "why": segment.why}
                for segment in outlook.segments
                if not segment.goes
            ],
            "not_full": _not_full(using),
            "using_the_tables": [_session(each) for each in outlook.sessions],
        },
        "remove_finished_letters": DeadLetter.objects.using(using)
        .filter(
            Q(state__in=["resolved", "discarded"]),
            updated_at__lt=now - dt.timedelta(seconds=conf().dead_letter_retention_s),
        )
        .count(),
        "remove_old_events": OperatorEvent.objects.using(using)
        .filter(happened_at__lt=now - dt.timedelta(seconds=conf().journal_retention_s))
        .count(),
        "forget_expired_keys": DedupKey.objects.using(using).filter(expires_at__lte=now).count(),
    }


def _not_full(using: str) -> Account:
    """The storage partition that is being filled: nothing in it can go before it is full."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT next_position - 1 - coalesce((SELECT max(upper) FROM log_segments), 1) + 1 FROM log_sequencer"
        )
        row = cursor.fetchone()
    return {"entries": int(row[0]) if row else 0, "of": conf().partition_rows}


def _loser(place: retention.Unread) -> Account:
    return {
        "group": place.group,
        "topic": place.topic,
        "partition": place.partition,
        "from_offset": place.offset,
        "status": place.status,
    }


def _session(session: retention.Session) -> Account:
    return {
        "pid": session.pid,
        "user": session.user,
        "application": session.application,
        "state": session.state,
        "since": session.since.isoformat() if session.since else None,
        "query": session.query,
    }
