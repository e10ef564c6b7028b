"""The threads of a worker: each takes one partition after another, and has a connection of its own."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from django.db import close_old_connections, connections

from .sessions import Share


@contextmanager
def handing_over(
    work_on: Callable[[Share], bool],
    *,
    threads: int,
    wait_period_s: float,
    done: Callable[[], None],
    broken: Callable[[BaseException], None],
    begins: Callable[[], None],
) -> Iterator[Callable[[Share], bool]]:
    """A way to hand work over to so many threads; with one, it is done at once, in the caller's.

    `begins` is called once in each of them, `done` when one has its hands free, `broken` when one has failed in a way
    that ends the worker.
    """
    if threads == 1:
        begins()
        yield work_on
        return
    queue: SimpleQueue[Share | None] = SimpleQueue()

    def hand_over(share: Share) -> bool:
        queue.put(share)
        return False  # when it is done, the thread says so

    def run() -> None:
        tend_connections = tending_connections(wait_period_s)
        try:
            begins()
            while (share := queue.get()) is not None:
                tend_connections()
                work_on(share)
                done()
        except BaseException as error:  # also sys.exit(): with one thread it ends the worker, too
            broken(error)
        finally:
            connections.close_all()

    running = [threading.Thread(target=run, name=f"pubsub-handlers-{n}") for n in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield hand_over
    finally:
        for _ in running:
            queue.put(None)
        for thread in running:
            thread.join()


def tending_connections(every_s: float) -> Callable[[], None]:
    """What Django does for its connections between two requests, at most so often: asking one whether it still answers
    is a round trip, and one that may not be kept is replaced."""
    tended_at = float("-inf")

    def tend() -> None:
        nonlocal tended_at
        if time.monotonic() >= tended_at + every_s:
            close_old_connections()
            tended_at = time.monotonic()

    return tend
