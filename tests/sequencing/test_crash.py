"""PostgreSQL itself is killed under load: what was acknowledged is there, and no offset that was seen changes hands."""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from project.postgres_server import Server
from tests.server import crash, restart
from tests.sessions import Running, wait_until

from .load import check_against_notes, load, wait_until_gone

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class Reader:
    """Follows the log from outside, and remembers which message it saw at which offset."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: dict[tuple[int, int], tuple[Any, ...]] = {}
        self.conflicts: list[str] = []
        self.enough = threading.Event()

    def follow(self) -> None:
        position = 0
        while not self.enough.is_set():
            try:
                with psycopg.connect(self.url, autocommit=True) as connection:
                    while not self.enough.is_set():
                        position = self.look(connection, position)
            except psycopg.OperationalError:
                self.enough.wait(0.02)

    def look(self, connection: psycopg.Connection[Any], after: int) -> int:
        rows = connection.execute(
            "SELECT topic_id, c_offset, position, event_id FROM outbox_log_v"
            " WHERE position > %s ORDER BY position LIMIT 500",
            [after],
        ).fetchall()
        for topic, offset, position, event in rows:
            known = self.seen.setdefault((topic, offset), (position, event))
            if known != (position, event):
                self.conflicts.append(f"{topic}:{offset} was {known}, now {(position, event)}")
        return int(rows[-1][2]) if rows else after

    def compare(self, session: psycopg.Connection[Any]) -> None:
        rows = session.execute("SELECT topic_id, c_offset, position, event_id FROM outbox_log_v")
        now = {(topic, offset): (position, event) for topic, offset, position, event in rows}
        assert [place for place, known in self.seen.items() if now.get(place) != known] == []


def test_killed_three_times_under_load(server: Server, tmp_path: Path) -> None:
    seed = random.randrange(2**31)
    print(f"seed: {seed}")
    url = server.url()
    with psycopg.connect(url, autocommit=True) as session:
        (second,) = session.execute(
            "INSERT INTO outbox_topics (name, total_partitions) VALUES ('second', 3) RETURNING id"
        ).fetchone() or (0,)
    reader = Reader(url)
    following = Running(reader.follow)
    try:
        with load(url, tmp_path, seed, [1, second], writers=6, sequencers=2) as running:
            for _ in range(3):
                goal = len(reader.seen) + running.random.randrange(300, 1500)
                wait_until(reached(reader, goal), "the reader goes on", 60)
                running.kill_one()
                crash(server)
                running.check()
                assert restart(server) == url
            wait_until(reached(reader, len(reader.seen) + 300), "and goes on", 60)
    finally:
        reader.enough.set()
    following.result()
    assert reader.conflicts == []
    with psycopg.connect(url, autocommit=True) as session:
        wait_until_gone(session)
        committed = check_against_notes(session, tmp_path)
        reader.compare(session)
    assert committed > 100
    assert len(reader.seen) > 1000


def reached(reader: Reader, goal: int) -> Callable[[], bool]:
    return lambda: len(reader.seen) >= goal
