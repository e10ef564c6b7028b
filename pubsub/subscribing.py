"""Who wants to hear what: declared on handlers in code, kept as rows in the database."""

import inspect
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import connections

from .errors import InvalidSubscription
from .events import Event
from .sql import load
from .topics import check_name, topic_id
from .transactions import read_committed

logger = logging.getLogger("pubsub.subscribing")

Handler = Callable[[Event], Any]
H = TypeVar("H", bound=Handler)

STARTS = ("earliest", "latest")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """One handler's subscription, as written in the code."""

    topic: str
    group: str
    handler: Handler
    start: str = "latest"
    retry: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.topic)
        if not isinstance(self.group, str) or not self.group.strip():
            raise InvalidSubscription(f"group must be a name such as 'email-service', not {self.group!r}.")
        if self.start not in STARTS:
            raise InvalidSubscription(f"start must be 'earliest' or 'latest', not {self.start!r}.")
        if not all(isinstance(delay, int) and not isinstance(delay, bool) and delay >= 0 for delay in self.retry):
            raise InvalidSubscription(
                f"retry must be a list of seconds before each further attempt, such as [60, 300], not {self.retry!r}."
            )
        for is_lazy in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
            if is_lazy(self.handler) or is_lazy(type(self.handler).__call__):
                raise InvalidSubscription(
                    f"{self.handler_name} does nothing when it is called: it is asynchronous, or a generator. A "
                    f"handler must be an ordinary function; asgiref's async_to_sync() makes one of an asynchronous one."
                )

    @property
    def handler_name(self) -> str:
        named = self.handler if hasattr(self.handler, "__qualname__") else type(self.handler)
        return f"{named.__module__}.{named.__qualname__}"


class Registry:
    """The subscriptions of this process, by topic and group."""

    def __init__(self) -> None:
        self._declarations: dict[tuple[str, str], Declaration] = {}

    def add(self, declaration: Declaration) -> None:
        key = (declaration.topic, declaration.group)
        present = self._declarations.setdefault(key, declaration)
        # A module that is imported once more declares its functions again.
        again = present.handler_name == declaration.handler_name and inspect.isroutine(declaration.handler)
        if present.handler is not declaration.handler and not again:
            raise InvalidSubscription(
                f'Group "{declaration.group}" already handles topic "{declaration.topic}" by {present.handler_name}; '
                f"{declaration.handler_name} needs a group of its own, or call it from there."
            )
        self._declarations[key] = declaration

    def select(self, topics: Sequence[str] = (), groups: Sequence[str] = ()) -> list[Declaration]:
        """The declarations that the given names choose; all, where none are given."""
        for wanted, known, kind in (
            (topics, {declared.topic for declared in self._declarations.values()}, "topic"),
            (groups, {declared.group for declared in self._declarations.values()}, "group"),
        ):
            for name in wanted:
                if name not in known:
                    raise InvalidSubscription(
                        f'No handler is declared for {kind} "{name}"; there are: {", ".join(sorted(known)) or "none"}. '
                        f"Handlers are looked for in the subscribers.py of each installed app."
                    )
        return [
            declared
            for declared in self._declarations.values()
            if (not topics or declared.topic in topics) and (not groups or declared.group in groups)
        ]


registry = Registry()


def subscribe(topic: str, *, group: str, start: str = "latest", retry: Sequence[int] = ()) -> Callable[[H], H]:
    """Declares a function as the handler of a topic for a consumer group.

    It is called with one :class:`~pubsub.events.Event` after another, in order within a partition, in the transaction
    that moves the group's cursor: what it writes to this database happens exactly once. If it raises, all events of
    the publisher's transaction go to the dead-letter queue together, and those after it go on.

    - ``start``: where a new group begins: ``"latest"`` is what is published from now on, ``"earliest"`` the oldest
      message that is still there. It has no effect on a group that exists.
    - ``retry``: seconds before each further attempt of what failed; then it waits for somebody to act.

    >>> @subscribe("default", group="doctest", start="earliest", retry=[60, 300])
    ... def handle(event): ...
    """

    def declare(handler: H) -> H:
        registry.add(Declaration(topic=topic, group=group, handler=handler, start=start, retry=tuple(retry)))
        return handler

    return declare


def enrol(declarations: Sequence[Declaration], using: str) -> None:
    """Makes the rows of subscriptions that are new, so that they have a place in each partition. Harmless to repeat."""
    for declared in declarations:
        parameters: dict[str, Any] = {
            "topic_id": topic_id(declared.topic, using),
            "group_id": declared.group,
            "start": declared.start,
            "retry_delays": json.dumps(declared.retry),
        }
        with connections[using].cursor() as cursor:
            cursor.execute(load("is_enrolled"), parameters)
            if cursor.fetchone() == (True,):
                continue
        with read_committed(using) as cursor:
            # Nobody numbers meanwhile, so "from now on" is one definite place in all partitions.
            cursor.execute("SELECT FROM log_sequencer WHERE id = 1 FOR UPDATE")
            cursor.execute(load("enrol"), parameters)
            if not cursor.rowcount:
                # The group is there and the topic has more partitions than before: what is in them is new to it.
                parameters["start"] = "earliest"
            cursor.execute(load("enrol_cursors"), parameters)
        logger.info(
            "group %s reads topic %s from the %s",
            declared.group,
            declared.topic,
            parameters["start"],
            extra={"group": declared.group, "topic": declared.topic},
        )
