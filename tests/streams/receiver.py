"""A receiver of webhooks: a real HTTP server with the given answer, which keeps what it got."""

import gzip
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> bytes:
        return gzip.decompress(self.raw) if self.headers.get("content-encoding") == "gzip" else self.raw


class Receiver:
    """Answers with `status`, `headers` and `body`; where `stalls` is set it says nothing until that is released."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = b""
        self.stalls: threading.Event | None = None
        self.drips = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                sent = {name.lower(): value for name, value in self.headers.items()}
                receiver.requests.append(Request(self.path, sent, raw))
                if receiver.drips:
                    receiver.drip(self.wfile)
                    return
                if receiver.stalls:
                    receiver.stalls.wait(30)
                with suppress(OSError):  # the sender has given up
                    self.send_response(receiver.status)
                    for name, value in receiver.headers.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(receiver.body)))
                    self.end_headers()
                    self.wfile.write(receiver.body)

            do_GET = do_POST

            def log_message(self, *args: Any) -> None:
                """Not in the tests' output."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port

    def drip(self, out: Any) -> None:
        """Sends a little all the time, for ever."""
        try:
            while True:
                out.write(b"HTTP/1.1 200 OK\r\n" if self.drips else b"x-more: 1\r\n")
                out.flush()
                threading.Event().wait(0.02)
                self.drips = False
        except OSError:
            pass

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks?token=hidden"

    @contextmanager
    def serving(self) -> Iterator["Receiver"]:
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()

    def use_tls(self, folder: Path, name: str) -> Path:
        """Gives it a certificate for a name, and returns the file by which it can be trusted."""
        certificate, key = folder / "certificate.pem", folder / "key.pem"
        options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={name}"]
        files = ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(["openssl", "req", *options, *files], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        return certificate
