"""What commands need that run for long: memory, signals, and saying something to a terminal that may be gone."""

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterator

from django.core.management.base import OutputWrapper


@contextlib.contextmanager
def loaded_for_good() -> Iterator[None]:
    """Spares the garbage collector all that is loaded so far. It would walk through it again and again, and in each
    forked process it would copy it, too."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def from_a_signal(stop: Callable[[], object]) -> None:
    """Stops something from within a signal's handler.

    In a thread of its own: the code that the signal interrupts may hold the very lock that stopping has to take.
    """
    threading.Thread(target=stop, name="pubsub-stopping").start()


def say(out: OutputWrapper, text: str) -> None:
    """Prints for people who watch a long-running process; a reader that is gone does not stop it.

    The pipe's reader may have ended, a write may be interrupted by another one, and there may be no stream at all
    (``2>&-``).
    """
    with contextlib.suppress(RuntimeError, ValueError, AttributeError):
        try:
            out.write(text)
            out.flush()
        except OSError:
            # What is left in the buffer would fail once more when the process ends, and spoil its exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
