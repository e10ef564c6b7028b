"""The short way: statements go to libpq by what psycopg's cursors are made of, and not by these.

Where statements are small, the layers above libpq are what they cost: publishing saves a third of its client's time
here. All of it is private to psycopg: `generators.execute`, `Transformer`, `Connection.lock` and `wait`,
`error_from_result`. So it is tried on the first session of a process (:func:`try_on`), psycopg's version has a ceiling
in pyproject.toml, and ``PUBSUB["short_way"] = False`` does without.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import Escaping, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from pubsub.conf import conf
from pubsub.errors import InvalidSetting

logger = logging.getLogger(__name__)

_works: bool | None = None

_PLAIN = (str, int, bool, type(None))


class Results:
    """What the server has answered to one message. Statements are counted from the last one: a BEGIN may have travelled
    before the first."""

    def __init__(self, session: psycopg.Connection[Any], results: Sequence[PGresult]) -> None:
        self._session = session
        self._results = results

    def rows(self, index: int = -1, *, make: Callable[[Iterable[Any]], Any] = tuple) -> list[Any]:
        result = self._results[index]
        transformer = Transformer(self._session)
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, make)

    def row(self, index: int = -1) -> tuple[Any, ...] | None:
        return next(iter(self.rows(index)), None)

    @property
    def is_true(self) -> bool:
        result = self._results[-1]
        return bool(result.ntuples) and result.get_value(0, 0) == b"t"


class FailedBehindCommit(Exception):
    """What was to be committed is; a statement behind the COMMIT failed, for the reason that is the cause."""

    def __init__(self, answers: Any) -> None:
        self.answers = answers
        """To the statements up to the COMMIT, which is the last of them."""


def begin(session: psycopg.Connection[Any]) -> str:
    """What psycopg would begin a transaction with: the levels that the database's OPTIONS may ask for, included."""
    words = ["BEGIN"]
    if session.isolation_level is not None:
        words.append(f"ISOLATION LEVEL {session.isolation_level.name.replace('_', ' ')}")
    if session.read_only is not None:
        words.append("READ ONLY" if session.read_only else "READ WRITE")
    if session.deferrable is not None:
        words.append("DEFERRABLE" if session.deferrable else "NOT DEFERRABLE")
    return " ".join(words)


def execute(session: psycopg.Connection[Any], text: bytes) -> Results:
    """Sends statements, with their values in them, as one message. If a transaction has to begin, BEGIN is in it."""
    with session.lock:
        if not session.autocommit and session.pgconn.transaction_status == TransactionStatus.IDLE:
            text = begin(session).encode() + b"; " + text
        results = _exchange(session, text)
    if results[-1].status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        _fail(session, results)
    return Results(session, results)


def _exchange(session: psycopg.Connection[Any], text: bytes) -> Sequence[PGresult]:
    session.pgconn.send_query(text)
    results: Sequence[PGresult] = session.wait(generators.execute(session.pgconn))
    return results


def _fail(session: psycopg.Connection[Any], results: Sequence[PGresult]) -> None:
    """Raises what the last statement failed by, behind which none was executed."""
    error = errors.error_from_result(results[-1], encoding=encoding(session))
    for number, result in enumerate(results, start=1):
        if result.command_status == b"COMMIT":
            raise FailedBehindCommit(Results(session, results[:number])) from error
    raise error


def render(session: psycopg.Connection[Any], statement: str, parameters: Mapping[str, Any]) -> bytes:
    """A statement with its values in it. What psycopg does for values of any type takes as long as a statement."""
    if all(type(value) in _PLAIN for value in parameters.values()):
        names = (name.encode() for name in parameters)
        return statement.encode() % dict(zip(names, literals(session, parameters.values()), strict=True))
    return psycopg.ClientCursor(session).mogrify(statement, parameters).encode(encoding(session))


def literals(session: psycopg.Connection[Any], values: Iterable[str | int | None]) -> list[bytes]:
    """Values as they stand in a statement."""
    quote = Escaping(session.pgconn).escape_literal
    return [
        quote(value.encode() if value.isascii() else value.encode(encoding(session)))
        if isinstance(value, str)
        else b"NULL"
        if value is None
        else str(value).encode()  # PostgreSQL reads Python's True and False, too
        for value in values
    ]


def encoding(session: psycopg.Connection[Any]) -> str:
    """The session's, in Python's words."""
    name = session.info.encoding
    return "utf-8" if name == "ascii" else name  # SQL_ASCII takes any bytes, and psycopg sends these


def is_open() -> bool:
    """Whether statements may go this way: it is not switched off, and this psycopg has what is used here."""
    return _works is not False and is_on()


def is_on() -> bool:
    """Whether ``PUBSUB["short_way"]`` is. A PUBSUB that is invalid is for the system check to report, not for this."""
    try:
        return conf().short_way
    except InvalidSetting:
        return False


def is_tried() -> bool:
    return _works is not None


def try_on(session: psycopg.Connection[Any]) -> bool:
    """Tries it on a session that is fresh. One on which it fails is of no use afterwards."""
    global _works
    odd, reason = "it's \\ 1", "another answer than expected"
    try:
        with session.lock:
            raw = _exchange(session, b"SELECT true; SELECT %b, 7, NULL" % b",".join(literals(session, [odd])))
        results = Results(session, raw)
        _works = results.rows(-1) == [(odd, 7, None)] and results.rows(-2) == [(True,)]
        _works &= isinstance(errors.error_from_result(raw[-1], encoding="utf-8"), psycopg.Error)
    except psycopg.Error:
        return False  # of this session; the next one tells
    except Exception as error:
        _works, reason = False, repr(error)
    if not _works:
        logger.warning("the short way is closed: psycopg %s is not as expected (%s)", psycopg.__version__, reason)
    return _works
