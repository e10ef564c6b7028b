"""Spark's progress, for the terminal."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 0.5


@contextmanager
def shown_progress(session: "SparkSession", show: Callable[[str], None] | None) -> Iterator[None]:
    """Show now and then how many of the current tasks are done, and "" at the end; with None, show nothing."""
    if show is None:
        yield
        return
    over = threading.Event()

    def look() -> None:
        while not over.wait(EVERY_S):
            if text := running(session):
                show(text)
        show("")

    thread = threading.Thread(target=look, name="pubsub-spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def running(session: "SparkSession") -> str:
    """What Spark is doing, in one line; empty if it is doing nothing.

    >>> from pubsub.spark.session import build_session
    >>> running(build_session())
    ''
    """
    tracker = session.sparkContext.statusTracker()
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
    if not stages:
        return ""
    done, every = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    return f"{done:,} of {every:,} tasks done, {sum(stage.numActiveTasks for stage in stages)} running"
