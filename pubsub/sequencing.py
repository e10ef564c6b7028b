"""Numbering: committed messages get their places in the log, in commit order. The work itself is one SQL function."""

import logging
from dataclasses import dataclass

from django.db import connections

from .sql import load
from .transactions import read_committed

logger = logging.getLogger("pubsub.sequencing")


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What a sequencing pass did."""

    outcome: str
    """`idle`, `busy` (another process is numbering) or `numbered`."""
    messages: int
    topic_ids: tuple[int, ...]


def sequence(using: str) -> Pass:
    """Numbers all that has committed since the last pass. Any process may call it at any time."""
    done = _pass(using)
    if done.outcome == "foreign":
        _reanchor(using)
        done = _pass(using)
    if done.messages:
        logger.debug("numbered %d messages", done.messages, extra={"messages": done.messages})
    return done


def move_due_messages(using: str, limit: int = 1000) -> int:
    """Moves delayed messages whose time has come to the outbox. Returns how many."""
    with connections[using].cursor() as cursor:
        cursor.execute(load("move_due_messages"), {"limit": limit})
        return int(cursor.rowcount)


def _pass(using: str) -> Pass:
    with read_committed(using) as cursor:
        cursor.execute("SELECT outcome, messages, topic_ids FROM pubsub_sequence_v1()")
        outcome, messages, topic_ids = cursor.fetchone()
    return Pass(outcome=outcome, messages=messages, topic_ids=tuple(topic_ids))


def _reanchor(using: str) -> None:
    logger.warning("the database comes from another cluster: re-anchoring the sequencer, publishers wait meanwhile")
    with read_committed(using) as cursor:
        cursor.execute("SELECT pubsub_reanchor_v1()")
        (waiting,) = cursor.fetchone()
    logger.warning("re-anchored; %d messages are still to be numbered", waiting, extra={"messages": waiting})
