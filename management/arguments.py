"""Types for the commands' arguments."""

import datetime as dt
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.core.management.base import CommandError
from django.utils import timezone

from pubsub import topic_options
from pubsub.topic_options import DURATION, shortened

from .exits import MISUSED

T = TypeVar("T")


LARGEST = 2**31 - 1
"""Of most numbers: what PostgreSQL calls an integer."""

LARGEST_ID = 2**63 - 1
"""Of ids and offsets."""


def whole_number(at_least: int, at_most: int = LARGEST) -> Callable[[str], int]:
    """A type for argparse, whose errors say what was expected.

    >>> whole_number(1)("10")
    10
    """

    def parse(text: str) -> int:
        # Python reads no number of some thousand digits.
        if not text.isdecimal() or len(text) > 20 or int(text) < at_least:
            raise ArgumentTypeError(f"expected a whole number of at least {at_least}, got {shortened(text)}")
        if int(text) > at_most:
            raise ArgumentTypeError(f"expected a whole number of at most {at_most}, got {shortened(text)}")
        return int(text)

    return parse


def check_texts(options: Mapping[str, Any]) -> None:
    """Ends the command if one of its options is no text that can be stored, and so none that can be looked for."""
    for name, value in options.items():
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and not _is_storable(text):
                raise CommandError(
                    f"--{name.replace('_', '-')}: expected text in UTF-8, got {shortened(text)}", returncode=MISUSED
                )


def _is_storable(text: str) -> bool:
    try:
        return "\x00" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    def parse_argument(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from error

    return parse_argument


duration = _argument(topic_options.duration)
"""A type for argparse: numbers with units."""
size = _argument(topic_options.size)
"""A type for argparse: bytes, with an optional unit."""


def or_none(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """A type for argparse, for an option that "none" removes.

    >>> or_none(size)("none") is None
    True
    """
    return lambda text: None if text.strip().lower() == "none" else parse(text)


def start(text: str) -> str | int | dt.datetime:
    """A type for argparse: where to start in a log.

    >>> start("latest"), start("17"), start("2030-01-31T12:00+00:00").year, start("2h") < timezone.now()
    ('latest', 17, 2030, True)
    """
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal():
        return whole_number(1, LARGEST_ID)(text)
    return _moment(text, "earliest, latest, an offset, a time such as 2030-01-31T12:00, or how long ago, such as 2h")


def moment(text: str) -> dt.datetime:
    """A type for argparse: a time, or how long ago it was.

    >>> moment("2030-01-31T12:00+00:00").year, moment("24h") < timezone.now()
    (2030, True)
    """
    return _moment(text, "a time such as 2030-01-31T12:00, or how long ago, such as 90m, 24h or 1d12h")


def _moment(text: str, expected: str) -> dt.datetime:
    try:
        if DURATION.fullmatch(text.strip().lower()):
            return timezone.now() - duration(text)
        given = dt.datetime.fromisoformat(text)
        given = given if given.tzinfo else timezone.make_aware(given)
        return given.astimezone(dt.UTC)  # which some times of the first and the last year have not
    except OverflowError:
        raise ArgumentTypeError(f"{shortened(text)} is not within the years 1 to 9999") from None
    except ValueError:
        raise ArgumentTypeError(f"expected {expected}, got {shortened(text)}") from None


def steps(text: str) -> int:
    """A type for argparse: a number of events forward or back.

    >>> steps("-10"), steps("+3")
    (-10, 3)
    """
    if not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise ArgumentTypeError(f"expected a number of events such as +100 or -100, got {text!r}")
    return int(text)
