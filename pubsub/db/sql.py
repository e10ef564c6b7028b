"""The statements that matter: each in a file of its own, in the folder `sql` beside the code that sends it."""

import functools
import re
from importlib.resources import files

_HEAD = re.compile(r"\A(--[^\n]*\n)+")
_PIECE = re.compile(r"\{([a-z_]+)\}")


def load(name: str, /, **pieces: str) -> str:
    """The statement in `pubsub/PACKAGE/sql/STATEMENT.sql`, without the comment at its head, which is for readers.

    Values are parameters, %(name)s. SQL that differs from call to call, such as a subscription's filter, is a piece,
    {name}, and is given by keyword.

    >>> load("monitoring/status_topics").split()[0]
    'SELECT'
    """
    statement = _read(name)
    return fill(statement, **pieces) if pieces else statement


def fill(template: str, /, **pieces: str) -> str:
    """SQL in which each {name} is replaced by other SQL; never by a value. Other braces stay as they are.

    >>> fill("SELECT '{}', '{1,2}' FROM {table}", table="log_entry")
    "SELECT '{}', '{1,2}' FROM log_entry"
    """
    return _PIECE.sub(lambda found: pieces[found[1]], template)


@functools.cache
def _read(name: str) -> str:
    package, _, statement = name.rpartition("/")
    text = files("pubsub").joinpath(package, "sql", f"{statement}.sql").read_text(encoding="utf-8")
    return _HEAD.sub("", text)
