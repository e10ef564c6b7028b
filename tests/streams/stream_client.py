"""A real server in a process of its own, and a client that does what browsers do."""

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from tests.processes import CHECKOUT
from tests.sessions import database_url, wait_until


class Server:
    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.streams: list[Stream] = []
        self.start()

    def start(self) -> None:
        environment = os.environ | {
            "DATABASE_URL": database_url(),
            "DJANGO_SETTINGS_MODULE": "tests.streams.stream_settings",
        }
        options = ["--port", str(self.port), "--log-level", "warning", "--timeout-graceful-shutdown", "1"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "project.asgi:application", *options], cwd=CHECKOUT, env=environment
        )
        wait_until(self._answers, "the server answers", 30)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            assert self.process.poll() is None, "the server has ended"
            return False
        return True

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(15)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        for stream in server.streams:
            stream.cut()
        server.kill()


class Stream:
    """One connection. `last_id` is what a browser would send when it comes back."""

    def __init__(self, server: Server, path: str, last_id: str | None = None, **query: Any) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
        self.last_id = last_id
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id is not None else {})
        self.connection.request("GET", f"{path}?{urlencode(query, doseq=True)}", headers=headers)
        self._socket = self.connection.sock
        self.response = self.connection.getresponse()
        server.streams.append(self)
        self.status = self.response.status
        self.comments = 0

    def events(self) -> Iterator[dict[str, Any]]:
        """Until the server ends it. A part that is cut off counts for nothing, as browsers have it."""
        fields: dict[str, str] = {}
        while line := self.response.readline():
            text = line.decode().removesuffix("\n")
            if text:
                name, _, value = text.partition(": ")
                self.comments += name == ""
                fields[name] = value
                continue
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                yield json.loads(fields["data"])
            fields = {}

    def wait_for_comment(self) -> None:
        before = self.comments
        while self.comments == before:
            line = self.response.readline().decode()
            self.last_id = line[4:-1] if line.startswith("id: ") else self.last_id
            self.comments += line.startswith(":")

    def take(self, count: int) -> list[Any]:
        coming = self.events()
        return [next(coming)["payload"] for _ in range(count)]

    def open(self) -> "Stream":
        """Reads up to where the server has said from where it begins."""
        while not self.last_id:
            line = self.response.readline().decode()
            self.last_id = line[4:-1] if line.startswith("id: ") else None
        return self

    def cut(self) -> None:
        """Resets the connection, whatever is on its way."""
        if self._socket.fileno() >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.response.close()
        self.connection.close()
        self._socket.close()
