"""What all tests share."""

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from project.embedded_postgres import using_server
from pubsub.dead_letters.log_limit import LogLimit
from pubsub.spark.session import build_session
from tests.consuming.helpers import drop_effects_table, make_effects_table, topic_of
from tests.sessions import Session, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["pytester", "tests.pgbouncer", "tests.retention.helpers", "tests.server"]

_session = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the embedded server running for the tests, if they run on it."""
    if not os.environ.get("DATABASE_URL"):
        _session.enter_context(using_server())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop it, unless a demo or another run of the tests is using it."""
    _session.close()


@pytest.fixture
def pythons_ctrl_c() -> Iterator[None]:
    """Ctrl-C as in a program that handles no signals. Those that run tests side by side ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


CLEAR = """
DO $$
DECLARE
    name text;
    filled boolean;
BEGIN
    FOREACH name IN ARRAY ARRAY[{tables}] LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', name) INTO filled;
        IF filled AND (SELECT sum(pg_relation_size(relid)) FROM pg_partition_tree(name::regclass)) > 1000000 THEN
            EXECUTE format('TRUNCATE %I CASCADE', name);
        ELSIF filled THEN
            EXECUTE format('DELETE FROM %I', name);
        END IF;
    END LOOP;
END $$
"""

MADE_BY_MIGRATE = {"auth_permission", "django_content_type"}
"""What `migrate` would make again, the same as before."""


@pytest.fixture(scope="session", autouse=True)
def clear_by_deleting() -> Iterator[None]:
    """After a test that commits, its few rows are deleted: to truncate some hundred tables takes many times as long."""

    def sql_flush(operations: Any, style: Any, tables: Sequence[str], **options: Any) -> list[str]:
        cleared = ", ".join(f"'{table}'" for table in sorted(set(tables) - MADE_BY_MIGRATE))
        return [CLEAR.format(tables=cleared)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.db.backends.postgresql.operations.DatabaseOperations.sql_flush", sql_flush)
        yield


@pytest.fixture(autouse=True)
def status_is_never_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test has seen is not what the next one looks at."""
    monkeypatch.setattr("pubsub.monitoring.recent.FOR_S", 0)


@pytest.fixture(autouse=True)
def failures_are_counted_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What one test has logged leaves the next one's log as it is."""
    limit = LogLimit()
    monkeypatch.setattr("pubsub.dead_letters.report.limit", limit)
    yield
    limit.close()


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


WHOLE_PLANS = {"spark.sql.maxMetadataStringLength": "5000"}


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """The one session of a process of tests: starting it takes longer than most of them."""
    session = build_session(
        app_name="tests",
        master="local[2]",
        memory="768m",
        config={"spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR", **WHOLE_PLANS},
    )
    yield session
    session.stop()
    # py4j tells of each closed connection, also when pytest has closed what it would tell it on.
    logging.getLogger("py4j").setLevel(logging.WARNING)
