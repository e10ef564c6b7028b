"""Processes beside the tests: publishers and workers that can be killed."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

from .helpers import PATIENCE_S, database_url

CHECKOUT = Path(__file__).resolve().parents[2]

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
from pubsub.subscriptions.declaring import Declaration
from pubsub.consuming.worker import Worker
def handle(event):
    print("handled", event.payload["n"], flush=True)
group, period_ms = sys.argv[1:]
worker = Worker([Declaration(topic="default", group=group, handler=handle, start="earliest")], using="default",
                wait_period_ms=int(period_ms))
print("ready", flush=True)
worker.run()
"""
)


class Child:
    """A Python process of the project's on the test database. Its lines are read as they come."""

    def __init__(self, program: str, *arguments: str) -> None:
        environment = os.environ | {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line.strip())

    def says(self, expected: str, seconds: float = PATIENCE_S) -> None:
        try:
            said = self._lines.get(timeout=seconds)
        except Empty:
            raise AssertionError(f"it has not said {expected!r} within {seconds} s") from None
        assert said == expected

    def tell(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self._reading.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            stream.close()


@contextmanager
def child(program: str, *arguments: str) -> Iterator[Child]:
    started = Child(program, *arguments)
    try:
        started.says("ready")
        yield started
    finally:
        started.close()
