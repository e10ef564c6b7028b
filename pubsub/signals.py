"""What others can observe: signals after something has happened, and hooks around what is happening.

Where nothing listens, none of this costs more than looking at an empty list. An observer that fails is logged, and
breaks nothing. Payloads are never among the facts.

Signals are Django's, and told by `tell()` after the commit, so that a receiver that uses the database has a transaction
of its own:

>>> from django.dispatch import receiver
>>> @receiver(batch_handled)
... def count(topic, group, passed, **facts): ...
>>> batch_handled.disconnect(count)
True

Hooks are functions that return a context manager, entered around each call of a handler or each act of publishing:

>>> import time
>>> from contextlib import contextmanager
>>> @around_handler.add
... @contextmanager
... def timed(events):
...     begun = time.monotonic()
...     yield
...     print(f"{len(events)} event(s) handled in {time.monotonic() - begun:.0f} s")
>>> around_handler.remove(timed)
"""

import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, TypeVar

from django.dispatch import Signal

from .events import Event

logger = logging.getLogger(__name__)

batch_handled = Signal()
"""A batch is done, and committed: `using`, `topic`, `group`, `partition`; `passed` (events that the cursor moved over)
and `failed` (those of them that were set aside); `seconds`; `worker_id`."""

event_failed = Signal()
"""A handler has failed, and what it was given is set aside: `using`, `topic`, `group`, `partition`; `offset` of the
first event, `count` of events, their `transaction_id`; `attempt`; `handler`, its name; `exception`, the object;
`retry_in_s`, seconds until the next attempt, or None if these are dead letters now."""

handler_overdue = Signal()
"""A handler has not ended a while after its `timeout` was over and it was interrupted: `topic`, `group`, `partition`;
`handler`, its name; `seconds`, its timeout. Told in a thread of its own, while the handler still runs."""

sequenced = Signal()
"""A pass has numbered something: `messages` (how many), `topic_ids`, `seconds`."""


def tell(signal: Signal, **facts: Any) -> None:
    """Sends a signal whose receivers cannot break the caller; Django logs what they raise.

    >>> tell(sequenced, messages=1, topic_ids=(1,), seconds=0.01)
    """
    if signal.receivers:
        signal.send_robust(sender=None, **facts)


@dataclass(kw_only=True, slots=True)
class Publishing:
    """An act of publishing, as the hooks around it see it."""

    topic: str
    using: str
    type: str = ""
    """Of the one event; empty where many are published at once."""
    many: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    """A hook may fill this: it is added to the metadata of each event. What the publisher gives goes before it."""
    event_id: uuid.UUID | None = None
    """Of the one event, when it is published."""
    count: int = 0
    """How many events were published, when they are."""


class Call(tuple[Event, ...]):
    """A call of a handler, as the hooks around it see it: its events; one, or all of them if it takes a batch."""

    repeats = False
    """Whether this attempt has been seen already: what it had done was undone because another event has failed."""
    may_be_abandoned = False
    """Whether it is made once more if it fails, and only then counts as an attempt."""


class Abandoned(Exception):
    """What the hooks around a call see in place of the handler's exception, which is its cause, where the events are
    going to be handled once more, one publisher's transaction at a time: that call is the attempt."""


S = TypeVar("S")
Factory = Callable[[S], AbstractContextManager[Any, Any]]


class Hook(Generic[S]):
    """Calling it gives the context manager that holds all observers that were added."""

    def __init__(self) -> None:
        self.observers: tuple[Factory[S], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.observers)

    def __call__(self, subject: S) -> AbstractContextManager[Any, None]:
        return _Observed(self.observers, subject) if self.observers else _UNOBSERVED

    def add(self, factory: Factory[S]) -> Factory[S]:
        """Adds an observer, once. Later ones are entered later, and left earlier."""
        if factory not in self.observers:
            self.observers = (*self.observers, factory)
        return factory

    def remove(self, factory: Factory[S]) -> None:
        """Takes an observer away; harmless if it is not there."""
        self.observers = tuple(present for present in self.observers if present != factory)


around_handler: Hook[Call] = Hook()
"""Entered around each call of a handler, with the events of this call: one, or all of them if it takes a batch. If the
handler raises, the context manager sees the exception, but cannot swallow it.

A batch is tried as a whole, and once more if that fails: a call that `repeats`, or ends by `Abandoned`, counts for no
attempt. Without those, each attempt is seen once."""

around_publishing: Hook[Publishing] = Hook()
"""Entered around each call of publish() or publish_many()."""


def around(*events: Event, repeats: bool = False, may_be_abandoned: bool = False) -> AbstractContextManager[Any, None]:
    """What a consumer wraps round each call of a handler.

    >>> with around():
    ...     pass
    """
    if not around_handler:
        return _UNOBSERVED
    call = Call(events)
    call.repeats, call.may_be_abandoned = repeats, may_be_abandoned
    return around_handler(call)


_UNOBSERVED: AbstractContextManager[Any, None] = nullcontext()


class _Observed(AbstractContextManager[None, None], Generic[S]):
    """Like an ExitStack of the observers, but none of them can break, or silence, what is observed."""

    def __init__(self, factories: Sequence[Factory[S]], subject: S) -> None:
        self.observers = factories
        self._subject = subject
        self._entered: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> None:
        for factory in self.observers:
            try:
                manager = factory(self._subject)
                manager.__enter__()
            except Exception:
                logger.exception("an observer failed: %r", factory)
            else:
                self._entered.append(manager)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seen = error
        if error is not None and isinstance(self._subject, Call) and self._subject.may_be_abandoned:
            seen = Abandoned("The batch is undone, and each of its transactions is handled once more.")
            seen.__cause__ = error
        for manager in reversed(self._entered):
            try:
                manager.__exit__(kind if seen is error else Abandoned, seen, trace)
            except Exception as raised:
                if raised is not seen:
                    _separate(raised, {id(error), id(seen)})
                    logger.exception("an observer failed: %r", manager)


def _separate(raised: BaseException, observed: set[int]) -> None:
    """Takes what was observed out of an error that it led to: that is reported by itself, and may be redacted there."""
    chain: BaseException | None = raised
    while chain is not None:
        if id(chain.__cause__) in observed:
            chain.__cause__ = None
        if id(chain.__context__) in observed:
            chain.__context__ = None
        chain = chain.__cause__ or chain.__context__
