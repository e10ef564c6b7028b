"""A table for effects, topics of one partition and of eight, and a session beside Django's."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from .helpers import connection_parameters, drop_effects_table, make_effects_table, topic_of


@pytest.fixture
def effects_table(transactional_db: None) -> Iterator[None]:
    make_effects_table()
    yield
    drop_effects_table()


@pytest.fixture
def work(transactional_db: None) -> str:
    """A topic of one partition: all is in one order."""
    return topic_of(1)


@pytest.fixture
def wide(transactional_db: None) -> str:
    return topic_of(8, "wide")


@pytest.fixture
def session(transactional_db: None) -> Iterator["psycopg.Connection[Any]"]:
    """Straight to the server, also where Django's connections go through a pooler."""
    with psycopg.connect(**connection_parameters(), autocommit=True) as direct:
        yield direct
