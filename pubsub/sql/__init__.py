"""The statements that matter, one in each file."""

import functools
from importlib.resources import files


@functools.cache
def load(name: str) -> str:
    """The text of `pubsub/sql/NAME.sql`."""
    return files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
