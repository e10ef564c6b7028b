"""A PostgreSQL server of a test's own, that may be killed."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from project.postgres_server import Server
from tests.processes import CHECKOUT
from tests.sessions import wait_until


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of its own, with the project's tables."""
    with tempfile.TemporaryDirectory(prefix="crash-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        own = Server(Path(folder))
        try:
            environment = os.environ | {"DATABASE_URL": own.ensure_running()}
            migrate = (sys.executable, "-m", "django", "migrate", "--verbosity=0", "--settings=tests.settings")
            subprocess.run(migrate, cwd=CHECKOUT, env=environment, check=True)
            yield own
        finally:
            own.stop()


def crash(server: Server) -> None:
    """Ends all of the server's processes at once, as a power cut would."""
    running = server.postmaster()
    assert running
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    for pid in (running.pid, *map(int, children)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    wait_until(lambda: server.postmaster() is None, "the server is gone")


def restart(server: Server) -> str:
    def started() -> bool:
        try:
            server.ensure_running()
        except Exception:
            return False
        return True

    wait_until(started, "the server has recovered", 90)
    return server.url()
