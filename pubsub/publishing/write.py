"""Writing checked events: with the session's next message, by COPY, as delayed ones, in a transaction of their own."""

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any

from django.db import transaction

from pubsub.db.pipeline import ask, keeping
from pubsub.db.transactions import errors_as_djangos

from .checked import COLUMNS, Checked
from .dedup import first_of_key
from .encode import as_json
from .notify import HINT, after_commit

TAKE = b"SELECT pubsub_publish_v1(%b)"
_INSERT_DELAYED = (
    f"INSERT INTO outbox_delayed_message (deliver_at, event_id, {', '.join(COLUMNS)}) "  # noqa: S608
    f"VALUES (%s, %s{', %s' * len(COLUMNS)})"
)
# PostgreSQL stores many copied rows at once, unless a default could be another one for each.
_COPY = f"COPY outbox_message_t (event_id, created_at, {', '.join(COLUMNS)}) FROM STDIN"
_NOW = "SELECT to_json(clock_timestamp()) #>> '{}'"
"""In a form that PostgreSQL reads back whatever the session's DateStyle is."""

FEW_EVENTS = 100
"""Fewer are published like one. For more of them COPY is faster, which takes round trips of its own."""

COPIED_EVENTS, COPIED_CHARACTERS = 1000, 1024 * 1024
"""How much of a generator publish_many() holds in memory, in events or in characters of JSON, whichever comes first."""


def write(connection: Any, event: Checked) -> uuid.UUID:
    """Writes one event. Returns its id, or that of the first one with its dedup key."""
    event_id = uuid.uuid4()
    if event.dedup_key:
        first_id = first_of_key(connection, event.row[0], event.dedup_key, event_id)
        if first_id != event_id:
            return first_id
    if event.deliver_at is None:
        leave(connection, [as_json(event_id, event.row)])
    else:
        with connection.cursor() as cursor:
            cursor.execute(_INSERT_DELAYED, (event.deliver_at, event_id, *event.row))
        after_commit(connection)
    return event_id


def write_many(connection: Any, events: Iterator[Checked], at_hand: bool) -> None:
    """Writes any number of events. If they are not all `at_hand`, what makes them may use the connection, too."""
    few = next(_batches(events, FEW_EVENTS), [])
    if _is_last(few, FEW_EVENTS) and all(event.is_plain for event in few):
        ids = _random_ids()
        leave(connection, [as_json(next(ids), event.row) for event in few])
        return
    # In a savepoint: if a later one is invalid, none remains, even where the error is caught.
    with transaction.atomic(using=connection.alias):
        for plain, run in groupby(chain(few, events), key=lambda event: event.is_plain):
            if plain:
                # What is at hand is encoded while PostgreSQL stores what came before, which is twice as fast.
                for batch in [run] if at_hand else _batches(run, COPIED_EVENTS):
                    _copy(connection, batch)
                after_commit(connection)
            else:
                for event in run:
                    write(connection, event)


def write_alone(connection: Any, event: Checked) -> None:
    """Writes one event in a transaction of its own. A single statement is one already, in one round trip."""
    if event.is_plain and connection.get_autocommit():
        write(connection, event)
    else:
        with transaction.atomic(using=connection.alias):
            write(connection, event)


def _batches(events: Iterable[Checked], most: int) -> Iterator[list[Checked]]:
    """Events in batches: during a COPY, a generator could not use the connection itself."""
    batch: list[Checked] = []
    size = 0
    for event in events:
        batch.append(event)
        size += event.size
        if len(batch) == most or size >= COPIED_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_last(batch: Sequence[Checked], most: int) -> bool:
    return len(batch) < most and sum(event.size for event in batch) < COPIED_CHARACTERS


def leave(connection: Any, texts: list[str]) -> None:
    """Leaves them to the session's next message, or sends them now where that is not possible."""
    if not texts:
        return
    if session := keeping(connection):
        session.keep(texts, TAKE, HINT)
    else:
        after_commit(connection, ask(connection, TAKE.decode(), (f"[{','.join(texts)}]",)))


def _copy(connection: Any, events: Iterable[Checked]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_NOW)
        (now,) = cursor.fetchone()
        with errors_as_djangos(connection), cursor.copy(_COPY) as copy:
            for event_id, event in zip(_random_ids(), events, strict=False):
                copy.write_row((event_id, now, *event.row))


def _random_ids() -> Iterator[str]:
    """Any number of version 4 UUIDs, as PostgreSQL reads them. Takes a quarter of uuid4()'s time.

    >>> uuid.UUID(next(_random_ids())).version
    4
    """
    while True:
        digits = os.urandom(16 * 512).hex()
        for begin in range(0, len(digits), 32):
            one = digits[begin : begin + 32]
            yield f"{one[:12]}4{one[13:16]}{'89ab'[int(one[16], 16) & 3]}{one[17:]}"
