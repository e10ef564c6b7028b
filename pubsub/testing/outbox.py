"""What a test has published, and assertions about it."""

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from django.db import router

from pubsub.errors import InvalidEvent
from pubsub.models import OutboxMessage
from pubsub.publishing.encode import to_json
from pubsub.topics.registry import topic_id

from .drain import Drain, Drained
from .published import PublishedEvent, published_since, transaction_under_way


class Outbox:
    """What has been published in this test: by its transaction or, where tests commit, by any.

    >>> from django.db import transaction
    >>> with transaction.atomic():
    ...     Outbox().published()
    []
    """

    def __init__(self, using: str | None = None) -> None:
        self.using = using or router.db_for_write(OutboxMessage)
        self._since = transaction_under_way(self.using)
        self._drain = Drain(self.using, self._since)

    def published(self, topic: str | None = None) -> list[PublishedEvent]:
        """The events of a topic, or of all; what is delayed comes last.

        >>> from django.db import transaction
        >>> from pubsub import publish
        >>> with transaction.atomic():
        ...     outbox = Outbox()
        ...     event_id = publish("default", {"n": 1})
        ...     [event.payload for event in outbox.published("default")]
        [{'n': 1}]
        """
        if topic is not None:
            topic_id(topic, self.using)  # a typo would find nothing, and the test would pass
        events = published_since(self._since, self.using)
        return [event for event in events if topic is None or event.topic == topic]

    def assert_published(self, topic: str, *, count: int | None = None, **expected: Any) -> PublishedEvent:
        """Returns the first event that is as expected; fails, saying what differs, if there is none.

        Whatever an event has may be expected: `type`, `key`, `host_id`, `user_id`, `to_group`, `deliver_at`, `id` and
        so on. Of `payload` and `metadata` only what is named is compared, at any depth; lists are compared whole.
        UUIDs, dates and decimals are taken for what they are in JSON. `count` says how many such events there must be.

        >>> from django.db import transaction
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
        __tracebackhide__ = True  # pytest shows the test's line, not ours
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

        >>> from django.db import transaction
        >>> with transaction.atomic():
        ...     Outbox().assert_nothing_published("default", type="order.created")
        """
        __tracebackhide__ = True
        _, compared = self._compare(topic, unwanted)
        found = [event for event, differences in compared if not differences]
        if found:
            raise AssertionError(
                f"Nothing{' like this' if unwanted else ''} was to be published{f' to {topic}' if topic else ''}, but "
                "there is:\n" + "\n".join(_described(number, event, []) for number, event in enumerate(found, start=1))
            )

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

        >>> from django.db import transaction
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
        return self._drain.run(groups=groups, topics=topics, advance=advance, raise_errors=raise_errors)

    def _compare(
        self, topic: str | None, expected: dict[str, Any]
    ) -> tuple[list[PublishedEvent], list[tuple[PublishedEvent, list[str]]]]:
        __tracebackhide__ = True
        known = {option.name for option in fields(PublishedEvent)} - {"group", "attempt", "topic"}
        if not expected.keys() <= known:
            raise TypeError(
                f"an event has no {', '.join(sorted(expected.keys() - known))} to compare; it has "
                f"{', '.join(sorted(known))}."
            )
        events = self.published(topic)
        return events, [(event, list(_differences(event, expected))) for event in events]


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
