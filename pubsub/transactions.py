"""Transactions that are right whatever the database's default isolation is."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction


@contextmanager
def read_committed(using: str) -> Iterator[Any]:
    """A transaction, and its cursor, in which each statement has a snapshot of its own."""
    connection = connections[using]
    outermost = not connection.in_atomic_block
    with transaction.atomic(using=using), connection.cursor() as cursor:
        if outermost:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        yield cursor


_PLAIN = "SELECT set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true)"


def run_uncompiled(
    using: str, statement: str, parameters: Mapping[str, Any]
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns' names and the rows of a statement that reads little and looks expensive to the planner.

    Over many partitions that nobody has analysed yet PostgreSQL expects so much that it compiles the plan, and starts
    processes to share the work, which takes a hundred times as long as doing it. Both statements travel together: no
    round trip more, and where there is no transaction it is for them alone.

    >>> settings = "current_setting('jit') AS jit, current_setting('max_parallel_workers_per_gather') AS workers"
    >>> run_uncompiled("default", f"SELECT %(n)s AS n, {settings}", {"n": 1})
    (['n', 'jit', 'workers'], [(1, 'off', '0')])
    """
    connection = connections[using]
    with connection.cursor() as cursor:
        if connection.settings_dict["OPTIONS"].get("server_side_binding"):
            cursor.execute(statement, parameters)  # there, one statement at a time is all that is allowed
        else:
            cursor.execute(f"{_PLAIN}; {statement}", parameters)
            cursor.nextset()
        return [column.name for column in cursor.description], cursor.fetchall()


def make_hooks_robust(connection: Any) -> None:
    """What handlers have registered for after the commit shall not stand in one another's way: a failure is logged."""
    if connection.run_on_commit:
        hooks = [(savepoints, _named(hook), True) for savepoints, hook, _ in connection.run_on_commit]
        connection.run_on_commit = hooks


def _named(hook: Callable[[], Any]) -> Callable[[], Any]:
    """Django logs a hook that fails by its name, and fails itself where a partial() or another object has none."""
    if hasattr(hook, "__qualname__"):
        return hook

    def call() -> None:
        hook()

    call.__qualname__ = repr(hook)
    return call
