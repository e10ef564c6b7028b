"""Sessions that every test may open, and that are gone before its tables are emptied."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from django.db import connection

from .helpers import Session, connect


@pytest.fixture
def new_session(transactional_db: None) -> Iterator[Callable[..., Session]]:
    """Opens a session of its own; whatever it has open in the end is rolled back."""
    with ExitStack() as closing:

        def open_session(**options: object) -> Session:
            session = connect(**options)
            closing.callback(session.close)
            return session

        yield open_session


@pytest.fixture
def session(new_session: Callable[..., Session]) -> Session:
    return new_session()


@pytest.fixture
def other(new_session: Callable[..., Session]) -> Session:
    return new_session()


@pytest.fixture
def third(new_session: Callable[..., Session]) -> Session:
    return new_session()


@pytest.fixture(params=["repeatable read", "serializable"])
def strict_database(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[str]:
    """The test database with another default isolation, for every session opened from now on."""
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    with connect() as operator:
        operator.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{request.param}'")
        connection.close()
        try:
            yield request.param
        finally:
            operator.execute(f"ALTER DATABASE {name} RESET default_transaction_isolation")
            connection.close()
