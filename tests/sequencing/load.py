"""Many writers and sequencers at work, some of them killed; and whether the log is what it must be afterwards."""

import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tests.log import checked_log, number, unnumbered
from tests.processes import CHECKOUT
from tests.sessions import Session, wait_until


class Load:
    """Keeps the given numbers of writers and sequencers at work on the database at `url`."""

    def __init__(self, url: str, folder: Path, seed: int, topics: list[int], writers: int, sequencers: int) -> None:
        self.url = url
        self.folder = folder
        self.topics = topics
        self.random = random.Random(seed)
        self.started = 0
        self.writers: list[subprocess.Popen[bytes]] = []
        self.sequencers: list[subprocess.Popen[bytes]] = []
        try:
            for _ in range(writers):
                self.writers.append(self._start_writer())
            for _ in range(sequencers):
                self.sequencers.append(self._start("sequencer"))
        except BaseException:
            self.kill_all()
            raise

    def _start(self, role: str, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.sequencing.workload", role, self.url, *arguments]
        return subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.DEVNULL)

    def _start_writer(self) -> "subprocess.Popen[bytes]":
        self.started += 1
        notes = self.folder / f"notes-{self.started}"
        seed = self.random.randrange(2**31)
        return self._start("writer", str(notes), str(self.started), str(seed), json.dumps(self.topics))

    def kill_one(self) -> None:
        """Kills a writer or a sequencer in whatever it is doing, and starts another in its place."""
        self.check()
        group = self.random.choice([self.writers, self.sequencers])
        victim = group.pop(self.random.randrange(len(group)))
        victim.kill()
        victim.wait()
        group.append(self._start_writer() if group is self.writers else self._start("sequencer"))

    def check(self) -> None:
        assert all(each.poll() is None for each in [*self.writers, *self.sequencers]), (
            "one has failed: see its traceback"
        )

    def kill_all(self) -> None:
        for each in [*self.writers, *self.sequencers]:
            each.kill()
            each.wait()


@contextmanager
def load(url: str, folder: Path, seed: int, topics: list[int], writers: int, sequencers: int) -> Iterator[Load]:
    running = Load(url, folder, seed, topics, writers, sequencers)
    try:
        yield running
        running.check()
    finally:
        running.kill_all()


def wait_until_gone(session: Session) -> None:
    """The server may still be executing the last statement of a process that was killed."""
    left = "SELECT FROM pg_stat_activity WHERE application_name = 'workload' AND datname = current_database()"
    wait_until(lambda: session.execute(left).fetchone() is None, "no session of the killed ones is left")


class Noted(NamedTuple):
    """What a writer wrote down of one transaction."""

    events: list[str]
    first_published: float
    committed: float | None


def read_notes(folder: Path) -> dict[str, Noted]:
    noted: dict[str, Noted] = {}
    for file in folder.glob("notes-*"):
        for line in file.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                continue  # the writer was killed in the middle
            note = json.loads(line)
            name = note["transaction"]
            if "first" in note:
                noted[name] = Noted(note["events"], note["first"], None)
            else:
                noted[name] = noted[name]._replace(committed=note["committed"])
    return noted


def transaction_of_event(name: str) -> str:
    return name.rpartition("/")[0]


def check_against_notes(session: Session, folder: Path) -> int:
    """Numbers what is left, then checks the log. Returns how many transactions are known to have committed."""
    while number(session).outcome != "idle":
        pass
    assert unnumbered(session) == 0
    log = checked_log(session)
    noted = read_notes(folder)
    numbered: dict[str, list[str]] = defaultdict(list)
    for entry in log:
        numbered[transaction_of_event(entry.name)].append(entry.name)
    assert numbered.keys() <= noted.keys(), "events of transactions that were undone"
    for name, transaction in noted.items():
        if transaction.committed is not None:
            assert numbered.get(name, []) == transaction.events, f"{name} was committed"
        else:
            assert numbered.get(name, []) in ([], transaction.events), f"a part of {name}"

    # If A committed before B was published, A comes before B: no transaction had committed before one that comes
    # earlier began to publish. All processes read the same clock.
    latest = float("-inf"), ""
    for name, _ in groupby(log, key=lambda entry: transaction_of_event(entry.name)):
        transaction = noted[name]
        if transaction.committed is not None:
            assert transaction.committed >= latest[0], f"{name} had committed before {latest[1]} was published"
        latest = max(latest, (transaction.first_published, name))
    return sum(transaction.committed is not None and bool(transaction.events) for transaction in noted.values())
