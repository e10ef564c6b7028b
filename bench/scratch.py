"""A database to measure in, beside the real one."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections


@contextmanager
def scratch_database(using: str) -> Iterator[None]:
    """Makes an empty one, to which ``using`` leads meanwhile, and drops it."""
    connection = connections[using]
    name, test_name = connection.settings_dict["NAME"], connection.settings_dict["TEST"]["NAME"]
    connection.settings_dict["TEST"]["NAME"] = f"{name}_bench"
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        yield
    finally:
        connections.close_all()
        connection.creation.destroy_test_db(name, verbosity=0)
        connection.settings_dict["TEST"]["NAME"] = test_name
