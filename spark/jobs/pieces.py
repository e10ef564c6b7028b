"""Reading the log with a job's own statements, in the same closed ranges as the readers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pubsub.db.sql import load
from pubsub.spark.connection import jdbc_options
from pubsub.spark.plan import BY_INDEX
from pubsub.spark.ranges import LogRange
from pubsub.spark.readers import RANGE_SIZE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_pieces(
    session: "SparkSession", name: str, ranges: Sequence[LogRange], *, using: str, size: int = RANGE_SIZE
) -> "DataFrame":
    """The rows of `spark/sql/NAME.sql` in these ranges. Missing offsets are no error."""
    options = jdbc_options(using, session=BY_INDEX) | {"fetchsize": "5000"}
    pieces = [piece for each in ranges for piece in each.split(size)]
    return session.read.jdbc(
        options.pop("url"),
        f"({load(f'spark/{name}')}) AS log",
        predicates=[
            f"topic_id = {piece.topic_id} AND c_offset BETWEEN {piece.first} AND {piece.last}" for piece in pieces
        ]
        or ["false"],
        properties=options,
    )
