"""A way to the server on which answers get lost: a statement has run, or failed, and the client never learns it."""

import random
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tests.sessions import connected_to, database_url

Losing = Callable[[bytes], bool]


class ByChance:
    """Loses so many of them, once it has begun."""

    def __init__(self, probability: float, seed: int) -> None:
        self.probability = probability
        self.begun = False
        self.lost = 0
        self._chance = random.Random(seed)

    def __call__(self, asked: bytes) -> bool:
        loses = self.begun and self._chance.random() < self.probability
        self.lost += loses
        return loses


class TheFirstWith:
    """Loses the answer to the first question that has these words in it."""

    def __init__(self, words: bytes) -> None:
        self.words = words
        self.lost = 0

    def __call__(self, asked: bytes) -> bool:
        loses = not self.lost and self.words in asked
        self.lost += loses
        return loses


@contextmanager
def relay(url: str, is_lost: Losing) -> Iterator[str]:
    """The URL of the same database, by way of here."""
    parts = urlsplit(url)
    assert parts.hostname
    target = parts.hostname, parts.port or 5432
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):  # the server is closed
                while True:
                    client, _ = server.accept()
                    threading.Thread(target=_carry, args=(client, target, is_lost), daemon=True).start()

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        yield parts._replace(netloc=f"{login}127.0.0.1:{server.getsockname()[1]}").geturl()
        server.shutdown(socket.SHUT_RDWR)
    serving.join()


@contextmanager
def losing(is_lost: Losing) -> Iterator[None]:
    """All of Django's connections go by way of here."""
    with relay(database_url(), is_lost) as url:
        parts = urlsplit(url)
        with connected_to(HOST=parts.hostname, PORT=parts.port):
            yield


def _carry(client: socket.socket, target: tuple[str, int], is_lost: Losing) -> None:
    with client, socket.create_connection(target) as server, selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ)
        selector.register(server, selectors.EVENT_READ)
        with suppress(OSError):
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if not data:
                        return
                    if key.fileobj is server:
                        client.sendall(data)
                        continue
                    server.sendall(data)
                    if is_lost(data):
                        server.recv(1)
                        return
