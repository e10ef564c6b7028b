"""The life of an embedded PostgreSQL server: made, started, found again and stopped, by any number of processes."""

import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from project.postgres_files import (
    Account,
    EmbeddedPostgresError,
    find_programs,
    home_of,
    readable_programs,
    run_as,
    server_account,
)

ROLE = "app"
DATABASE = "pubsub"
PATIENCE_S = 15
# No Unix socket: its path may not exceed 107 bytes, and readers such as JDBC need TCP anyway.
OPTIONS = "-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories= -c max_connections=200"


class Postmaster(NamedTuple):
    """A server that runs, as its postmaster.pid tells."""

    pid: int
    port: int


class Server:
    """The server of one checkout, in the newest version there are programs for. Constructing it starts nothing."""

    def __init__(self, checkout: Path) -> None:
        self.major, self.programs = find_programs()
        self.home = home_of(checkout)
        self.data = self.home / str(self.major)
        self.log = self.data / "server.log"
        # Every user holds this file locked, shared; of those who are killed the kernel lets go.
        self.users = self.home / f"{self.major}.users"
        self._starting = self.home / f"{self.major}.lock"
        self._state_file = self.home / f"{self.major}.json"

    def ensure_running(self) -> str:
        """Return the URL of the database, after starting whatever doesn't run yet."""
        if not self._is_ready():
            with _locked(self._starting):
                if not self._is_ready():
                    self._start()
        return self.url()

    def url(self, database: str = DATABASE) -> str:
        """Return the address of a database of the running server."""
        running, state = self.postmaster(), self._read_state()
        if running is None or state is None:
            raise EmbeddedPostgresError(f"No PostgreSQL is running in {self.data}: start it with ensure_running().")
        return f"postgres://{ROLE}:{state['password']}@127.0.0.1:{running.port}/{database}"

    def postmaster(self) -> Postmaster | None:
        """Return the running server. A postmaster.pid that outlived it, or names a zombie, doesn't count."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            running = Postmaster(pid=int(lines[0]), port=int(lines[3]))
        except (OSError, ValueError, IndexError):
            return None
        return running if _serves(running.pid, self.data) else None

    def stop(self) -> bool:
        """Stop the server, even if it is in use; False if it wasn't running."""
        with _locked(self._starting):
            running = self.postmaster()
            if running is None:
                return False
            for how in (signal.SIGINT, signal.SIGQUIT):  # PostgreSQL's "fast" shutdown, then its "immediate" one
                with suppress(ProcessLookupError):
                    os.kill(running.pid, how)
                deadline = time.monotonic() + PATIENCE_S
                while time.monotonic() < deadline:
                    if self.postmaster() is None:
                        return True
                    time.sleep(0.01)
        raise EmbeddedPostgresError(f"PostgreSQL (pid {running.pid}) did not stop. Its log is {self.log}.")

    def _is_ready(self) -> bool:
        """Whether a start was completed, database and all, and that same server answers now."""
        running, state = self.postmaster(), self._read_state()
        if running is None or state is None or state.get("pid") != running.pid:
            return False
        return self._answers(running.port)

    def _answers(self, port: int) -> bool:
        return run_as(None, self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)).returncode == 0

    def _start(self) -> None:
        state = self._read_state()
        if state is None and self.data.exists():
            raise EmbeddedPostgresError(
                f"{self.data} holds a database, but its password's file {self._state_file} is gone: "
                "put it back, or give the data up with `python -m project.embedded_postgres remove`."
            )
        if state is None:
            state = {"port": _free_port(), "password": secrets.token_urlsafe(24)}
            self._write_state(state)
        account = server_account(self.data)
        programs = readable_programs(self.programs, self.home, account)
        if not self.data.exists():
            self._initialise(programs, account, state["password"])
        running = self._launch(programs, account, state)
        self._create_database()
        self._write_state(state | {"pid": running.pid})

    def _initialise(self, programs: Path, account: Account | None, password: str) -> None:
        # Under another name first: a cluster whose making was interrupted is never taken for a whole one.
        fresh, password_file = self.home / f"{self.major}.new", self.home / f"{self.major}.password"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        _write_private(password_file, password)
        if account:
            os.chown(fresh, *account)
            os.chown(password_file, *account)
        names = ["-U", ROLE, f"--pwfile={password_file}", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8"]
        try:
            made = run_as(account, programs / "initdb", "-D", fresh, *names, "--no-instructions", capture_output=True)
        finally:
            password_file.unlink()
        if made.returncode != 0:
            raise EmbeddedPostgresError(f"initdb could not make a database in {fresh}:\n{made.stderr.strip()}")
        fresh.rename(self.data)

    def _launch(self, programs: Path, account: Account | None, state: dict[str, Any]) -> Postmaster:
        # A server that was killed leaves processes that hold its memory for a second or two: hence the retries.
        deadline = time.monotonic() + PATIENCE_S
        while (running := self.postmaster()) is None or not self._answers(running.port):
            if time.monotonic() > deadline:
                log = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
                raise EmbeddedPostgresError(
                    f"PostgreSQL did not start within {PATIENCE_S} s. The end of its log, {self.log}:\n"
                    + "\n".join(log[-15:])
                )
            if running is None:
                # Ours to remove: we hold the lock, and what it names is no server any more.
                (self.data / "postmaster.pid").unlink(missing_ok=True)
                if not _is_free(state["port"]):
                    state["port"] = _free_port()
                    self._write_state(state)
                options = OPTIONS.format(port=state["port"])
                start = (programs / "pg_ctl", "start", "-w", "-D", self.data, "-l", self.log, "-o", options)
                # Not into a pipe: the server would inherit it, and we wait for its end as long as the server runs.
                quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                if run_as(account, *start, **quiet).returncode == 0:
                    continue
            time.sleep(0.1)
        return running

    def _create_database(self) -> None:
        import psycopg  # here, because finding a server that runs needs no driver

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                connection.execute(f'CREATE DATABASE "{DATABASE}"')

    def _read_state(self) -> dict[str, Any] | None:
        """Return the port last used, the password, and the pid of the server whose start was completed last."""
        try:
            state: dict[str, Any] = json.loads(self._state_file.read_text())
        except FileNotFoundError:
            return None
        return state

    def _write_state(self, state: dict[str, Any]) -> None:
        fresh = self._state_file.with_suffix(".tmp")
        _write_private(fresh, json.dumps(state))
        fresh.replace(self._state_file)


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def lock(path: Path, how: int) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(file, how)
    return file


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = lock(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(file)


def _serves(pid: int, data: Path) -> bool:
    if str(data) in _command_line(pid):
        return True
    with suppress(OSError):  # the checkout may have been moved meanwhile: a server's working folder is its data
        return Path(f"/proc/{pid}/cwd").samefile(data)
    return False


def _command_line(pid: int) -> str:
    """Return what a process was started with; nothing of a zombie, though it counts as alive elsewhere."""
    if not Path("/proc/self").exists():
        return subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True).stdout
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return ""


def _is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as PostgreSQL does
        probe.bind(("127.0.0.1", port))
        return True
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
