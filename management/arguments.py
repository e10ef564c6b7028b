"""What the commands read from their command lines."""

from argparse import ArgumentTypeError
from collections.abc import Callable


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
