"""Numbering: committed messages get their places in the log, in commit order. The work itself is one SQL function."""

import logging
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import connections
from psycopg.pq import TransactionStatus

from pubsub.signals import sequenced, tell
from pubsub.sql import load
from pubsub.statements import FailedBehindCommit, run

from .wakeup import MOVED_SETTING, TELL_MOVED

logger = logging.getLogger("pubsub.sequencing")

NUMBER = "SELECT outcome, messages, topic_ids FROM pubsub_sequence_v1()"
NUMBER_AND_REMEMBER = NUMBER.replace(
    " FROM", f", set_config('{MOVED_SETTING}', array_to_string(topic_ids, ','), false) FROM"
)
REANCHOR = "SELECT pubsub_reanchor_v2()"


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What a sequencing pass did."""

    outcome: str
    """`idle`, `busy` (another process is numbering) or `numbered`."""
    messages: int
    topic_ids: tuple[int, ...]


def sequence(using: str) -> Pass:
    """Numbers all that has committed since the last pass. Any process may call it at any time."""
    connection = connections[using]
    connection.ensure_connection()
    with connection.wrap_database_errors:
        return sequence_on(connection.connection)


def sequence_on(connection: psycopg.Connection[Any], first: str = "", *, tells: bool = False) -> Pass:
    """The same on a connection of psycopg's. `first` is a statement to run before, in the same round trip; so is what
    wakes those who wait for new entries, after it, if this process `tells`."""
    begun = time.monotonic()
    # Only who tells leaves something in the session: the others may have one of a pooler's.
    number, then = (NUMBER_AND_REMEMBER, TELL_MOVED) if tells else (NUMBER, "")
    outcome, messages, topic_ids, *_ = in_read_committed(connection, number, first, then)
    if outcome == "foreign":
        logger.warning("the database comes from another cluster: re-anchoring the sequencer, publishers wait meanwhile")
        (waiting,) = in_read_committed(connection, REANCHOR)
        logger.warning("re-anchored; %d messages are still to be numbered", waiting, extra={"messages": waiting})
        outcome, messages, topic_ids, *_ = in_read_committed(connection, number, then=then)
    if messages:
        logger.debug("numbered %d messages", messages, extra={"messages": messages})
        tell(sequenced, messages=messages, topic_ids=tuple(topic_ids), seconds=time.monotonic() - begun)
    return Pass(outcome=outcome, messages=messages, topic_ids=tuple(topic_ids))


def in_read_committed(
    connection: psycopg.Connection[Any], statement: str, first: str = "", then: str = ""
) -> tuple[Any, ...]:
    """The one row of a statement that is a transaction of its own, in one round trip. Another one may run `then`.

    Each statement inside the function must have a snapshot of its own, whatever the database's default isolation is.
    """
    if connection.info.transaction_status != TransactionStatus.IDLE:
        # The function itself refuses a transaction in which it would be wrong.
        row = run(connection, statement).row()
    else:
        steps = ["BEGIN ISOLATION LEVEL READ COMMITTED", first, statement, "COMMIT", then]
        try:
            answers = run(connection, "; ".join(filter(None, steps)))
        except FailedBehindCommit as error:
            logger.warning("the other processes could not be told, and have to poll: %s", error.__cause__)
            answers = error.answers
        except psycopg.Error:
            if not connection.closed:
                connection.execute("ROLLBACK")
            raise
        row = answers.row(-3 if then else -2)
    assert row is not None  # noqa: S101 - the functions return exactly one row
    return row


def move_due_messages(using: str, limit: int = 1000) -> int:
    """Moves delayed messages whose time has come to the outbox. Returns how many."""
    with connections[using].cursor() as cursor:
        cursor.execute(load("move_due_messages"), {"limit": limit})
        return int(cursor.rowcount)
