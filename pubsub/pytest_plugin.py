"""The pytest plugin: a fixture `pubsub` with what a test has published, and a way to run the handlers on it.

It comes with the package; nothing has to be switched on. Django itself is loaded only where the fixture is used.
"""

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import Outbox


@pytest.fixture
def pubsub(db: None) -> "Iterator[Outbox]":
    """What this test publishes: published(), assert_published(), assert_nothing_published(), drain().

    Handlers that are declared while it is in use are forgotten afterwards.
    """
    from pubsub.subscriptions.declare import registry

    from .testing import Outbox

    declared = {name: copy.copy(value) for name, value in vars(registry).items()}
    yield Outbox()
    vars(registry).update(declared)
