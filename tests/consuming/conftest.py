"""A table for effects, and topics of one partition and of eight."""

from collections.abc import Iterator

import pytest

from .helpers import drop_effects_table, make_effects_table, topic_of


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
