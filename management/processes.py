"""What long-running commands need: memory, signals, and output to a terminal that may be gone."""

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterator

from django.core.management.base import OutputWrapper


@contextlib.contextmanager
def loaded_for_good() -> Iterator[None]:
    """Exempts everything loaded so far from garbage collection, which would scan it again and again, and would copy it
    in each forked process."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def from_a_signal(stop: Callable[[], object]) -> None:
    """Stops something from within a signal's handler.

    In a thread of its own: the code that the signal interrupts may hold the very lock that stopping needs.
    """
    threading.Thread(target=stop, name="pubsub-stopping").start()


def say(out: OutputWrapper, text: str) -> None:
    """Prints a message of a long-running process, which continues even if it cannot be read.

    The pipe's reader may have ended, another write may interrupt this one, and there may be no stream at all
    (``2>&-``).
    """
    with contextlib.suppress(RuntimeError, ValueError, AttributeError):
        try:
            out.write(text)
            out.flush()
        except OSError:
            # What is left in the buffer would fail once more when the process ends, and spoil its exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
