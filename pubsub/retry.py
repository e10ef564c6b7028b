"""When a failed event is tried again: after a list of delays, after ever longer ones, or by a policy of your own."""

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from .errors import InvalidSubscription

_EXPECTED = (
    "retry must be a list of seconds before each further attempt, such as [60, 300], a Backoff, or an object with "
    "retries, delay_after(attempts) and as_json()"
)


@runtime_checkable
class RetryPolicy(Protocol):
    """When a failed event is tried again. Anything with these three can be given as ``retry=``.

    Workers call it in their own threads, and in the middle of a transaction: it must be quick, and must not fail.
    """

    @property
    def retries(self) -> int:
        """Further attempts after the first one, at most."""

    def delay_after(self, attempts: int) -> float | None:
        """Seconds to wait after so many attempts; None if there is to be no further one."""

    def as_json(self) -> Any:
        """What the subscription's row and the admin show of it."""


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Delays that grow, for a number of further attempts.

    >>> [Backoff(retries=4, first_s=5, factor=3, longest_s=60, jitter=0).delay_after(n) for n in (1, 2, 3, 4, 5)]
    [5, 15, 45, 60, None]
    """

    retries: int = 10
    """Further attempts after the first one."""
    first_s: float = 5
    """Seconds before the first of them."""
    factor: float = 2
    """What each delay is multiplied by to get the next one."""
    longest_s: float = 3600
    """No delay is longer than this."""
    jitter: float = 0.1
    """The share of a delay by which it is randomly shorter or longer, so that not all events come back at once."""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("retries", 1, 1000),
            ("first_s", 0, math.inf),
            ("factor", 1, 100),
            ("longest_s", self.first_s, 30 * 24 * 3600),
            ("jitter", 0, 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise InvalidSubscription(f"{name} of a Backoff must be from {least} to {most}, not {value!r}.")
        if not isinstance(self.retries, int):
            raise InvalidSubscription(f"retries of a Backoff must be a whole number, not {self.retries!r}.")

    def delay_after(self, attempts: int) -> float | None:
        """Seconds to wait after so many attempts; None if there is to be no further one."""
        if attempts > self.retries:
            return None
        # The exponent is bounded, as a float's is.
        delay = min(self.longest_s, self.first_s * self.factor ** min(attempts - 1, 150))
        if self.jitter:
            delay *= 1 + self.jitter * (2 * random.random() - 1)  # noqa: S311
        return delay

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Delays:
    """The seconds before each further attempt."""

    seconds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for delay in self.seconds:
            if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < math.inf:
                raise InvalidSubscription(f"{_EXPECTED}; not {list(self.seconds)!r}.")

    @property
    def retries(self) -> int:
        return len(self.seconds)

    def delay_after(self, attempts: int) -> float | None:
        return self.seconds[attempts - 1] if attempts <= len(self.seconds) else None

    def as_json(self) -> list[float]:
        return list(self.seconds)


def retry_policy(given: Any) -> RetryPolicy:
    """The policy that is meant by `retry=`.

    >>> retry_policy([60, 300]).delay_after(2)
    300
    """
    if isinstance(given, RetryPolicy) and not isinstance(given, type):
        _check(given)
        return given
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise InvalidSubscription(f"{_EXPECTED}; not {given!r}.")
    return Delays(tuple(given))


def _check(policy: RetryPolicy) -> None:
    if isinstance(policy.retries, bool) or not isinstance(policy.retries, int) or policy.retries < 0:
        raise InvalidSubscription(
            f"retries of {policy!r} must be a whole number of at least 0, not {policy.retries!r}."
        )
    try:
        json.dumps(policy.as_json(), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidSubscription(f"as_json() of {policy!r} must return what JSON can carry: {error}.") from error
