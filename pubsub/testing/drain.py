"""Draining: giving what a test has published to the handlers, inside the test's transaction."""

import datetime as dt
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace

from django.db import connections, transaction
from django.utils import timezone

from pubsub.consuming.call import call
from pubsub.db.sql import load
from pubsub.db.transactions import as_around_a_test
from pubsub.dead_letters.set_aside import delay_after
from pubsub.delivery import Delivery
from pubsub.errors import PubSubError
from pubsub.events import Event
from pubsub.subscriptions import declare
from pubsub.subscriptions.declare import Declaration
from pubsub.subscriptions.register import of_topics

from .published import PublishedEvent, published_since

MOST_CALLS = 10_000
"""Of handlers, in one drain: more of them are two handlers that go on publishing for one another."""


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


class Drain:
    """Remembers which group was given which event, and what is to be tried again, from one run to the next."""

    def __init__(self, using: str, since: uuid.UUID) -> None:
        """`since` is the id of the first transaction whose events it gives."""
        self.using = using
        self._since = since
        self._advanced = dt.timedelta(0)
        self._given: set[tuple[str, str, uuid.UUID]] = set()
        self._retries: list[_Due] = []

    def run(
        self, *, groups: Sequence[str], topics: Sequence[str], advance: dt.timedelta, raise_errors: bool
    ) -> Drained:
        """See :meth:`Outbox.drain`."""
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
        events = [
            event
            for event in published_since(self._since, self.using)
            if event.deliver_at is None or event.deliver_at <= now
        ]
        due = []
        for declared in of_topics(declare.registry.select(topics, groups), self.using):
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
        if declared.filter.is_trivial or not events:
            return events
        with connections[self.using].cursor() as cursor:
            cursor.execute(
                load("testing/filtered_events", filter=declared.filter.sql),
                {**declared.filter.parameters, "ids": [event.id for event in events]},
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
            with _savepoint(declared, self.using):
                call(declared, events)
        except Exception as error:
            self._retry_later(together, error)
            if raise_errors:
                raise
            drained.failures.extend(Failure(event=event, exception=error) for event in events)
        else:
            drained.handled.extend(events)

    def _retry_later(self, together: Sequence[_Due], error: Exception) -> None:
        for due in together:
            delay = delay_after(due.declared, due.attempt, error)
            if delay is not None:
                at = timezone.now() + self._advanced + dt.timedelta(seconds=delay)
                self._retries.append(replace(due, attempt=due.attempt + 1, at=at))


def _savepoint(declared: Declaration, using: str) -> transaction.Atomic:
    """Undoes what a failing handler has written. A handler that has no transaction elsewhere finds none here."""
    if declared.delivery is Delivery.TRANSACTIONAL:
        return transaction.atomic(using=using)
    return as_around_a_test(using)


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
