"""What all tests share."""

import os
from contextlib import ExitStack

import pytest

from project.embedded_postgres import using_server

_session = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the embedded server running for the tests, if they run on it."""
    if not os.environ.get("DATABASE_URL"):
        _session.enter_context(using_server())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop it, unless a demo or another run of the tests is using it."""
    _session.close()
