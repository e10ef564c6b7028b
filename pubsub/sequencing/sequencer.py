"""The sequencer: it gives committed messages their offsets. A pass is one SQL function, which says in which order."""

import logging
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import connections
from psycopg.pq import TransactionStatus

from pubsub.db.pipeline import FailedBehindCommit, run
from pubsub.db.transactions import errors_as_djangos
from pubsub.signals import sequenced, tell

from .wake import MOVED_SETTING, NOTIFY_MOVED, Moved, moved_in

logger = logging.getLogger(__name__)

NUMBER = "SELECT outcome, events, topic_ids, partitions FROM pubsub_sequence_v1()"
_NEXT_DUE = "SELECT extract(epoch FROM min(deliver_at) - clock_timestamp())::float FROM outbox_delayed_message"
NUMBER_AND_REMEMBER = NUMBER.replace(" FROM", f", ({_NEXT_DUE}), set_config('{MOVED_SETTING}', partitions, false) FROM")
BEGIN_PASS = ("BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL statement_timeout = 0")
REANCHOR = "SELECT pubsub_reanchor_v1()"


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What a pass of the sequencer did."""

    outcome: str
    """`idle`, `busy` (a pass of another process is under way) or `numbered`."""
    messages: int
    topic_ids: tuple[int, ...]
    moved: Moved
    next_due_s: float | None = None
    """Seconds until a delayed event is due, if one waits; only a leader asks."""
    first_was_true: bool = False
    """What the statement before it answered."""


def sequence(using: str) -> Pass:
    """Number all messages committed since the last pass. Any process may call it at any time."""
    connection = connections[using]
    connection.ensure_connection()
    with errors_as_djangos(connection):
        return sequence_on(connection.connection)


def sequence_on(connection: psycopg.Connection[Any], first: str = "", *, notifies: bool = False) -> Pass:
    """The same on a psycopg connection. `first` is a statement to run before it, in the same round trip.

    If it `notifies`, it also wakes the processes that wait for new entries, in the same round trip again.
    """
    begun = time.monotonic()
    # Only then does it leave anything in the session, which otherwise may belong to a pooler.
    number, then = (NUMBER_AND_REMEMBER, NOTIFY_MOVED) if notifies else (NUMBER, "")
    (outcome, messages, topic_ids, partitions, *due), before = in_read_committed(connection, number, first, then)
    if outcome == "foreign":
        logger.warning("the database comes from another cluster: re-anchoring the sequencer while publishers wait")
        (waiting,), _ = in_read_committed(connection, REANCHOR)
        logger.warning("re-anchored; %d messages remain to be numbered", waiting, extra={"messages": waiting})
        (outcome, messages, topic_ids, partitions, *due), _ = in_read_committed(connection, number, then=then)
    if messages:
        logger.debug("numbered %d messages", messages, extra={"messages": messages})
        tell(sequenced, messages=messages, topic_ids=tuple(topic_ids), seconds=time.monotonic() - begun)
    return Pass(
        outcome=outcome,
        messages=messages,
        topic_ids=tuple(topic_ids),
        moved=moved_in(partitions) or frozenset(),
        next_due_s=due[0] if due else None,
        first_was_true=before == (True,),
    )


def in_read_committed(
    connection: psycopg.Connection[Any], statement: str, first: str = "", then: str = ""
) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """Run a statement that returns one row, in a transaction of its own and in one round trip. Returns it, and that of
    `first`, which runs before it in the same transaction; `then` runs after the commit.

    Each statement inside the function needs a
    snapshot of its own, whatever the database's default isolation is. It is not under the site's `statement_timeout`: a
    transaction is numbered as a whole, however large it is, and a pass that never ends in time would stop the log.
    """
    if connection.info.transaction_status != TransactionStatus.IDLE:
        # The function itself refuses a transaction of the wrong isolation.
        row, before = run(connection, [statement]).row(), None
    else:
        steps = [*BEGIN_PASS, first, statement, "COMMIT", then]
        try:
            answers, at = run(connection, list(filter(None, steps))), -3 if then else -2
        except FailedBehindCommit as error:
            logger.warning("the other processes could not be notified, and have to poll: %s", error.__cause__)
            answers, at = error.answers, -2
        except psycopg.Error:
            if not connection.closed:
                connection.execute("ROLLBACK")
            raise
        row, before = answers.row(at), answers.row(at - 1) if first else None
    assert row is not None  # noqa: S101 - the functions return exactly one row
    return row, before
