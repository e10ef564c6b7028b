"""The audit log: who did what to topics and groups, when, why, and how it was before and after."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, transaction

from pubsub.payloads.visible import visible

from .sql import load

logger = logging.getLogger(__name__)


def record(
    action: str,
    *,
    actor: str,
    using: str,
    topic: str = "",
    group: str = "",
    reason: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    beside: Any = None,
) -> None:
    """Writes a row in the open transaction: what is recorded and what was done stand or fall together.

    ``actor`` is a user's name, or the part of the system that decided. Topic and group are recorded by name, so that
    the row still says something when they are gone. ``beside`` is a connection that is not the one that Django keeps.

    >>> record("pause", actor="olivia", using="default", topic="default", group="doctest", reason="the mail is down")
    """
    with (beside or connections[using]).cursor() as cursor:
        cursor.execute(
            load("db/record"),
            {
                "actor": actor,
                "action": action,
                "topic": topic,
                "group_id": group,
                "reason": reason,
                "before": _as_json(before),
                "after": _as_json(after),
            },
        )

    def log() -> None:
        logger.info(
            "%s by %s: %s%s",
            action,
            visible(actor),
            " ← ".join(filter(None, (group, topic))) or "-",
            visible(f" ({reason})") if reason else "",
            extra={"action": action, "actor": actor, "topic": topic, "group": group},
        )

    if beside:
        log()
    else:
        transaction.on_commit(log, using=using, robust=True)  # not what a dry run undoes


def _as_json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(dict(value), cls=DjangoJSONEncoder)
