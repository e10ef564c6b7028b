"""Subscriptions, declared on handlers in code."""

import datetime as dt
import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pubsub.delivery import Delivery, OnFailure, Start, chosen, listed
from pubsub.errors import InvalidSubscription
from pubsub.retry import Delays, RetryPolicy, retry_policy
from pubsub.topics.names import check_name, check_pattern, is_pattern, matches

from .filters import Filter, compile

logger = logging.getLogger(__name__)

LONGEST_GROUP = 200
"""Bytes of a group's name: an index of the dead letters holds it beside a key."""

LONGEST_TIMEOUT_S = 30 * 24 * 3600

Handler = Callable[..., Any]
"""Called with an event, or with a list of them where it is declared with `batch=True`."""
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """One handler's subscription, as written in the code."""

    topic: str
    """A topic's name, or a pattern of names."""
    group: str
    handler: Handler
    start: Start | str | int | dt.datetime = Start.LATEST
    where: Mapping[str, Any] = field(default_factory=dict)
    delivery: Delivery = Delivery.TRANSACTIONAL
    retry: RetryPolicy = field(default_factory=Delays)
    on_failure: OnFailure = OnFailure.DEAD_LETTER
    batch: bool = False
    expires_after: dt.timedelta | None = None
    timeout: float | dt.timedelta | None = None
    """How long a call of the handler may take; kept as seconds."""
    pattern: str | None = None
    """The pattern that was declared, if `topic` is one of the topics that match it."""

    def __post_init__(self) -> None:
        check_pattern(self.topic) if is_pattern(self.topic) else check_name(self.topic)
        self.filter  # noqa: B018 - an invalid filter is rejected where it is declared
        if self.expires_after is not None and (
            not isinstance(self.expires_after, dt.timedelta) or self.expires_after <= dt.timedelta(0)
        ):
            raise InvalidSubscription(
                f"expires_after must be a timedelta above zero, such as timedelta(hours=1), not {self.expires_after!r}."
            )
        if not isinstance(self.group, str) or not self.group.strip():
            raise InvalidSubscription(f"group must be a name such as 'email-service', not {self.group!r}.")
        if len(self.group.encode("utf-8", "surrogatepass")) > LONGEST_GROUP:
            raise InvalidSubscription(
                f"group must be a name of at most {LONGEST_GROUP} bytes, not {self.group[:50]!r}… of "
                f"{len(self.group.encode('utf-8', 'surrogatepass'))}."
            )
        object.__setattr__(self, "start", _start(self.start))
        object.__setattr__(self, "timeout", _timeout(self.timeout))
        object.__setattr__(self, "retry", retry_policy(self.retry))
        object.__setattr__(self, "delivery", chosen(Delivery, "delivery", self.delivery))
        object.__setattr__(self, "on_failure", chosen(OnFailure, "on_failure", self.on_failure))
        if self.delivery is Delivery.AT_MOST_ONCE and self.retry.retries:
            raise InvalidSubscription(
                "Delivery.AT_MOST_ONCE and retry contradict each other: a second attempt may be a second delivery."
            )
        _check_signature(self)
        for is_generator in (inspect.isgeneratorfunction, inspect.isasyncgenfunction):
            if is_generator(self.handler) or is_generator(type(self.handler).__call__):
                raise InvalidSubscription(
                    f"{self.handler_name} does nothing when it is called: it is a generator. A handler must be an "
                    f"ordinary function or an asynchronous one."
                )

    @functools.cached_property
    def filter(self) -> Filter:
        """Which events the group gets."""
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


def _check_signature(declared: Declaration) -> None:
    try:
        signature = inspect.signature(declared.handler)
    except ValueError:
        return  # written in C, and not told
    except TypeError as error:
        raise InvalidSubscription(f"A handler must be a function, not {declared.handler!r}.") from error
    try:
        signature.bind(object())
    except TypeError as error:
        raise InvalidSubscription(
            f"{declared.handler_name}{signature} cannot be called with one argument, "
            f"{'the list of events' if declared.batch else 'the event'}. To subscribe a method, make an instance and "
            f"decorate what is bound to it: subscribe(…)(instance.method)."
        ) from error


def _start(given: Any) -> Start | int | dt.datetime:
    match given:
        case str() if given in list(Start):
            return Start(given)
        case dt.datetime() if given.tzinfo is not None:
            return given
        case int() if not isinstance(given, bool) and given >= 1:
            return given
    raise InvalidSubscription(
        f"start must be {listed(Start)}, a datetime with a time zone, or an offset of at least 1, not {given!r}."
    )


def _timeout(given: Any) -> float | None:
    seconds = given.total_seconds() if isinstance(given, dt.timedelta) else given
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_TIMEOUT_S:
        raise InvalidSubscription(
            f"timeout must be a number of seconds above zero, such as 30, or a timedelta, of 30 days at most, not "
            f"{given!r}."
        )
    return float(seconds)


class Registry:
    """The subscriptions of this process, by topic and group."""

    def __init__(self) -> None:
        self._declarations: dict[tuple[str, str], Declaration] = {}

    def add(self, declaration: Declaration) -> None:
        present = self._declarations.setdefault(declaration.key, declaration)
        # A module that is imported again declares its functions again.
        again = present.handler_name == declaration.handler_name and inspect.isroutine(declaration.handler)
        if present.handler is not declaration.handler and not again:
            raise InvalidSubscription(
                f'Group "{declaration.group}" already handles topic "{declaration.topic}" with {present.handler_name}; '
                f"give {declaration.handler_name} a group of its own, or call it from there."
            )
        self._declarations[declaration.key] = declaration

    def select(self, topics: Sequence[str] = (), groups: Sequence[str] = ()) -> list[Declaration]:
        """The declarations of the given topics and groups; all, where none are given."""
        every = list(self._declarations.values())
        for name in groups:
            if not any(declared.group == name for declared in every):
                raise self._not_declared("group", name, {declared.group for declared in every})
        for name in topics:
            if not any(matches(declared.topic, name) for declared in every):
                raise self._not_declared("topic", name, {declared.topic for declared in every})
        chosen = [declared for declared in every if not groups or declared.group in groups]
        if not topics:
            return chosen
        return [
            declared if declared.topic == name else replace(declared, topic=name, pattern=declared.topic)
            for name in dict.fromkeys(topics)
            for declared in chosen
            if matches(declared.topic, name)
        ]

    def has(self, topic: str, group: str) -> bool:
        """Whether a handler is declared for this group on this topic, or on a pattern that means it."""
        return any(key_group == group and matches(pattern, topic) for pattern, key_group in self._declarations)

    def _not_declared(self, kind: str, name: str, known: Iterable[str]) -> InvalidSubscription:
        return InvalidSubscription(
            f'No handler is declared for {kind} "{name}"; there are: {", ".join(sorted(known)) or "none"}. '
            f"Handlers are looked for in the subscribers.py of each installed app."
        )


registry = Registry()


def subscribe(
    topic: str,
    *,
    group: str,
    start: Start | str | int | dt.datetime = Start.LATEST,
    where: Mapping[str, Any] | None = None,
    delivery: Delivery | str = Delivery.TRANSACTIONAL,
    retry: Sequence[float] | RetryPolicy = (),
    on_failure: OnFailure | str = OnFailure.DEAD_LETTER,
    batch: bool = False,
    timeout: float | dt.timedelta | None = None,
    expires_after: dt.timedelta | None = None,
) -> Callable[[H], H]:
    """Declares a function as the handler of a topic for a consumer group.

    The handler is called with one :class:`~pubsub.events.Event` after another, in order within a partition; behind one
    that fails, ``on_failure`` decides. It may be an ordinary function or an asynchronous one. If it raises, all events
    of the publisher's transaction are set aside together; ``Reject`` and ``RetryLater`` decide when they are tried
    again.

    - ``topic``: a topic's name, or a pattern such as ``"orders.*"``, which includes topics that are created later.
    - ``start``: where a new group begins: a ``Start`` or its string, ``"latest"`` (with what is published from now on)
      or ``"earliest"`` (with the oldest event that is still there), a datetime or an offset. It has no effect on a
      group that exists.
    - ``where``: lookups that an event must match, such as ``{"type": "order.created", "payload__quantity__gte": 100}``.
      The database evaluates them; events that do not match are skipped.
    - ``delivery``: a ``Delivery`` or its string. ``TRANSACTIONAL`` calls the handler in the transaction that moves the
      group's cursor, so what it writes to this database happens exactly once. ``AT_LEAST_ONCE`` and ``AT_MOST_ONCE``
      call it outside any transaction, for handlers that wait for something else.
    - ``retry``: seconds before each further attempt of a failed event, or a ``RetryPolicy`` such as ``Backoff``; after
      the last attempt the event is a dead letter.
    - ``on_failure``: an ``OnFailure`` or its string: what happens to later events meanwhile. With ``"dead_letter"``
      they are handled, with ``"park_key"`` those of the same key wait, in order, with ``"stop"`` the whole partition.
    - ``batch``: the handler takes a list of events, as many as ``--batch-size`` at most.
    - ``timeout``: how long one call of the handler may take, in seconds or as a timedelta. One that takes longer is
      interrupted, and fails with ``HandlerTimeout``.
    - ``expires_after``: makes the subscription temporary: it is cancelled when no worker has used it for so long.

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
                delivery=chosen(Delivery, "delivery", delivery),
                retry=retry_policy(retry),
                on_failure=chosen(OnFailure, "on_failure", on_failure),
                batch=batch,
                expires_after=expires_after,
                timeout=timeout,
            )
        )
        return handler

    return declare
