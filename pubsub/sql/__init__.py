"""The statements that matter, one in each file."""

import functools
import re
from importlib.resources import files

_HEAD = re.compile(r"\A(--[^\n]*\n)+")


@functools.cache
def load(name: str) -> str:
    """The statement in `pubsub/sql/NAME.sql`, without the comment at its head, which is for people."""
    return _HEAD.sub("", files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8"))
