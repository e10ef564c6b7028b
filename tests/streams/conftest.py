"""No listener of a test lives on in the next one."""

from collections.abc import Iterator

import pytest

from pubsub.streams import listen
from tests.sessions import wait_until


@pytest.fixture(autouse=True)
def no_readers() -> Iterator[None]:
    yield
    readers = list(listen._readers.values())
    for reader in readers:
        for listener in list(reader._listeners):
            listener.close()
    for reader in readers:
        wait_until(lambda reader=reader: not reader.is_running, "the reader has ended")
    wait_until(lambda: not listen._readers, "no reader is left")
