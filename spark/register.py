"""Making the format `pubsub` known to a session, with the address of the database that Django uses."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from django.db import DEFAULT_DB_ALIAS

from pubsub.conf import conf

from .connection import libpq_address
from .plan import BY_INDEX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

SENT_ALONG = (
    "pubsub.errors",
    "pubsub.db.locks",
    "pubsub.spark.errors",
    "pubsub.spark.columns",
    "pubsub.spark.copy_log",
    "pubsub.spark.cursors",
    "pubsub.spark.sink",
    "pubsub.spark.stream_log",
    "pubsub.spark.stream_options",
    "pubsub.spark.source",
)
"""Modules that run in Spark's workers, where this package need not be installed.

They import names from one another, never whole modules: those would be sent with everything they have imported.
"""


def register_format(session: SparkSession, *, using: str = DEFAULT_DB_ALIAS) -> None:
    """Let a session that was built elsewhere read and write ``format("pubsub")``.

    The address, with its password, is sent to the workers with the code. It is not an option of the query, so it does
    not appear in plans, Spark's pages, its event log or a checkpoint. Registering again, for example with another
    database, affects queries that start afterwards.

    >>> from pubsub.spark.session import build_session
    >>> session = build_session()
    >>> register_format(session)
    >>> session.read.format("pubsub").option("topic", "default").load().count()
    0
    """
    session.dataSource.register(sendable_source(using))


def sendable_source(using: str) -> type[DataSource]:
    """The format as a class that Spark's workers can unpack where this package is not installed."""
    from pyspark import cloudpickle

    for name in SENT_ALONG:
        cloudpickle.register_pickle_by_value(import_module(name))  # type: ignore[no-untyped-call]
    from .source import PubSubSource

    return type(
        "PubSub",
        (PubSubSource,),
        {
            "reading": libpq_address(using, session=BY_INDEX),
            "writing": libpq_address(using, write=True, session={"jit": "off"}),
            "max_payload_bytes": conf().max_payload_bytes,
        },
    )
