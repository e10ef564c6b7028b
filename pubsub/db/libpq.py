"""The short way: statements go to libpq by what psycopg's cursors are made of, and not by these.

Where statements are small, the layers above libpq are what they cost: publishing saves a third of its client's time
here. All of it is private to psycopg: `generators.execute`, `Transformer`, `Connection.lock` and `wait`,
`error_from_result`. So it is tried on the first session of a process (:func:`try_on`), psycopg's version has a ceiling
in pyproject.toml, and ``PUBSUB["short_way"] = False`` does without.
"""

import logging
from typing import Any

import psycopg
from psycopg import errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import Escaping
from psycopg.pq.abc import PGresult

from pubsub.conf import conf
from pubsub.errors import InvalidSetting

__all__ = ["Escaping", "FailedBehindCommit", "Transformer", "encoding", "error_of", "generators"]

logger = logging.getLogger(__name__)

works: bool | None = None


class FailedBehindCommit(Exception):
    """What was to be committed is; a statement behind the COMMIT failed, for the reason that is the cause."""

    def __init__(self, answers: Any) -> None:
        self.answers = answers
        """To the statements up to the COMMIT, which is the last of them."""


def error_of(session: psycopg.Connection[Any], result: PGresult) -> psycopg.Error:
    """What a statement failed by."""
    return errors.error_from_result(result, encoding=encoding(session))


def encoding(session: psycopg.Connection[Any]) -> str:
    """The session's, in Python's words."""
    name = session.info.encoding
    return "utf-8" if name == "ascii" else name  # SQL_ASCII takes any bytes, and psycopg sends these


def is_on() -> bool:
    """Whether ``PUBSUB["short_way"]`` is. A PUBSUB that is invalid is for the system check to report, not for this."""
    try:
        return conf().short_way
    except InvalidSetting:
        return False


def is_tried() -> bool:
    return works is not None


def try_on(session: Any) -> bool:
    """Tries it on a session of ours that is fresh. One on which it fails is of no use afterwards."""
    global works
    odd, reason = "it's \\ 1", "another answer than expected"
    try:
        with session.lock:
            session.pgconn.send_query(b"SELECT true; SELECT %b, 7, NULL" % session.literals([odd])[0])
            raw = session.wait(generators.execute(session.pgconn))
        results = session.results(raw)
        works = results.rows(-1) == [(odd, 7, None)] and results.rows(-2) == [(True,)]
        works &= isinstance(errors.error_from_result(raw[-1], encoding="utf-8"), psycopg.Error)
    except psycopg.Error:
        return False  # of this session; the next one tells
    except Exception as error:
        works, reason = False, repr(error)
    if not works:
        logger.warning("the short way is closed: psycopg %s is not as expected (%s)", psycopg.__version__, reason)
    return works
