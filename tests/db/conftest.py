"""A connection with other settings, or another engine, in the place of the one that the tests have."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections

OURS = "pubsub.db.backend"
DJANGOS = "django.db.backends.postgresql"


@contextmanager
def connected_with(*, engine: str = OURS, **changes: Any) -> Iterator[Any]:
    """`connections["default"]` made again, in this thread and in those that begin meanwhile."""
    before, settings = connections["default"], connections.settings["default"]
    changed = {**copy.deepcopy(settings), "ENGINE": engine, **changes}
    connections.settings["default"] = changed
    connections["default"] = connections.create_connection("default")
    try:
        yield connections["default"]
    finally:
        connections["default"].close()
        connections.settings["default"] = settings
        connections["default"] = before


@pytest.fixture(params=[OURS, DJANGOS])
def engine(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[str]:
    with connected_with(engine=request.param):
        yield request.param
