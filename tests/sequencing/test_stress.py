"""Everything at once: writers that abort, undo and linger, several sequencers, and SIGKILL for both."""

import random
import time
from pathlib import Path

import pytest

from pubsub.models import Topic
from tests.sessions import Session, database_url, wait_until

from .load import check_against_notes, load, wait_until_gone

pytestmark = pytest.mark.django_db(transaction=True)


def stress(session: Session, folder: Path, *, seconds: float, writers: int, sequencers: int, kill_every: int) -> None:
    seed = random.randrange(2**31)
    print(f"seed: {seed}")
    topics = [1, *(Topic.objects.create(name=name, total_partitions=n).pk for name, n in (("one", 1), ("five", 5)))]

    def tip() -> int:
        (following,) = session.execute("SELECT next_position FROM log_sequencer").fetchone() or (1,)
        return int(following) - 1

    kills = 0
    with load(database_url(), folder, seed, topics, writers, sequencers) as running:
        wait_until(tip, "the first event is numbered", 60)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            wanted = tip() + running.random.randrange(1, 2 * kill_every)
            wait_until(lambda wanted=wanted: tip() >= wanted, "the log goes on", 60)  # type: ignore[misc]
            running.kill_one()
            kills += 1
    # The sessions of those who were killed may still be at it.
    wait_until_gone(session)
    committed = check_against_notes(session, folder)
    assert committed > 50
    assert kills > 3


def test_a_few_seconds(session: Session, tmp_path: Path) -> None:
    stress(session, tmp_path, seconds=4, writers=8, sequencers=2, kill_every=120)


@pytest.mark.parametrize("strict_database", ["serializable"], indirect=True)
def test_a_few_seconds_where_everything_is_serializable(strict_database: str, session: Session, tmp_path: Path) -> None:
    stress(session, tmp_path, seconds=3, writers=8, sequencers=2, kill_every=120)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strict_database", ["read committed", "repeatable read", "serializable"], indirect=True)
def test_minutes(strict_database: str, session: Session, tmp_path: Path) -> None:
    stress(session, tmp_path, seconds=90, writers=12, sequencers=3, kill_every=400)
