"""What a job is: a name, its options, and a function from a request to a result."""

import datetime as dt
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import DEFAULT_DB_ALIAS

from pubsub.spark.readers import read_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One run of a job: what it reads, and its own options."""

    session: "SparkSession"
    using: str = DEFAULT_DB_ALIAS
    topics: Sequence[str] = ()
    """Empty: all."""
    start: int | None = None
    end: int | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    archive: str | None = None
    """The folder of an archive to read before the live log."""
    options: Mapping[str, Any] = field(default_factory=dict)
    say: Callable[[str], None] = lambda text: None

    def log(self) -> "DataFrame":
        """The requested events."""
        topic: str | Sequence[str] | None = self.topics or None
        if len(self.topics) == 1:
            topic = self.topics[0]
        return read_log(
            self.session,
            topic,
            start=self.start,
            end=self.end,
            since=self.since,
            until=self.until,
            archive=self.archive,
            using=self.using,
        )


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """What a job found."""

    frame: "DataFrame"
    """Its rows, in display order."""
    chart: str = ""
    """The column to chart."""
    notes: Sequence[str] = ()
    """What it means, in sentences."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What is saved along with the request."""
    problems: Sequence[str] = ()
    """What is wrong. If there is anything, the command's exit code is 1."""


@dataclass(frozen=True, kw_only=True)
class SparkJob:
    """Something that Spark can do with the log."""

    name: str
    help: str
    run: Callable[[JobRequest], JobResult]
    add_arguments: Callable[[ArgumentParser], None] = lambda parser: None
    by_offset: bool = False
    """Whether it takes a range of offsets of one topic."""
    by_time: bool = True
    from_archive: bool = False
    """Whether it can read an archive before the live log."""
    writes_page: bool = False
    """Whether --output is a page that it writes itself."""
    is_large: bool = False
    """Whether its result is about as large as what it reads: many tasks then write it to files."""
