"""What a subscription can choose: where it begins, what is promised about delivery, and what a failure holds up.

Each is an enum, and wherever one is expected its string does as well: ``on_failure="stop"`` is ``OnFailure.STOP``.
"""

import enum
from typing import Any, TypeVar

from .errors import InvalidSubscription

E = TypeVar("E", bound=enum.StrEnum)


class Start(enum.StrEnum):
    """Where a new group begins, unless it is at an offset or a time."""

    LATEST = "latest"
    """With what is published from now on."""
    EARLIEST = "earliest"
    """With the oldest event that is still there."""


class Delivery(enum.StrEnum):
    """What is promised if a worker dies in the middle.

    >>> Delivery("at_least_once") is Delivery.AT_LEAST_ONCE
    True
    """

    TRANSACTIONAL = "transactional"
    """Handlers run in the transaction that moves the group's cursor: effects in this database happen exactly once."""
    AT_LEAST_ONCE = "at_least_once"
    """Handlers run outside any transaction, under a lease, and what they have handled is acknowledged afterwards."""
    AT_MOST_ONCE = "at_most_once"
    """The group's cursor is moved first; a dying worker's batch is not handled again."""


class OnFailure(enum.StrEnum):
    """What happens to later events when one has failed and waits for its next attempt, or for an operator."""

    DEAD_LETTER = "dead_letter"
    """The group goes on with them."""
    PARK_KEY = "park_key"
    """Those of the same key wait, in order; other keys go on."""
    STOP = "stop"
    """The whole partition waits."""


def listed(kind: type[enum.StrEnum]) -> str:
    """The values of an enum, as an error lists them.

    >>> listed(Start), listed(OnFailure)
    ("'latest' or 'earliest'", "'dead_letter', 'park_key' or 'stop'")
    """
    *others, last = (repr(member.value) for member in kind)
    return f"{', '.join(others)} or {last}"


def chosen(kind: type[E], option: str, given: Any) -> E:
    """The member of an enum that an option names.

    >>> chosen(OnFailure, "on_failure", "stop")
    <OnFailure.STOP: 'stop'>
    >>> chosen(OnFailure, "on_failure", "ignore")
    Traceback (most recent call last):
    pubsub.errors.InvalidSubscription: on_failure must be 'dead_letter', 'park_key' or 'stop', not 'ignore'.
    """
    try:
        return kind(given)
    except ValueError as error:
        raise InvalidSubscription(f"{option} must be {listed(kind)}, not {given!r}.") from error
