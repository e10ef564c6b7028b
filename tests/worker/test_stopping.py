"""Stopping on a signal when no output can be written."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.consuming.helpers import consumer, effects, lag, publish_each

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work", "effects_table")]


@contextmanager
def nobody_reads() -> Iterator[dict[str, Any]]:
    """The other end of the pipe is closed: systemd's journal has gone, or `| head` has seen enough."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield {"stderr": writer}
    finally:
        os.close(writer)


@contextmanager
def disk_is_full() -> Iterator[dict[str, Any]]:
    with Path("/dev/full").open("w") as full:
        yield {"stderr": full.fileno()}


@contextmanager
def closed() -> Iterator[dict[str, Any]]:
    yield {"through": ["sh", "-c", 'exec "$@" 2>&-', "sh"]}


@pytest.mark.parametrize("stderr", [nobody_reads, disk_is_full, closed])
def test_the_current_batch_is_finished_though_no_message_can_be_written(stderr: Any) -> None:
    publish_each("current", "next")
    with ExitStack() as closing:
        process = closing.enter_context(consumer("slow", "--batch-size", 1, **closing.enter_context(stderr())))
        process.wait_for('begins "current"')
        process.send(signal.SIGTERM)
        process.go_on()
        process.wait_for("continues")
        assert process.ends() == 0
    assert effects() == ["current"]
    assert lag() == 1
