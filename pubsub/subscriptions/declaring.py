"""Who wants to hear what: declared on handlers in code, kept as rows in the database."""

import datetime as dt
import functools
import inspect
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from django.db import connections

from pubsub.consuming.retrying import Backoff, Delays, retry_policy
from pubsub.delivery import Delivery
from pubsub.errors import InvalidSubscription
from pubsub.observing.journal import record
from pubsub.sql import load
from pubsub.topics.finding import check_name, topic_id
from pubsub.topics.patterns import check_pattern, expand, is_pattern, matches
from pubsub.transactions import read_committed

from .filters import Filter, compile

logger = logging.getLogger("pubsub.subscribing")

Handler = Callable[..., Any]
"""Called with an event, or with a list of them where it is declared with `batch=True`."""
H = TypeVar("H", bound=Handler)

STARTS = ("earliest", "latest")
ON_FAILURE = ("dead_letter", "park_key", "stop")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """One handler's subscription, as written in the code."""

    topic: str
    """A topic's name, or a pattern of names."""
    group: str
    handler: Handler
    start: str | int | dt.datetime = "latest"
    where: Mapping[str, Any] = field(default_factory=dict)
    delivery: Delivery = Delivery.TRANSACTIONAL
    retry: Backoff | Delays = field(default_factory=Delays)
    on_failure: str = "dead_letter"
    batch: bool = False
    expires_after: dt.timedelta | None = None
    pattern: str | None = None
    """What was declared, where `topic` is one of the topics that it means."""

    def __post_init__(self) -> None:
        check_pattern(self.topic) if is_pattern(self.topic) else check_name(self.topic)
        self.chosen  # noqa: B018 - an invalid filter is refused where it is declared
        if self.expires_after is not None and (
            not isinstance(self.expires_after, dt.timedelta) or self.expires_after <= dt.timedelta(0)
        ):
            raise InvalidSubscription(
                f"expires_after must be a timedelta above zero, such as timedelta(hours=1), not {self.expires_after!r}."
            )
        if not isinstance(self.group, str) or not self.group.strip():
            raise InvalidSubscription(f"group must be a name such as 'email-service', not {self.group!r}.")
        self._check_start()
        object.__setattr__(self, "retry", retry_policy(self.retry))
        try:
            object.__setattr__(self, "delivery", Delivery(self.delivery))
        except ValueError as error:
            raise InvalidSubscription(
                f"delivery must be one of {', '.join(f'Delivery.{mode.name}' for mode in Delivery)}, "
                f"not {self.delivery!r}."
            ) from error
        if self.on_failure not in ON_FAILURE:
            raise InvalidSubscription(
                f"on_failure must be {', '.join(map(repr, ON_FAILURE[:-1]))} or {ON_FAILURE[-1]!r}, "
                f"not {self.on_failure!r}."
            )
        if self.delivery is Delivery.AT_MOST_ONCE and self.retry.retries:
            raise InvalidSubscription(
                "Delivery.AT_MOST_ONCE and retry contradict each other: a second attempt may be a second delivery."
            )
        for is_generator in (inspect.isgeneratorfunction, inspect.isasyncgenfunction):
            if is_generator(self.handler) or is_generator(type(self.handler).__call__):
                raise InvalidSubscription(
                    f"{self.handler_name} does nothing when it is called: it is a generator. A handler must be an "
                    f"ordinary function or an asynchronous one."
                )

    def _check_start(self) -> None:
        match self.start:
            case "earliest" | "latest":
                return
            case dt.datetime() if self.start.tzinfo is not None:
                return
            case int() if not isinstance(self.start, bool) and self.start >= 1:
                return
        raise InvalidSubscription(
            f"start must be 'earliest' or 'latest', a datetime with a time zone, or an offset of at least 1, "
            f"not {self.start!r}."
        )

    @functools.cached_property
    def chosen(self) -> Filter:
        """Which events the group wants."""
        return compile(self.where)

    @property
    def key(self) -> tuple[str, str]:
        return self.topic, self.group

    @property
    def handler_name(self) -> str:
        named = self.handler if hasattr(self.handler, "__qualname__") else type(self.handler)
        return f"{named.__module__}.{named.__qualname__}"

    @functools.cached_property
    def is_asynchronous(self) -> bool:
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(type(self.handler).__call__)


class Registry:
    """The subscriptions of this process, by topic and group."""

    def __init__(self) -> None:
        self._declarations: dict[tuple[str, str], Declaration] = {}

    def add(self, declaration: Declaration) -> None:
        present = self._declarations.setdefault(declaration.key, declaration)
        # A module that is imported once more declares its functions again.
        again = present.handler_name == declaration.handler_name and inspect.isroutine(declaration.handler)
        if present.handler is not declaration.handler and not again:
            raise InvalidSubscription(
                f'Group "{declaration.group}" already handles topic "{declaration.topic}" by {present.handler_name}; '
                f"{declaration.handler_name} needs a group of its own, or call it from there."
            )
        self._declarations[declaration.key] = declaration

    def select(self, topics: Sequence[str] = (), groups: Sequence[str] = ()) -> list[Declaration]:
        """The declarations that the given names choose; all, where none are given."""
        every = list(self._declarations.values())
        for name in groups:
            if not any(declared.group == name for declared in every):
                raise self._nobody("group", name, {declared.group for declared in every})
        for name in topics:
            if not any(matches(declared.topic, name) for declared in every):
                raise self._nobody("topic", name, {declared.topic for declared in every})
        chosen = [declared for declared in every if not groups or declared.group in groups]
        if not topics:
            return chosen
        return [
            declared if declared.topic == name else replace(declared, topic=name, pattern=declared.topic)
            for name in dict.fromkeys(topics)
            for declared in chosen
            if matches(declared.topic, name)
        ]

    def _nobody(self, kind: str, name: str, known: Iterable[str]) -> InvalidSubscription:
        return InvalidSubscription(
            f'No handler is declared for {kind} "{name}"; there are: {", ".join(sorted(known)) or "none"}. '
            f"Handlers are looked for in the subscribers.py of each installed app."
        )


registry = Registry()


def subscribe(
    topic: str,
    *,
    group: str,
    start: str | int | dt.datetime = "latest",
    where: Mapping[str, Any] | None = None,
    delivery: Delivery = Delivery.TRANSACTIONAL,
    retry: Sequence[float] | Backoff = (),
    on_failure: str = "dead_letter",
    batch: bool = False,
    expires_after: dt.timedelta | None = None,
) -> Callable[[H], H]:
    """Declares a function as the handler of a topic for a consumer group.

    It is called with one :class:`~pubsub.events.Event` after another, in order within a partition. It may be an
    ordinary function or an asynchronous one. If it raises, all events of the publisher's transaction are set aside
    together; ``Reject`` and ``RetryLater`` say what shall become of them.

    - ``topic``: a topic's name, or a pattern such as ``"orders.*"``, which means topics that are made later, too.
    - ``start``: where a new group begins: ``"latest"`` is what is published from now on, ``"earliest"`` the oldest
      message that is still there, a datetime or an offset any other place. It has no effect on a group that exists.
    - ``where``: lookups that an event must match, such as ``{"type": "order.created", "payload__total__gte": 100}``;
      the database decides, and what does not match is passed.
    - ``delivery``: ``Delivery.TRANSACTIONAL`` calls the handler in the transaction that moves the group's place, so
      what it writes to this database happens exactly once. ``AT_LEAST_ONCE`` and ``AT_MOST_ONCE`` call it outside any
      transaction, for handlers that wait for something else.
    - ``retry``: seconds before each further attempt of what failed, or a ``Backoff``; then it is a dead letter.
    - ``on_failure``: what happens to later events meanwhile: ``"dead_letter"`` goes on with them, ``"park_key"`` lets
      those of the same key wait, in order, ``"stop"`` the whole partition.
    - ``batch``: the handler takes a list of events, as many as ``--batch-size`` at most.
    - ``expires_after``: the subscription is a temporary one: it goes when nobody has used it for so long.

    >>> @subscribe("default", group="doctest", start="earliest", retry=[60, 300])
    ... def handle(event): ...
    """

    def declare(handler: H) -> H:
        registry.add(
            Declaration(
                topic=topic,
                group=group,
                handler=handler,
                start=start,
                where=where or {},
                delivery=delivery,
                retry=retry_policy(retry),
                on_failure=on_failure,
                batch=batch,
                expires_after=expires_after,
            )
        )
        return handler

    return declare


def of_topics(declarations: Iterable[Declaration], using: str) -> list[Declaration]:
    """One declaration for each topic that is meant now. What names a topic goes before a pattern of the same group."""
    found: dict[tuple[str, str], Declaration] = {}
    for declared in sorted(declarations, key=lambda declared: is_pattern(declared.topic)):
        if is_pattern(declared.topic):
            for name in expand(declared.topic, using):
                found.setdefault((name, declared.group), replace(declared, topic=name, pattern=declared.topic))
        else:
            found[declared.key] = declared
    return list(found.values())


def enrol(declarations: Sequence[Declaration], using: str) -> None:
    """Sees to it that each subscription has its row and a place in each partition. Harmless to repeat.

    The row says how the code handles events; whether, and from where on, is the operators' to say.
    """
    for declared in of_topics(declarations, using):
        parameters: dict[str, Any] = {
            "topic_id": topic_id(declared.topic, using),
            "group_id": declared.group,
            "where": declared.chosen.text,
            "delivery": declared.delivery.value,
            "on_failure": declared.on_failure,
            "retry_delays": json.dumps(declared.retry.as_json()),
            "expires_after": declared.expires_after,
            **_start(declared.start),
        }
        with connections[using].cursor() as cursor:
            cursor.execute(load("is_enrolled"), parameters)
            is_enrolled, is_subscribed = cursor.fetchone() or (False, False)
            if is_enrolled:
                continue
            if not is_subscribed and parameters["start"] in ("timestamp", "offset"):
                _look_before(cursor, parameters)
        with read_committed(using) as cursor:
            # Nobody numbers meanwhile, so "from now on" is one definite place in all partitions.
            cursor.execute("SELECT FROM log_sequencer WHERE id = 1 FOR UPDATE")
            _refuse_second_group(cursor, declared, parameters)
            if declared.pattern and _is_newer_than_group(cursor, parameters, expand(declared.pattern, using)):
                parameters |= _start("earliest")
            cursor.execute(load("enrol"), parameters)
            (is_new,) = cursor.fetchone()
            if not is_new:
                # The topic has more partitions than before: what is in them is new to the group.
                parameters |= _start("earliest")
            cursor.execute(load("beginnings") + load("enrol_cursors"), parameters)
            places = cursor.fetchall()
            if is_new:
                began = {name: parameters[name] for name in ("start", "start_value")}
                began["offset"] = min((offset for (offset,) in places), default=None)
                record(
                    "subscribe", actor="consumer", using=using, topic=declared.topic, group=declared.group, after=began
                )
        if places:
            logger.info(
                "group %s reads %d partitions of topic %s from offset %d on",
                declared.group,
                len(places),
                declared.topic,
                min(offset for (offset,) in places),
                extra={"group": declared.group, "topic": declared.topic},
            )


def _look_before(cursor: Any, parameters: dict[str, Any]) -> None:
    """Finds what takes long to find on a long log while nobody has to wait for it."""
    cursor.execute(load("beginnings") + load("find_beginnings"), parameters)
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
    """A topic that is made when a group reads all of its kind already is read from its beginning."""
    cursor.execute(load("is_newer_than_group"), {**parameters, "alike": list(alike)})
    return bool(cursor.fetchone()[0])


def _start(start: str | int | dt.datetime) -> dict[str, Any]:
    """As the statements want it: which kind of start, its value, as text and as what it is, and nothing known yet."""
    kind, value, time, offset = start, None, None, None
    match start:
        case dt.datetime():
            kind, value, time = "timestamp", start.isoformat(), start
        case int():
            kind, value, offset = "offset", str(start), start
    return {"start": kind, "start_value": value, "start_time": time, "start_offset": offset, "known": "[]"}


def _refuse_second_group(cursor: Any, declared: Declaration, parameters: dict[str, Any]) -> None:
    cursor.execute(load("queue_group"), parameters)
    row = cursor.fetchone()
    if row:
        raise InvalidSubscription(
            f'Topic "{declared.topic}" is a queue, and group "{row[0]}" works on it: each message is for one group '
            f'only. Let the handler join that group, or make the topic PUB_SUB, so that "{declared.group}" gets '
            f"each message too."
        )
