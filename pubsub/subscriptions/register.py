"""Registering what the code declares: each subscription gets its row, and a cursor in each partition."""

import datetime as dt
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import connections

from pubsub.db.audit import record
from pubsub.db.locks import lock_sequencer
from pubsub.db.sql import load
from pubsub.db.transactions import read_committed
from pubsub.delivery import Start
from pubsub.errors import InvalidSubscription, UnknownTopic
from pubsub.topics.names import expand, is_pattern
from pubsub.topics.registry import topic_id

from .declare import Declaration

logger = logging.getLogger(__name__)


def of_topics(declarations: Iterable[Declaration], using: str) -> list[Declaration]:
    """One declaration for each topic that exists now. A name goes before a pattern of the same group."""
    found: dict[tuple[str, str], Declaration] = {}
    for declared in sorted(declarations, key=lambda declared: is_pattern(declared.topic)):
        if is_pattern(declared.topic):
            for name in expand(declared.topic, using=using):
                found.setdefault((name, declared.group), replace(declared, topic=name, pattern=declared.topic))
        else:
            found[declared.key] = declared
    return list(found.values())


@dataclass(frozen=True, kw_only=True)
class NewGroup:
    """A group that has just been registered on a topic, and where it begins."""

    topic: str
    group: str
    offset: int
    older: int
    """How many events are in the log before that."""

    def __str__(self) -> str:
        begins = f"group {self.group} begins on topic {self.topic} at offset {self.offset}"
        if not self.older:
            return begins
        return (
            f"{begins}, behind {self.older:,} older event{'' if self.older == 1 else 's'}; "
            f"`pubsub_group seek {self.group} --topic {self.topic} --to earliest` goes back to them"
        )


def register_subscription(
    declared: Declaration, *, using: str, actor: str = "consumer", reason: str = ""
) -> list[NewGroup]:
    """Gives a declared subscription its row, and a cursor in each partition. Safe to repeat. Returns what was new.

    The row says how the code handles events; whether it does, and from where on, is up to operators.
    """
    found = (_register(declaration, using, actor, reason) for declaration in of_topics([declared], using))
    return [new for new in found if new]


def _register(declared: Declaration, using: str, actor: str, reason: str) -> NewGroup | None:
    try:
        number = topic_id(declared.topic, using)
    except UnknownTopic as error:
        text = f'{error} The topic is wanted by {declared.handler_name}, in group "{declared.group}".'
        raise UnknownTopic(text, name=error.name, known=error.known) from error
    parameters: dict[str, Any] = {
        "topic_id": number,
        "group_id": declared.group,
        "where": declared.filter.text,
        "delivery": declared.delivery.value,
        "on_failure": declared.on_failure.value,
        "retry_delays": json.dumps(declared.retry.as_json()),
        "expires_after": declared.expires_after,
        "timeout": declared.timeout,
        **_start(declared.start),
    }
    with connections[using].cursor() as cursor:
        cursor.execute(load("subscriptions/is_registered"), parameters)
        is_registered, is_subscribed = cursor.fetchone() or (False, False)
        if is_registered:
            return None
        if not is_subscribed and parameters["start"] in ("timestamp", "offset"):
            _find_start_positions(cursor, parameters)
    with read_committed(using) as cursor:
        # Nothing is numbered meanwhile, so "from now on" is one definite position in all partitions.
        lock_sequencer(cursor)
        _refuse_second_group(cursor, declared, parameters)
        if declared.pattern and _is_newer_than_group(cursor, parameters, expand(declared.pattern, using=using)):
            parameters |= _start(Start.EARLIEST)
        cursor.execute(load("subscriptions/register_subscription"), parameters)
        (is_new,) = cursor.fetchone()
        if not is_new:
            # The topic has more partitions than before: what is in them is new to the group.
            parameters |= _start(Start.EARLIEST)
        cursor.execute(
            load("subscriptions/create_cursors", start_positions=load("subscriptions/start_positions")), parameters
        )
        cursors = cursor.fetchall()
        began = NewGroup(
            topic=declared.topic,
            group=declared.group,
            offset=min((offset for offset, _ in cursors), default=1),
            older=int(sum(older for _, older in cursors)),
        )
        if is_new:
            after = {"start": parameters["start"], "start_value": parameters["start_value"], "offset": began.offset}
            record(
                "subscribe",
                actor=actor,
                using=using,
                topic=declared.topic,
                group=declared.group,
                reason=reason,
                after=after,
            )
    facts = {"group": declared.group, "topic": declared.topic}
    if is_new:
        # A warning, as events that are skipped by mistake are missed late.
        logger.log(logging.WARNING if began.older else logging.INFO, "%s", began, extra=facts)
        return began
    if cursors:
        logger.info(
            "group %s reads %d more partitions of topic %s", declared.group, len(cursors), declared.topic, extra=facts
        )
    return None


def _find_start_positions(cursor: Any, parameters: dict[str, Any]) -> None:
    """Finds what takes long to find on a long log while nothing has to wait for it."""
    cursor.execute(
        load("subscriptions/find_start_positions", start_positions=load("subscriptions/start_positions")), parameters
    )
    known = []
    for partition_id, start_offset, next_offset, next_position, passed, is_there in cursor.fetchall():
        parameters["start_offset"] = start_offset
        if is_there:
            known.append(
                {
                    "partition_id": partition_id,
                    "next_offset": next_offset,
                    "next_position": next_position,
                    "passed": int(passed),
                }
            )
    parameters["known"] = json.dumps(known)


def _is_newer_than_group(cursor: Any, parameters: dict[str, Any], alike: Sequence[str]) -> bool:
    """A topic that is created while a group already reads all topics of its pattern is read from its beginning."""
    cursor.execute(load("subscriptions/is_newer_than_group"), {**parameters, "alike": list(alike)})
    return bool(cursor.fetchone()[0])


def _start(start: Start | str | int | dt.datetime) -> dict[str, Any]:
    """Parameters of the statements: the kind of start, its value as text and as it is, and nothing known yet."""
    kind, value, time, offset = str(start), None, None, None
    match start:
        case dt.datetime():
            kind, value, time = "timestamp", start.isoformat(), start
        case int():
            kind, value, offset = "offset", str(start), start
    return {"start": kind, "start_value": value, "start_time": time, "start_offset": offset, "known": "[]"}


def _refuse_second_group(cursor: Any, declared: Declaration, parameters: dict[str, Any]) -> None:
    cursor.execute(load("subscriptions/queue_group"), parameters)
    row = cursor.fetchone()
    if row:
        raise InvalidSubscription(
            f'Topic "{declared.topic}" is a queue, and group "{row[0]}" works on it: each event is for one group '
            f'only. Let the handler join that group, or make the topic PUB_SUB, so that "{declared.group}" gets '
            f"each event too."
        )
