"""When what failed is tried again: after a list of delays, or after ever longer ones."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pubsub.errors import InvalidSubscription


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
    """The share of a delay by which chance makes it shorter or longer, so that not all come back at once."""

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
        """Seconds to wait after so many attempts; none if there is to be no further one."""
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
                raise InvalidSubscription(
                    f"retry must be a list of seconds before each further attempt, such as [60, 300], or a Backoff; "
                    f"not {list(self.seconds)!r}."
                )

    @property
    def retries(self) -> int:
        return len(self.seconds)

    def delay_after(self, attempts: int) -> float | None:
        return self.seconds[attempts - 1] if attempts <= len(self.seconds) else None

    def as_json(self) -> list[float]:
        return list(self.seconds)


def retry_policy(given: Any) -> Backoff | Delays:
    """What `retry=` says.

    >>> retry_policy([60, 300]).delay_after(2)
    300
    """
    if isinstance(given, Backoff | Delays):
        return given
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise InvalidSubscription(
            f"retry must be a list of seconds before each further attempt, such as [60, 300], or a Backoff; "
            f"not {given!r}."
        )
    return Delays(tuple(given))
