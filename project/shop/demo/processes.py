"""The demo's children, consumers and a web server: in sessions of their own, so that Ctrl-C reaches the demo only."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from project.embedded_postgres import CHECKOUT

FIRST_PORT = 8000
PORTS_TRIED = 100


class PortTaken(Exception):
    """The port that was asked for is in use."""


def listen(port: int | None = None) -> socket.socket:
    """Return a socket that listens on the port, or on the first free one from 8000.

    The demo opens it and the web server inherits it, so no one can take the port in between, and a browser that comes
    before the server is up waits instead of being turned away.
    """
    for candidate in [port] if port else range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", candidate))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if port:
                raise PortTaken(
                    f"Port {port} can't be had ({error.strerror}): choose another, or leave it out."
                ) from error
        else:
            return listener
    raise PortTaken(
        f"No port from {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1} is free: name one, `make demo PORT=9000`."
    )


class Children:
    """Started one by one, watched, and stopped together. Each writes to a log of its own."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # Nothing is ever written: see child.py. The writing end isn't inherited, so it closes with this process.
        self._pipe, self._held_open = os.pipe()

    def start_consumer(self, name: str) -> None:
        """Start `manage.py run_consumer`, with every group there is."""
        self._start(name, "manage.py", "run_consumer")

    def start_web(self, listener: socket.socket) -> None:
        """Start the web server on a socket that listens already, and give the socket up to it."""
        options = ["--lifespan", "off", "--timeout-graceful-shutdown", "2", "--fd", str(listener.fileno())]
        self._start("web", "-m", "uvicorn", "project.asgi:application", *options, inherited=listener.fileno())
        listener.close()

    def dead(self) -> str | None:
        """Tell which child has ended, how, and what it said last; nothing while all are well."""
        for name, process in self._running.items():
            if process.poll() is not None:
                log = self._log(name)
                said = "".join(f"\n    {line}" for line in log.read_text(errors="replace").splitlines()[-12:])
                return f"{name} ended by itself, with exit code {process.returncode}. The end of {log}:{said}"
        return None

    def stop(self, patience_s: float = 10) -> None:
        """Ask all processes to finish their current work, and wait. Kill those that take longer."""
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + patience_s
        for process in self._running.values():
            try:
                process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self._running.clear()

    def _start(self, name: str, *command: str, inherited: int | None = None) -> None:
        descriptors = [self._pipe] if inherited is None else [self._pipe, inherited]
        with self._log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "project.shop.demo.child", str(self._pipe), *command],
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
                start_new_session=True,
            )

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"
