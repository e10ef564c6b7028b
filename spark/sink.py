"""Publishing Spark's results: a batch is one transaction, and a stream's batch is published once.

Tasks run in many processes and may run twice. Each stages its rows under an id of its own. When all are done, one
transaction publishes the rows of the tasks that count, and notes the batch. This runs in Spark's workers, without
Django.
"""

import datetime as dt
import decimal
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

from pubsub.db.sql import load

from .errors import InvalidWrite

if TYPE_CHECKING:
    from pyspark.sql.types import Row, StructType

PUBLISH = load("spark/publish_staged")

CONTENT = ("topic", "type", "key", "host_id", "user_id", "to_group", "payload", "metadata")
"""The columns that a DataFrame may have."""

KEPT_BATCHES = 1000
"""How many notes of a stream's batches are kept, to look at. Spark only ever repeats the last batch."""

LEFT_OVER = "7 days"
"""Rows that were staged longer ago than this belong to a driver that is gone."""


@dataclass
class Staged(WriterCommitMessage):
    """What one task staged."""

    task_id: str
    query_id: str
    rows: int
    topics: tuple[str, ...]


class _Writer:
    """What both ways of writing have in common."""

    def __init__(
        self, address: Mapping[str, Any], schema: "StructType", options: Mapping[str, str], max_payload_bytes: int
    ) -> None:
        self.address = dict(address)
        self.columns = list(schema.fieldNames())
        self.topic = options.get("topic")
        self.max_payload_bytes = max_payload_bytes
        unknown = [name for name in self.columns if name not in CONTENT]
        if unknown:
            raise InvalidWrite(
                f"Events have no {', '.join(unknown)}. Select only what to publish: payload and, optionally, "
                f"{', '.join(name for name in CONTENT if name != 'payload')}."
            )
        if "payload" not in self.columns:
            raise InvalidWrite(f'A column "payload" is needed; there are: {", ".join(self.columns)}.')
        if self.topic is None and "topic" not in self.columns:
            raise InvalidWrite('Events need a topic: give the option "topic", or a column of that name.')

    def stage(self, rows: "Iterator[Row]", query_id: str) -> Staged:
        """Writes a task's rows where only :meth:`publish` looks. A task that fails leaves nothing."""
        import psycopg

        task_id, count, topics = uuid.uuid4(), 0, set()
        with psycopg.connect(**self.address) as connection, connection.cursor() as cursor:
            names = ", ".join(("task_id", *CONTENT))
            try:
                with cursor.copy(f"COPY spark_staged_events ({names}) FROM STDIN") as copy:
                    for count, row in enumerate(rows, start=1):
                        values = self._values(row.asDict(recursive=True), count)
                        topics.add(values[0])
                        copy.write_row((task_id, *values))
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                raise InvalidWrite(f"An event cannot be stored: {error}") from error
        return Staged(str(task_id), query_id, count, tuple(sorted(topics)))

    def publish(self, staged: Sequence[Staged], sink: str | None, batch_id: int) -> int:
        """Publishes all rows in one transaction, or none if this batch of this sink has already been published."""
        import psycopg

        tasks = [each.task_id for each in staged]
        count = sum(each.rows for each in staged)
        with psycopg.connect(**self.address) as connection, connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            self._check_topics(cursor, {name for each in staged for name in each.topics})
            is_new = True
            if sink is not None and count:
                cursor.execute(
                    "INSERT INTO spark_sink_batches (sink, batch_id, events) VALUES (%s, %s, %s)"
                    " ON CONFLICT DO NOTHING",
                    [sink, batch_id, count],
                )
                is_new = cursor.rowcount == 1
                cursor.execute(
                    "DELETE FROM spark_sink_batches WHERE sink = %s AND batch_id < %s", [sink, batch_id - KEPT_BATCHES]
                )
            if is_new and count:
                cursor.execute(PUBLISH, {"tasks": tasks})
                if cursor.rowcount != count:
                    raise InvalidWrite(
                        f"Only {cursor.rowcount} of {count} staged events are left; nothing was published."
                    )
            _forget(cursor, tasks)
        if is_new and count:
            # A hint for waiting processes; without it they look a moment later.
            with psycopg.connect(**self.address, autocommit=True) as connection:
                connection.execute("SELECT pg_notify('event_channel', '')")
        return count if is_new else 0

    def forget(self, staged: Sequence[Staged | None]) -> None:
        """Removes what the tasks of a failed batch staged."""
        import psycopg

        with psycopg.connect(**self.address) as connection, connection.cursor() as cursor:
            _forget(cursor, [each.task_id for each in staged if each is not None])

    def _values(self, row: Mapping[str, Any], number: int) -> tuple[Any, ...]:
        topic = row.get("topic") or self.topic
        if not topic:
            raise InvalidWrite(f'Row {number} has no topic, and there is no option "topic".')
        payload = _to_json("payload", row["payload"], number)
        metadata = "{}" if row.get("metadata") is None else _to_json("metadata", row["metadata"], number)
        for name, text in (("payload", payload), ("metadata", metadata)):
            if len(text) * 4 > self.max_payload_bytes and len(text.encode()) > self.max_payload_bytes:
                raise InvalidWrite(
                    f"Row {number}: {name} has {len(text.encode()):,} bytes; at most {self.max_payload_bytes:,} are "
                    f'allowed. Store it elsewhere and publish a reference, or raise PUBSUB["max_payload_bytes"].'
                )
        others = (None if row.get(name) is None else str(row[name]) for name in ("key", "host_id", "user_id"))
        return (topic, row.get("type") or "", *others, row.get("to_group"), payload, metadata)

    def _check_topics(self, cursor: Any, wanted: set[str]) -> None:
        cursor.execute("SELECT name FROM outbox_topics ORDER BY name")
        known = [name for (name,) in cursor.fetchall()]
        if missing := sorted(wanted - set(known)):
            raise InvalidWrite(
                f'There is no topic "{missing[0]}"; nothing was published. There are: {", ".join(known) or "none"}.'
            )


class StreamWriter(_Writer, DataSourceStreamWriter):
    """A stream's sink. Its batches are known by the id that Spark keeps in the query's checkpoint."""

    def write(self, iterator: "Iterator[Row]") -> Staged:
        from pyspark import TaskContext

        context = TaskContext.get()
        query_id = context.getLocalProperty("sql.streaming.queryId") if context else None
        if not query_id:
            raise InvalidWrite("Spark has not passed this task the id of its query, so nothing can be published.")
        return self.stage(iterator, query_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        staged = [message for message in messages if isinstance(message, Staged)]
        if staged:
            self.publish(staged, staged[0].query_id, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self.forget([message for message in messages if isinstance(message, Staged)])


class BatchWriter(_Writer, DataSourceWriter):
    """A batch write: all rows or none. With the options `sink` and `batchId` it happens once, as in foreachBatch()."""

    def __init__(
        self,
        address: Mapping[str, Any],
        schema: "StructType",
        options: Mapping[str, str],
        max_payload_bytes: int,
        *,
        overwrite: bool,
    ) -> None:
        super().__init__(address, schema, options, max_payload_bytes)
        if overwrite:
            raise InvalidWrite('Published events cannot be replaced: use mode("append").')
        self.sink, batch_id = options.get("sink"), options.get("batchId")
        if (self.sink is None) != (batch_id is None) or not (batch_id or "0").isdecimal():
            raise InvalidWrite(
                "sink and batchId belong together: a name, and a whole number that stays if the batch is repeated."
            )
        self.batch_id = int(batch_id or 0)

    def write(self, iterator: "Iterator[Row]") -> Staged:
        return self.stage(iterator, "")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self.publish([message for message in messages if isinstance(message, Staged)], self.sink, self.batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self.forget([message for message in messages if isinstance(message, Staged)])


def _forget(cursor: Any, tasks: Sequence[str]) -> None:
    cursor.execute("DELETE FROM spark_staged_events WHERE task_id = ANY (%s::uuid[])", [list(tasks)])
    cursor.execute("DELETE FROM spark_staged_events WHERE staged_at < now() - %s::interval", [LEFT_OVER])


def _to_json(name: str, value: Any, number: int) -> str:
    """Text is already JSON, as the source reads it; any other value is written as JSON."""
    if isinstance(value, str):
        text = value
        try:
            json.loads(text, parse_int=str)  # Python would refuse a number of thousands of digits
        except ValueError as error:
            raise InvalidWrite(
                f"Row {number}: {name} is not valid JSON ({error}). Use to_json(), or a struct: {text[:100]!r}"
            ) from error
    elif hasattr(value, "toJson"):  # a variant
        text = value.toJson()
    else:
        try:
            text = json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise InvalidWrite(f"Row {number}: {name} cannot be written as JSON: {error}.") from error
    if "\\u0000" in text.replace("\\\\", ""):
        raise InvalidWrite(f"Row {number}: {name} contains the character \\u0000, which PostgreSQL cannot store.")
    return text


def _plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return value.asDict()
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if hasattr(value, "toJson"):
        return json.loads(value.toJson())
    raise TypeError(f"it contains a {type(value).__name__}")
