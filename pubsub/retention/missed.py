"""Unread events that groups miss when segments are dropped: noted on the subscription, in the audit log, and logged."""

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pubsub.db.audit import record
from pubsub.db.sql import load

from .plan import Plan, Unread

logger = logging.getLogger(__name__)

ACTOR = "retention"

Missed = dict[str, list[int]]
"""The first and the last offset that a group missed, by partition."""


def note_missed(cursor: Any, using: str, plan: Plan, before: Mapping[str, Missed]) -> dict[str, Missed]:
    """Record what groups miss by a plan, in the open transaction. Returns it by "group on topic".

    `before` is what groups have already missed in this run: both together are one loss.
    """
    lowers = [segment.lower for segment in plan.going]
    cursor.execute(load("retention/last_offsets"), {"lowers": lowers})
    last = {(topic_id, partition): offset for topic_id, partition, offset in cursor.fetchall()}
    by_group = defaultdict(list)
    for each in plan.missed:
        by_group[each.topic_id, each.group].append(each)
    noted = {}
    for unread in by_group.values():
        name = f"{unread[0].group} on {unread[0].topic}"
        missed = {str(each.partition): [each.offset, last[each.topic_id, each.partition]] for each in unread}
        whole = _joined(before.get(name, {}), missed)
        _note(cursor, using, unread[0], missed, whole)
        noted[name] = whole
    return noted


def _joined(earlier: Missed, later: Missed) -> Missed:
    return earlier | {partition: [earlier.get(partition, missed)[0], missed[1]] for partition, missed in later.items()}


def _note(cursor: Any, using: str, loser: Unread, missed: Missed, whole: Missed) -> None:
    reason = (
        "it is dead, and its unread events have expired"
        if loser.status == "DEAD"
        else "it was further behind than max_age or max_bytes of its topic allows"
    )
    cursor.execute(
        load("retention/note_missed"),
        {
            "topic_id": loser.topic_id,
            "group_id": loser.group,
            "missed": json.dumps(whole),
            "reason": f"missed events: {reason}",
        },
    )
    record(
        "lost", actor=ACTOR, using=using, topic=loser.topic, group=loser.group, reason=reason, after={"missed": missed}
    )
    logger.error(
        "group %s missed events of topic %s: %s; %s",
        loser.group,
        loser.topic,
        describe_missed(missed),
        reason,
        extra={"group": loser.group, "topic": loser.topic, "missed": missed},
    )


def describe_missed(missed: Missed) -> str:
    """Ranges of offsets as text.

    >>> describe_missed({"0": [5, 17], "3": [6, 6]})
    'offsets 5 to 17 in partition 0, offset 6 in partition 3'
    """
    return ", ".join(_describe_range(partition, *missed[partition]) for partition in _in_order(missed))


def _describe_range(partition: str, first: int, last: int) -> str:
    return f"{f'offset {first}' if first == last else f'offsets {first} to {last}'} in partition {partition}"


def _in_order(partitions: Iterable[str]) -> list[str]:
    return sorted(partitions, key=int)
