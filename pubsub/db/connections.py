"""Connections of our own, beside the one that Django keeps for each thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connections
from psycopg import sql


@contextmanager
def dedicated_connection(alias: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection outside Django's keeping, that notices a peer which is gone without a word."""
    parameters = {
        "application_name": "pubsub",
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,
        "connect_timeout": 10,
        **connections[alias].get_connection_params(),
    }
    driver: Any = connections[alias].Database  # type: ignore[attr-defined]  # on our engine, what makes its sessions
    with driver.connect(**parameters, autocommit=True) as connection:
        if role := connections[alias].settings_dict["OPTIONS"].get("assume_role"):
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        yield connection


def can_listen(connection: psycopg.Connection[Any]) -> bool:
    """Whether the connection is one session of the server's. Behind a transaction pooler it is not."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is not None and row[0] == connection.info.backend_pid
