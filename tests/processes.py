"""Processes beside the tests: publishers and workers that can be killed."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

from tests.sessions import database_url

CHECKOUT = Path(__file__).resolve().parents[1]
PATIENCE_S = 30

SET_UP = """
import sys, django
django.setup()
from django.db import transaction
from pubsub import publish
"""

# Publishes a line of its input as soon as it comes.
PUBLISHER = (
    SET_UP
    + """
print("ready", flush=True)
for line in sys.stdin:
    with transaction.atomic():
        publish("default", {"n": line.strip()})
    print("published", flush=True)
"""
)

# Says what it handles, and whether it leads.
WORKER = (
    SET_UP
    + """
from pubsub.subscriptions.declare import Declaration
from pubsub.worker.worker import Worker
def handle(event):
    print("handled", event.payload["n"], flush=True)
group, period_ms = sys.argv[1:]
worker = Worker([Declaration(topic="default", group=group, handler=handle, start="earliest")], using="default",
                wait_period_ms=int(period_ms))
print("ready", flush=True)
worker.run()
"""
)


class Process:
    """A Python process of the project's on the test database. What it prints is read as it comes."""

    def __init__(self, command: Sequence[str], url: str | None = None, stderr: int | None = subprocess.STDOUT) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env=os.environ | {"DATABASE_URL": url or database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        self.lines: Queue[str] = Queue()
        self.said: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def wait_for(self, expected: str, seconds: float = PATIENCE_S) -> str:
        """Skips lines until one begins like that, and returns it."""
        while not (said := self._next_line(expected, seconds)).startswith(expected):
            pass
        return said

    def says(self, expected: str, seconds: float = PATIENCE_S) -> None:
        """The very next line is this."""
        assert self._next_line(expected, seconds) == expected

    def _next_line(self, expected: str, seconds: float) -> str:
        try:
            said = self.lines.get(timeout=seconds)
        except Empty:
            raise AssertionError(f"it has not said {expected!r} within {seconds} s, but {self.said}") from None
        self.said.append(said)
        return said

    def tell(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def go_on(self) -> None:
        self.tell("")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, seconds: float = PATIENCE_S) -> int:
        code = self.process.wait(seconds)
        self._reading.join(seconds)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self._reading.join(5)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            stream.close()


@contextmanager
def child(program: str, *arguments: str) -> Iterator[Process]:
    """Runs one of the programs above; what it writes to stderr is shown with the test's own output."""
    started = Process([sys.executable, "-c", program, *arguments], stderr=None)
    try:
        started.says("ready")
        yield started
    finally:
        started.close()
