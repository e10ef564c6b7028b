"""Transactions that are right whatever the database's default isolation is."""

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from .backend.base import named

# What is asked of Django's connections beside what Django documents. No functions of ours: they cost no call.
in_atomic_block = operator.attrgetter("in_atomic_block")
"""Whether a block of ``transaction.atomic()`` is open on a connection."""
hooks_of = operator.attrgetter("run_on_commit")
"""What a connection calls after its commit."""
errors_as_djangos = operator.attrgetter("wrap_database_errors")
"""A context in which psycopg's errors become Django's."""


@contextmanager
def read_committed(using: str) -> Iterator[Any]:
    """A transaction, and its cursor, in which each statement has a snapshot of its own."""
    connection = connections[using]
    outermost = not in_atomic_block(connection)
    with transaction.atomic(using=using), connection.cursor() as cursor:
        if outermost:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        yield cursor


def is_in_transaction(connection: Any) -> bool:
    """Whether the application has a transaction open. The one that Django puts around a test is not its own.

    >>> from django.db import connection
    >>> with transaction.atomic():
    ...     is_in_transaction(connection)
    True
    """
    if not in_atomic_block(connection):
        return not connection.get_autocommit()
    # Blocks of a test are the outermost ones. Without autocommit, a transaction is open in production as well.
    return not connection.atomic_blocks[-1]._from_testcase or not connection.commit_on_exit


def as_around_a_test(using: str) -> transaction.Atomic:
    """An atomic block in which code sees what it sees outside any: it can be undone, and counts as no transaction.

    >>> from django.db import connection
    >>> with as_around_a_test("default"):
    ...     is_in_transaction(connection)
    False
    """
    block = transaction.atomic(using=using)
    block._from_testcase = True  # type: ignore[attr-defined]
    return block


_PLAIN = "SELECT set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true)"


def run_uncompiled(
    using: str, statement: str, parameters: Mapping[str, Any]
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns' names and the rows of a statement that reads little and looks expensive to the planner.

    Over many partitions that are not analysed yet PostgreSQL expects so much that it compiles the plan, and starts
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


@contextmanager
def begun_by_first_statement(using: str) -> Iterator[Any]:
    """The outermost atomic block of a connection in autocommit, and that connection. Nothing is sent to enter it.

    What is sent first begins the transaction: by :func:`~pubsub.db.pipeline.execute_together` in the same round trip,
    and by any cursor of Django's on ``pubsub.db.backend``. None of them spells that BEGIN. A transaction that the
    statements themselves have ended (and perhaps begun another) is Django's as before: leaving the block commits or
    rolls back what is open, and sends nothing where nothing is.

    >>> from pubsub.db.pipeline import execute_together
    >>> with begun_by_first_statement("default") as connection:
    ...     execute_together(connection, ["SELECT %(n)s", "SELECT 2"], {"n": 1}).row(-2)
    (1,)
    """
    with transaction.atomic(using=using, durable=True):
        yield connections[using]


def make_hooks_robust(connection: Any) -> None:
    """Makes what handlers have registered for after the commit harmless to one another: a failure is logged.

    On ``pubsub.db.backend`` they are so from the beginning, if :func:`~pubsub.db.guard.refusing_to_end` was in force,
    and there is nothing left to do. Django's engine has no public way: the list that it keeps is changed, if that is
    what Django 5.2 and 6.1 keep. If it is not, a hook that fails keeps later ones from being called.
    """
    hooks = hooks_of(connection)
    for number, hook in enumerate(hooks):
        if isinstance(hook, tuple) and len(hook) == 3 and not hook[2]:
            savepoints, call, _ = hook
            hooks[number] = (savepoints, named(call), True)
