from collections.abc import Iterator

import pytest
from django.test import override_settings

from tests.sequencing.conftest import new_session, session

from .helpers import ROWS, small_partitions

__all__ = ["new_session", "session", "small"]


@pytest.fixture
def small(transactional_db: None) -> Iterator[None]:
    """A log in storage partitions of a few rows."""
    with override_settings(PUBSUB={"partition_rows": ROWS}), small_partitions():
        yield
    from pubsub.keeping.storage import make_partitions_ahead

    make_partitions_ahead("default")
