"""What a job is: a name, its options, and a function from what is asked to what was found."""

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
    """One run of a job: on what, and with which options of its own."""

    session: "SparkSession"
    using: str = DEFAULT_DB_ALIAS
    topics: Sequence[str] = ()
    """Empty: all."""
    start: int | None = None
    end: int | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    archive: str | None = None
    """The folder of an archive that comes before the live log."""
    options: Mapping[str, Any] = field(default_factory=dict)
    say: Callable[[str], None] = lambda text: None

    def log(self) -> "DataFrame":
        """The events that were asked for."""
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
    """What a job has found out."""

    frame: "DataFrame"
    """Its rows, in the order in which they are shown."""
    chart: str = ""
    """The column that is worth a chart."""
    notes: Sequence[str] = ()
    """What it means, in sentences."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What is saved along with what was asked."""
    problems: Sequence[str] = ()
    """What is wrong. The command's exit code is 1 if there is anything."""


@dataclass(frozen=True, kw_only=True)
class SparkJob:
    """Something that Spark can work out."""

    name: str
    help: str
    run: Callable[[JobRequest], JobResult]
    add_arguments: Callable[[ArgumentParser], None] = lambda parser: None
    by_offset: bool = False
    """Whether a range of offsets of one topic can be asked for."""
    by_time: bool = True
    from_archive: bool = False
    """Whether it can read an archive before the live log."""
    writes_page: bool = False
    """Whether --output is a page that it writes by itself."""
    is_large: bool = False
    """Whether its result is about as large as what it reads: it then goes to files, by many hands."""
