"""The whole server goes away under a handler: where that is an outage, no event is to blame."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.server import restart
from tests.sessions import wait_until

from .helpers import consumer


@contextmanager
def published(url: str, *payloads: Any) -> Iterator[None]:
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY, payload text, worker text)")
        session.execute("INSERT INTO outbox_topics (name, total_partitions) VALUES ('work', 1)")
        for payload in payloads:
            session.execute(
                "INSERT INTO outbox_message_t (topic_id, key, payload) SELECT id, 'k', %s FROM outbox_topics"
                " WHERE name = 'work'",
                [json.dumps(payload)],
            )
    yield


def ask(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as session:
        return [value for (value,) in session.execute(statement).fetchall()]


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
def test_a_server_that_is_stopped_and_started_again_and_again_makes_no_dead_letter(server: Any, delivery: str) -> None:
    url = server.url()
    with (
        published(url, 1, 2),
        consumer("asking", "--wait-period-ms", 50, url=url, delivery=delivery, transient_attempts=2) as process,
    ):
        for _ in range(3):
            process.wait_for("begins 1", 60)
            server.stop()
            assert restart(server) == url
            process.go_on()
        for event in (1, 2):
            process.wait_for(f"begins {event}", 60)
            process.go_on()
        wait_until(lambda: ask(url, "SELECT sum(lag) FROM consumer_lag_v") == [0], "all is handled", 60)
    assert ask(url, "SELECT count(*) FROM dead_letter_queue") == [0]
    assert ask(url, "SELECT failures FROM consumer_offsets") == [0]


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
def test_an_event_that_kills_the_servers_process_each_time_is_no_outage(server: Any, delivery: str) -> None:
    url = server.url()
    settings = {"delivery": delivery, "transient_attempts": 3}
    with published(url, 1, "kill", 3), consumer("killing", "--wait-period-ms", 50, url=url, **settings) as process:
        for _ in range(3):
            process.wait_for("kills", 60)
        # The server starts again by itself.
        wait_until(lambda: lag_of(url) == 0, "all is handled", 60)
    assert ask(url, "SELECT payload FROM effects WHERE payload <> '\"kill\"' ORDER BY id") == ["1", "3"]
    (cause,) = ask(url, "SELECT exception_class FROM dead_letter_queue WHERE state = 'dead'")
    assert cause.endswith("OperationalError")


@pytest.mark.parametrize("delivery", ["transactional", "at_least_once"])
def test_an_event_that_takes_all_of_the_servers_locks_each_time_is_no_outage(server: Any, delivery: str) -> None:
    """On a server of its own: whatever else runs there has none left meanwhile."""
    url = server.url()
    settings = {"delivery": delivery, "transient_attempts": 3}
    with published(url, 1, "hoard", 3), consumer("hoarding", "--wait-period-ms", 50, url=url, **settings) as process:
        for _ in range(3):
            process.wait_for("hoards", 60)
        wait_until(lambda: lag_of(url) == 0, "all is handled", 60)
    assert ask(url, "SELECT payload FROM effects ORDER BY id") == ["1", "3"]
    (cause,) = ask(url, "SELECT exception_message FROM dead_letter_queue WHERE state = 'dead'")
    assert "out of shared memory" in cause


def lag_of(url: str) -> Any:
    try:
        return ask(url, "SELECT sum(lag) FROM consumer_lag_v")[0]
    except psycopg.OperationalError:
        return None
