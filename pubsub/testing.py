"""For the tests of those who use this app: what was published, and what the handlers make of it.

It works inside a test's transaction, which never commits, as well as where tests commit. The events are those that the
database holds, so what was rolled back is not among them. With pytest, the fixture `pubsub` is an :class:`Outbox`;
elsewhere make one where a test begins:

>>> from pubsub import publish
>>> with transaction.atomic():
...     outbox = Outbox()
...     event_id = publish("default", {"id": 1, "total": 5}, type="order.created")
...     outbox.assert_published("default", type="order.created", payload={"total": 5}).id == event_id
True
"""

import datetime as dt
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

from asgiref.sync import async_to_sync
from django.db import connections, router, transaction
from django.utils import timezone

from . import signals
from .errors import InvalidEvent, PubSubError, Reject, RetryLater
from .events import Event
from .models import OutboxMessage
from .payloads.encoding import to_json
from .sql import load
from .subscriptions import declaring
from .subscriptions.declaring import Declaration, of_topics
from .topics.finding import topic_id

MOST_CALLS = 10_000
"""Of handlers, in one drain: more of them are two handlers that go on publishing for one another."""

_BEFORE_ALL = uuid.UUID(int=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedEvent(Event):
    """An event that no group has been given yet: `group` is empty. Until it is committed, its offset is a forecast."""

    to_group: str | None
    deliver_at: dt.datetime | None


@dataclass(frozen=True, kw_only=True)
class Failure:
    event: Event
    """As the handler was given it: with its group, and which attempt it was."""
    exception: Exception


@dataclass(frozen=True, kw_only=True)
class Drained:
    """What a drain has done."""

    handled: list[Event] = field(default_factory=list)
    """Each with the group that has handled it, in the order of the calls."""
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _Due:
    """An event that a group is to be given."""

    declared: Declaration
    event: PublishedEvent
    at: dt.datetime
    attempt: int = 1


class Outbox:
    """What has been published in this test: all that its transaction, or where tests commit all that anybody, wrote.

    >>> with transaction.atomic():
    ...     Outbox().published()
    []
    """

    def __init__(self, using: str | None = None) -> None:
        self.using = using or router.db_for_write(OutboxMessage)
        self._advanced = dt.timedelta(0)
        self._given: set[tuple[str, str, uuid.UUID]] = set()
        self._retries: list[_Due] = []
        self._since = _BEFORE_ALL
        connection = connections[self.using]
        if connection.in_atomic_block:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pubsub_transaction_id_v1()")
                (self._since,) = cursor.fetchone()

    # What was published

    def published(self, topic: str | None = None) -> list[PublishedEvent]:
        """The events of a topic, or of all; what is delayed comes last.

        >>> from pubsub import publish
        >>> with transaction.atomic():
        ...     outbox = Outbox()
        ...     event_id = publish("default", {"n": 1})
        ...     [event.payload for event in outbox.published("default")]
        [{'n': 1}]
        """
        if topic is not None:
            topic_id(topic, self.using)  # a slip of the pen would find nothing, and pass
        with connections[self.using].cursor() as cursor:
            cursor.execute(load("published"), {"since": self._since})
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        events = []
        for row in rows:
            row |= {"payload": json.loads(row["payload"]), "metadata": json.loads(row["metadata"])}
            events.append(PublishedEvent(**row, attempt=1, group=""))
        return [event for event in events if topic is None or event.topic == topic]

    def assert_published(self, topic: str, *, count: int | None = None, **expected: Any) -> PublishedEvent:
        """Returns the first event that is as expected; fails, saying what differs, if there is none.

        Whatever an event has may be expected: `type`, `key`, `host_id`, `user_id`, `to_group`, `deliver_at`, `id` and
        so on. Of `payload` and `metadata` only what is named is compared, at any depth; lists are compared whole.
        UUIDs, dates and decimals are taken for what they are in JSON. `count` says how many such events there must be.

        >>> from pubsub import publish
        >>> with transaction.atomic():
        ...     outbox = Outbox()
        ...     event_id = publish("default", {"id": 1, "total": 5}, key=7)
        ...     outbox.assert_published("default", payload={"total": 6})
        Traceback (most recent call last):
        AssertionError: No event on default is as expected; 1 was published there:
        1. key '7'
           payload.total: expected 6, not 5
        """
        if count is not None and count < 1:
            raise ValueError(f"count must be at least 1, not {count!r}; there is assert_nothing_published().")
        events, compared = self._compare(topic, expected)
        matching = [event for event, differences in compared if not differences]
        if matching and count in (None, len(matching)):
            return matching[0]
        if not events:
            elsewhere = sorted({event.topic for event in self.published()})
            where = f"there are events on {', '.join(elsewhere)}" if elsewhere else "nor anywhere else"
            raise AssertionError(f"Nothing was published to {topic}; {where}.")
        wanted = "No event" if count is None else f"Not {count} but {len(matching)} events"
        were = f"{len(events)} {'was' if len(events) == 1 else 'were'} published there"
        raise AssertionError(
            f"{wanted} on {topic} {'is' if count is None else 'are'} as expected; {were}:\n"
            + "\n".join(_described(number, *found) for number, found in enumerate(compared, start=1))
        )

    def assert_nothing_published(self, topic: str | None = None, **unwanted: Any) -> None:
        """Fails, saying what there is, if anything was published to the topic, or to any; or anything like this.

        >>> with transaction.atomic():
        ...     Outbox().assert_nothing_published("default", type="order.created")
        """
        _, compared = self._compare(topic, unwanted)
        found = [event for event, differences in compared if not differences]
        if found:
            raise AssertionError(
                f"Nothing{' like this' if unwanted else ''} was to be published{f' to {topic}' if topic else ''}, but "
                "there is:\n" + "\n".join(_described(number, event, []) for number, event in enumerate(found, start=1))
            )

    def _compare(
        self, topic: str | None, expected: dict[str, Any]
    ) -> tuple[list[PublishedEvent], list[tuple[PublishedEvent, list[str]]]]:
        known = {option.name for option in fields(PublishedEvent)} - {"group", "attempt", "topic"}
        if not expected.keys() <= known:
            raise TypeError(
                f"an event has no {', '.join(sorted(expected.keys() - known))} to compare; it has "
                f"{', '.join(sorted(known))}."
            )
        events = self.published(topic)
        return events, [(event, list(_differences(event, expected))) for event in events]

    # What the handlers make of it

    def drain(
        self,
        *,
        groups: Sequence[str] = (),
        topics: Sequence[str] = (),
        advance: dt.timedelta = dt.timedelta(0),
        raise_errors: bool = True,
    ) -> Drained:
        """Gives what was published to the handlers that are declared for it: to each group once, in order.

        What the handlers publish is given to handlers as well, until nothing is left. Each call is in a savepoint, so
        that what a failing handler has written is undone.

        - ``groups``, ``topics``: only these handlers; the others have not been given anything then.
        - ``advance``: goes forward in time: for delayed events, and for further attempts of what has failed.
        - ``raise_errors=False``: goes on where a handler fails, and tells in ``failures``.

        >>> from pubsub import publish, subscribe
        >>> @subscribe("default", group="doctest")
        ... def handle(event):
        ...     print(event.payload)
        >>> with transaction.atomic():
        ...     outbox = Outbox()
        ...     event_id = publish("default", {"n": 1})
        ...     drained = outbox.drain(groups=["doctest"])
        {'n': 1}
        """
        self._advanced += advance
        drained = Drained()
        calls = 0
        while due := self._find_due(topics, groups):
            for together in _calls(due):
                calls += 1
                if calls > MOST_CALLS:
                    raise PubSubError(
                        f"drain() has called handlers {MOST_CALLS:,} times, and they go on publishing: the last one "
                        f"was {together[0].declared.handler_name}."
                    )
                self._call(together, drained, raise_errors)
        return drained

    def _find_due(self, topics: Sequence[str], groups: Sequence[str]) -> list[_Due]:
        now = timezone.now() + self._advanced
        events = [event for event in self.published() if event.deliver_at is None or event.deliver_at <= now]
        due = []
        for declared in of_topics(declaring.registry.select(topics, groups), self.using):
            due += [waiting for waiting in self._retries if waiting.declared.key == declared.key and waiting.at <= now]
            new = [
                event
                for event in events
                if event.topic == declared.topic
                and event.to_group in (None, declared.group)
                and (*declared.key, event.id) not in self._given
            ]
            due += [_Due(declared=declared, event=event, at=now) for event in self._choose(declared, new)]
        return due

    def _choose(self, declared: Declaration, events: list[PublishedEvent]) -> list[PublishedEvent]:
        """Those that the group's filter lets pass: the database says so, as ever."""
        if declared.chosen.is_trivial or not events:
            return events
        with connections[self.using].cursor() as cursor:
            cursor.execute(
                load("chosen_events").replace("{chosen}", declared.chosen.sql),
                {**declared.chosen.parameters, "ids": [event.id for event in events]},
            )
            wanted = {event_id for (event_id,) in cursor.fetchall()}
        return [event for event in events if event.id in wanted]

    def _call(self, together: Sequence[_Due], drained: Drained, raise_errors: bool) -> None:
        declared = together[0].declared
        events = [_as_given(due) for due in together]
        for due in together:
            self._given.add((*declared.key, due.event.id))
            with suppress(ValueError):
                self._retries.remove(due)
        try:
            with transaction.atomic(using=self.using), signals.around(*events):
                _call_handler(declared, events)
        except Exception as error:
            self._retry_later(together, error)
            if raise_errors:
                raise
            drained.failures.extend(Failure(event=event, exception=error) for event in events)
        else:
            drained.handled.extend(events)

    def _retry_later(self, together: Sequence[_Due], error: Exception) -> None:
        for due in together:
            delay = _delay_after(due, error)
            if delay is not None:
                at = timezone.now() + self._advanced + dt.timedelta(seconds=delay)
                self._retries.append(replace(due, attempt=due.attempt + 1, at=at))


def _delay_after(due: _Due, error: Exception) -> float | None:
    if isinstance(error, Reject):
        return None
    return error.delay if isinstance(error, RetryLater) else due.declared.retry.delay_after(due.attempt)


def _calls(due: Sequence[_Due]) -> list[list[_Due]]:
    """One event after another; or all that a group has to be given, where its handler takes a batch."""
    calls: list[list[_Due]] = []
    for one in due:
        if one.declared.batch and calls and calls[-1][0].declared.key == one.declared.key:
            calls[-1].append(one)
        else:
            calls.append([one])
    return calls


def _as_given(due: _Due) -> Event:
    content = {option.name: getattr(due.event, option.name) for option in fields(Event)}
    return Event(**{**content, "group": due.declared.group, "attempt": due.attempt})


def _call_handler(declared: Declaration, events: list[Event]) -> None:
    handler = async_to_sync(declared.handler) if declared.is_asynchronous else declared.handler
    handler(events if declared.batch else events[0])


def _differences(event: PublishedEvent, expected: dict[str, Any]) -> Iterator[str]:
    for name, value in expected.items():
        found = getattr(event, name)
        if name in ("payload", "metadata"):
            yield from _differences_inside(name, value, found)
        elif value != found and (value is None or str(value) != str(found)):  # ids are kept as text
            yield f"{name}: expected {value!r}, not {found!r}"


def _differences_inside(path: str, expected: Any, found: Any) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for name, value in expected.items():
            if str(name) in found:
                yield from _differences_inside(f"{path}.{name}", value, found[str(name)])
            else:
                yield f"{path}.{name}: expected {value!r}, but there is only {', '.join(found) or 'nothing'}"
    elif expected != found and _in_json(expected) != found:
        yield f"{path}: expected {expected!r}, not {found!r}"


def _in_json(value: Any) -> Any:
    try:
        return json.loads(to_json("expected", value))
    except (InvalidEvent, TypeError, ValueError):
        return value  # something that compares itself, such as mock.ANY


def _described(number: int, event: PublishedEvent, differences: Sequence[str]) -> str:
    said = [
        f"{name} {value!r}"
        for name in ("type", "key", "host_id", "user_id", "to_group")
        if (value := getattr(event, name))
    ]
    if not differences:
        said.append(f"payload {event.payload!r:.200}")
    return "\n   ".join([f"{number}. {', '.join(said) or 'an event'}", *differences])
