"""Types for the commands' arguments."""

import datetime as dt
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

from django.utils import timezone

from pubsub import topic_options

T = TypeVar("T")


def whole_number(at_least: int) -> Callable[[str], int]:
    """A type for argparse, whose errors say what was expected.

    >>> whole_number(1)("10")
    10
    """

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < at_least:
            raise ArgumentTypeError(f"expected a whole number of at least {at_least}, got {text!r}")
        return int(text)

    return parse


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

    >>> start("latest"), start("17"), start("2030-01-31T12:00+00:00").year
    ('latest', 17, 2030)
    """
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    return _time(text, "earliest, latest, an offset, or a time such as 2030-01-31T12:00")


def moment(text: str) -> dt.datetime:
    """A type for argparse: a time, or how long ago it was.

    >>> moment("2030-01-31T12:00+00:00").year, moment("24h") < timezone.now()
    (2030, True)
    """
    try:
        return timezone.now() - duration(text)
    except ArgumentTypeError:
        pass
    return _time(text, "a time such as 2030-01-31T12:00, or how long ago, such as 24h")


def _time(text: str, expected: str) -> dt.datetime:
    try:
        given = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"expected {expected}, got {text!r}") from error
    return given if given.tzinfo else timezone.make_aware(given)


def steps(text: str) -> int:
    """A type for argparse: a number of events forward or back.

    >>> steps("-10"), steps("+3")
    (-10, 3)
    """
    if not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise ArgumentTypeError(f"expected a number of events such as +100 or -100, got {text!r}")
    return int(text)
