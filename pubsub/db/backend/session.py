"""The sessions that Django gets from psycopg: BEGIN travels with the first statement, and events with the last.

psycopg begins a transaction by itself before the first statement, in a round trip of its own. Here BEGIN stands in the
same message as the statement, wherever psycopg sends that as text, which is what Django asks of it. All else – COPY,
named cursors, executemany(), pipelines, binding on the server – begins as psycopg begins it.

What only has to be in the database when another statement could see it, or the transaction commits, waits in the
session: for the COMMIT, to travel in its message, or for whatever is sent before. A savepoint that is undone takes it
along.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from pubsub.conf import conf
from pubsub.db import libpq
from pubsub.db.guard import refusal
from pubsub.db.libpq import FailedBehindCommit

logger = logging.getLogger(__name__)

MAY_TRAVEL = hasattr(psycopg.Connection, "_start_query")

_IDLE, _IN_TRANSACTION, _FAILED = TransactionStatus.IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR

_PLAIN = (str, int, bool, type(None))

_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)

MOST_UNSENT = 1024 * 1024
"""How many characters wait in a session; then they are sent."""


class Results:
    """What the server has answered to one message. Statements are counted from the last one: a BEGIN may have travelled
    before the first."""

    def __init__(self, session: psycopg.Connection[Any], results: Sequence[PGresult]) -> None:
        self._session = session
        self._results = results

    def rows(self, index: int = -1, *, make: Callable[[Iterable[Any]], Any] = tuple) -> list[Any]:
        result = self._results[index]
        transformer = libpq.Transformer(self._session)
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, make)

    def row(self, index: int = -1) -> tuple[Any, ...] | None:
        return next(iter(self.rows(index)), None)

    def without(self, index: int) -> "Results":
        """All but one."""
        index %= len(self._results)
        return Results(self._session, [*self._results[:index], *self._results[index + 1 :]])

    @property
    def is_true(self) -> bool:
        result = self._results[-1]
        return bool(result.ntuples) and result.get_value(0, 0) == b"t"


class Session(psycopg.Connection[Any]):
    """A session of psycopg's that begins with its first statement."""

    unsent: list[str] | None = None
    """What waits for the next message, as JSON."""
    behind_commit = b""
    """A statement that travels with the COMMIT and is executed behind it."""
    _takes_unsent = b""
    """The statement that takes what waits, as an array in the place of %b."""
    _then = b""
    """What is to be executed behind the commit if what waits is in it."""
    _size = 0
    _had_begun = False
    """Whether the transaction had begun on the server when something began to wait."""
    _blocks = 0
    """Blocks of psycopg's that are open. They end by themselves, and would send nothing of ours before."""
    _begin_travels = False

    @classmethod
    def connect(cls, *arguments: Any, **parameters: Any) -> Self:
        session = super().connect(*arguments, **parameters)
        if libpq.is_on() and not libpq.is_tried() and not libpq.try_on(session):
            session.close()
            session = super().connect(*arguments, **parameters)
        return session

    # How it begins

    @property
    def is_to_begin(self) -> bool:
        """Whether the next statement has to begin a transaction, and can do so in its own message."""
        return (
            not self.autocommit
            and not self.unsent
            and self.pgconn.transaction_status == _IDLE
            and self.pgconn.pipeline_status == PipelineStatus.OFF
        )

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """What is sent meanwhile begins the transaction itself, or needs nothing before it."""
        self._begin_travels = True
        try:
            yield
        finally:
            self._begin_travels = False

    # Private in psycopg: what its cursors send first. If it is called otherwise one day, the transaction is begun
    # twice: PostgreSQL warns and goes on. Nothing waits in a session then (MAY_TRAVEL).
    def _start_query(self) -> PQGen[None]:
        if self._begin_travels:
            return
        if self._something_waits():
            yield from self._exchange()
        else:
            yield from super()._start_query()

    # The short way: messages to libpq, by what psycopg's cursors are made of

    @property
    def goes_short(self) -> bool:
        """Whether statements may go this way: it is not switched off, and this psycopg has what is used here."""
        return libpq.works is not False and conf().short_way

    def results(self, raw: Sequence[PGresult]) -> Results:
        return Results(self, raw)

    def send(self, text: bytes) -> Results:
        """Sends statements, with their values in them, as one message. If a transaction has to begin, BEGIN is in it,
        and so is what waits."""
        with self.lock:
            return self.results(self.wait(self._exchange(text)))

    def send_together(self, statements: Sequence[str], parameters: Mapping[str, Any]) -> Results:
        """The same for statements that have marks for their values. Behind a COMMIT follows what has to."""
        if "COMMIT" not in statements or not (then := self._behind_commit):
            return self.send(self.render("; ".join(statements), parameters))
        end = statements.index("COMMIT") + 1
        texts = [self.render("; ".join(some), parameters) for some in (statements[:end], statements[end:]) if some]
        texts.insert(1, then)
        try:
            return self.send(b"; ".join(texts)).without(end - len(statements) - 1)
        finally:
            self.forget()

    def _exchange(self, text: bytes = b"") -> Generator[Any, Any, Sequence[PGresult]]:
        ahead = self._ahead()
        self.pgconn.send_query(b"; ".join([*ahead, text] if text else ahead))
        results: Sequence[PGresult] = yield from libpq.generators.execute(self.pgconn)
        if self.unsent and len(results) >= len(ahead) and results[len(ahead) - 1].status in _DONE:
            # Otherwise it is undone; or nothing of the message was executed, and it still waits.
            self.unsent, self.behind_commit = None, self._then
        if results[-1].status not in _DONE:
            error = libpq.error_of(self, results[-1])
            for number, result in enumerate(results, start=1):
                if result.command_status == b"COMMIT":
                    raise FailedBehindCommit(self.results(results[:number])) from error
            raise error
        return results

    def render(self, statement: str, parameters: Mapping[str, Any]) -> bytes:
        """A statement with its values in it. What psycopg does for values of any type takes as long as a statement."""
        if all(type(value) in _PLAIN for value in parameters.values()):
            names = (name.encode() for name in parameters)
            return statement.encode() % dict(zip(names, self.literals(parameters.values()), strict=True))
        return psycopg.ClientCursor(self).mogrify(statement, parameters).encode(libpq.encoding(self))

    def literals(self, values: Iterable[str | int | None]) -> list[bytes]:
        """Values as they stand in a statement."""
        quote = libpq.Escaping(self.pgconn).escape_literal
        return [
            quote(value.encode() if value.isascii() else value.encode(libpq.encoding(self)))
            if isinstance(value, str)
            else b"NULL"
            if value is None
            else str(value).encode()  # PostgreSQL reads Python's True and False, too
            for value in values
        ]

    def _ahead(self) -> list[bytes]:
        """What has to stand before the next statement: BEGIN, and what waits, as the last."""
        status = self.pgconn.transaction_status
        begins = status == _IDLE and not self.autocommit
        ahead = [begin(self).encode()] if begins else []
        if self._something_waits():
            if self.autocommit or (begins and self._had_begun):
                self.forget()
                raise psycopg.ProgrammingError(
                    "The transaction was ended past the connection's commit() and rollback(), and past its cursors, "
                    "with events that were still to be sent: they are not in the database."
                )
            ahead.append(self._takes_unsent % self.literals([f"[{','.join(self.unsent or ())}]"])[0])
        return ahead

    # What waits

    def _something_waits(self) -> bool:
        if self.unsent and self.pgconn.transaction_status == _FAILED:
            self.unsent = None  # it is part of what has failed, and whatever undoes that undoes it
        return bool(self.unsent)

    @property
    def may_keep(self) -> bool:
        """Whether something may wait: a transaction is open that is sound, and ends by what is defined here."""
        return (
            MAY_TRAVEL
            and not self.autocommit
            and not self._blocks
            and self.pgconn.transaction_status in (_IDLE, _IN_TRANSACTION)
        )

    def keep(self, items: Sequence[str], takes: bytes, behind_commit: bytes) -> None:
        """Keeps these until the next message. `takes` is the statement that takes them all, and those that are kept
        already; `behind_commit` is executed when the transaction has committed."""
        with self.lock:  # another thread that shares the session may be sending what waits
            if self.unsent is None:
                self.unsent, self._takes_unsent, self._then, self._size = [], takes, behind_commit, 0
                self._had_begun = self.pgconn.transaction_status == _IN_TRANSACTION
            self.unsent += items
            self._size += sum(map(len, items))

    @property
    def is_full(self) -> bool:
        """Whether so much waits that it is to be sent before more is kept."""
        return self.unsent is not None and self._size > MOST_UNSENT

    def send_unsent(self) -> None:
        if self.unsent:
            with self.lock:
                self.wait(self._start_query())

    def forget(self) -> None:
        """Forgets what the transaction was to take along: it is done, or undone."""
        self.unsent = None
        self.behind_commit = b""

    @property
    def _behind_commit(self) -> bytes:
        return self.behind_commit or (self._then if self.unsent else b"")

    # How it ends, and what else sends statements past the cursors

    def commit(self) -> None:
        is_sound = not self.closed and self.pgconn.transaction_status != _FAILED
        if (then := self._behind_commit) and is_sound and not self._blocks:
            try:
                with self.lock:
                    self.wait(self._exchange(b"COMMIT; " + then))
            except FailedBehindCommit as error:
                logger.warning("committed, but those that wait could not be notified: %s", error.__cause__)
        else:
            super().commit()
        self.forget()

    def rollback(self) -> None:
        self.forget()
        super().rollback()

    @contextmanager
    def transaction(self, savepoint_name: str | None = None, force_rollback: bool = False) -> Iterator[Any]:
        self.send_unsent()
        self._blocks += 1
        try:
            with super().transaction(savepoint_name, force_rollback) as block:
                yield block
        finally:
            self._blocks -= 1

    @contextmanager
    def pipeline(self) -> Iterator[Any]:
        self.send_unsent()
        with super().pipeline() as pipeline:
            yield pipeline

    def tpc_begin(self, xid: Any) -> None:
        self.send_unsent()
        self._blocks += 1  # for good: two phases end in many ways
        super().tpc_begin(xid)


class RefusingSession(Session):
    """A session in whose transaction a handler is called: it ends nothing."""

    def commit(self) -> None:
        raise refusal("commit()")

    def rollback(self) -> None:
        raise refusal("rollback()")


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
