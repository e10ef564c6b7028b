"""Types for the commands' arguments."""

import contextlib
import datetime as dt
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

from django.utils import timezone

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


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZES = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def duration(text: str) -> dt.timedelta:
    """A type for argparse: numbers with units.

    >>> duration("1d12h")
    datetime.timedelta(days=1, seconds=43200)
    """
    parts = re.fullmatch(r"(?:\d+[smhdw])+", text.strip().lower())
    if not parts:
        raise ArgumentTypeError(f"expected a duration such as 90s, 15m, 12h, 7d, 2w or 1d12h, got {text!r}")
    try:
        return dt.timedelta(seconds=sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+)([smhdw])", parts[0])))
    except OverflowError as error:
        raise ArgumentTypeError(f"{text!r} is too long") from error


def size(text: str) -> int:
    """A type for argparse: bytes, with an optional unit.

    >>> size("2GB"), size("64MiB"), size("500")
    (2000000000, 67108864, 500)
    """
    parts = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if not parts or parts[2] not in _SIZES or int(parts[1]) < 1:
        raise ArgumentTypeError(f"expected a number of bytes such as 500000000, 500MB or 2GiB, got {text!r}")
    return int(parts[1]) * _SIZES[parts[2]]


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
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    return _moment(text, "earliest, latest, an offset, a time such as 2030-01-31T12:00, or how long ago, such as 2h")


def moment(text: str) -> dt.datetime:
    """A type for argparse: a time, or how long ago it was.

    >>> moment("2030-01-31T12:00+00:00").year, moment("24h") < timezone.now()
    (2030, True)
    """
    return _moment(text, "a time such as 2030-01-31T12:00, or how long ago, such as 24h")


def _moment(text: str, expected: str) -> dt.datetime:
    with contextlib.suppress(ArgumentTypeError):
        return timezone.now() - duration(text)
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
