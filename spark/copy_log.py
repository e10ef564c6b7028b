"""The log by COPY into Arrow: how the streaming source reads. It runs in Spark's workers, without Django."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pubsub.db.sql import load

from .columns import COLUMNS
from .errors import RangeNotThere
from .plan import DENSE, IN_ORDER

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Workers do not have our files: these texts are sent to them along with the functions.
LOG = load("spark/log")

BYTES_AT_ONCE = 4 * 1024 * 1024
"""About this many bytes become one Arrow batch."""


def read_range(address: dict[str, Any], topic: str, topic_id: int, first: int, last: int) -> "Iterator[RecordBatch]":
    """A range of the log, complete or an error. The snapshot is held until the last event has been taken."""
    import psycopg

    within = f"topic_id = {int(topic_id)} AND c_offset BETWEEN {int(first)} AND {int(last)}"
    with psycopg.connect(**address, autocommit=True) as connection, connection.cursor() as cursor:
        # What is at an offset never changes, so this may be a statement of its own.
        cursor.execute(f"SELECT min(message_id), max(message_id), count(*) FROM log_entry WHERE {within}")  # noqa: S608
        lowest, highest, count = cursor.fetchone() or (0, 0, 0)
        if count and count >= DENSE * (highest - lowest + 1):
            within += f" AND message_id BETWEEN {lowest} AND {highest}"
            for name, value in IN_ORDER.items():
                cursor.execute(f"SET {name} = '{value}'")
        query = f"SELECT {', '.join(COLUMNS)} FROM ({LOG}) AS log WHERE {within}"  # noqa: S608 - all of it is ours
        found = 0
        with cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)") as copy:
            rows: list[Any] = []
            size = 0
            for row in copy:
                rows.append(row)
                size += len(row)
                if size >= BYTES_AT_ONCE:
                    found += len(rows)
                    yield _to_arrow(b"".join(rows), size)
                    rows, size = [], 0
        if rows:
            found += len(rows)
            yield _to_arrow(b"".join(rows), size)
    if found != last - first + 1:
        raise RangeNotThere(
            f'Of offsets {first} to {last} of topic "{topic}" only {found} are left: retention dropped the others '
            f"while they were being read. A stream with the option group holds retention back."
        )


def _to_arrow(text: bytes, size: int) -> "RecordBatch":
    import pyarrow
    from pyarrow import csv

    kinds = {
        "string": pyarrow.string(),
        "bigint": pyarrow.int64(),
        "int": pyarrow.int32(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
    }
    # All of it is one block, so that no row, however large, is cut at the end of a block.
    table = csv.read_csv(
        pyarrow.BufferReader(text),
        read_options=csv.ReadOptions(column_names=list(COLUMNS), block_size=size + 1, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types={name: kinds[kind] for name, kind in COLUMNS.items()},
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    (batch,) = table.combine_chunks().to_batches()
    return batch
