"""The log as SQL alone writes and reads it, and what must hold of it at any time."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

from pubsub.sequencing.sequencer import Pass, sequence_on
from tests.sessions import Session


def insert(session: Session, name: Any, *, topic: int = 1, key: str | None = None, host: str | None = None) -> int:
    """Publishes as any language could: one plain INSERT. Returns the message's id."""
    row = session.execute(
        "INSERT INTO outbox_message_t (topic_id, key, host_id, payload)"
        " VALUES (%s, %s, %s, jsonb_build_object('n', %s::text)) RETURNING id",
        [topic, key, host, str(name)],
    ).fetchone()
    assert row
    return int(row[0])


def number(session: Session) -> Pass:
    return sequence_on(session)


class Entry(NamedTuple):
    position: int
    topic: int
    offset: int
    partition: int
    message: int
    name: str
    transaction: str


def entries(session: Session, after: int = 0) -> list[Entry]:
    """The log from a position on, in its order."""
    rows = session.execute(
        "SELECT position, entry.topic_id, c_offset, partition_id, message_id, payload ->> 'n', transaction_id::text"
        " FROM log_entry AS entry LEFT JOIN outbox_message_t AS message ON message.id = entry.message_id"
        " WHERE position > %s ORDER BY position, c_offset",
        [after],
    ).fetchall()
    return [Entry(*row) for row in rows]


def names(log: Iterable[Entry]) -> list[str]:
    return [entry.name for entry in log]


def checked_log(session: Session, *, together: bool = True) -> list[Entry]:
    """The whole log, after checking what must hold of it whatever has happened before."""
    log = entries(session)
    assert [entry.position for entry in log] == list(range(1, len(log) + 1)), "positions have gaps"
    (following,) = session.execute("SELECT next_position FROM log_sequencer").fetchone() or (None,)
    assert following == len(log) + 1
    doubled = [message for message, times in Counter(entry.message for entry in log).items() if times > 1]
    assert not doubled, f"numbered more than once: messages {doubled[:20]}"
    assert all(entry.name is not None for entry in log), "entries of messages that do not exist"
    tips: Counter[int] = Counter()
    for entry in log:
        tips[entry.topic] += 1
        assert entry.offset == tips[entry.topic], f"{entry} should have offset {tips[entry.topic]}"
    told = dict(session.execute("SELECT topic_id, next_offset - 1 FROM log_counter").fetchall())
    assert told == dict(tips)
    counted = {
        (topic, partition): n
        for topic, partition, n in session.execute("SELECT topic_id, partition_id, entries FROM log_partition_counter")
    }
    assert counted == Counter((entry.topic, entry.partition) for entry in log)
    partitions = dict(session.execute("SELECT id, total_partitions FROM outbox_topics").fetchall())
    assert all(0 <= entry.partition < partitions[entry.topic] for entry in log)
    if together:
        runs = Counter(transaction for transaction, _ in groupby(log, key=lambda entry: entry.transaction))
        assert set(runs.values()) <= {1}, "transactions that are not contiguous"
    return log


def unnumbered(session: Session) -> int:
    (count,) = session.execute(
        "SELECT count(*) FROM outbox_message_t AS message"
        " WHERE NOT EXISTS (SELECT FROM log_entry WHERE message_id = message.id)"
    ).fetchone() or (0,)
    return int(count)
