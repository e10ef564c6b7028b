"""A database whose transactions are stricter than PostgreSQL's default."""

from collections.abc import Iterator

import pytest
from django.db import connection

from tests.sessions import connect


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
