"""Running a job: what it found goes to files, into the table that the admin shows, and back to the caller."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .errors import InvalidRead
from .jobs import Asked, Job
from .results import save_findings, write_files


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is told of a run."""

    job: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    """The first ones."""
    has_more: bool
    notes: Sequence[str]
    problems: Sequence[str]
    run_id: uuid.UUID | None = None
    """Under which it was saved."""


def run_job(
    job: Job,
    asked: Asked,
    *,
    output: str | None = None,
    file_format: str = "parquet",
    overwrite: bool = False,
    save: bool = False,
    rows: int = 100,
) -> Outcome:
    """Runs a job, once, whatever is done with its result.

    >>> from pubsub.spark.jobs import jobs
    >>> from pubsub.spark.session import build_session
    >>> run_job(jobs()["throughput"], Asked(session=build_session())).rows
    []
    """
    _check(job, asked)
    if job.writes_page:
        asked, output = replace(asked, options={**asked.options, "output": output, "save": save}), None
    found = job.run(asked)
    frame = found.frame if job.is_large else found.frame.persist()
    try:
        run_id = None
        if output:
            asked.say(f"Writing to {output}")
            write_files(frame if job.is_large else frame.coalesce(1), output, file_format, overwrite=overwrite)
        if save:
            asked.say("Saving for the admin")
            told = _parameters(asked) | dict(found.parameters) | {"columns": frame.columns, "chart": found.chart}
            run_id = save_findings(
                frame.limit(rows) if job.is_large else frame, job=job.name, parameters=told, using=asked.using
            )
        asked.say("Looking at the result")
        first = frame.take(rows + 1)
    finally:
        frame.unpersist()
    return Outcome(
        job=job.name,
        columns=frame.columns,
        rows=[list(row) for row in first[:rows]],
        has_more=len(first) > rows,
        notes=found.notes,
        problems=found.problems,
        run_id=run_id,
    )


def _check(job: Job, asked: Asked) -> None:
    if not job.by_offset and not (asked.start is None and asked.end is None):
        raise InvalidRead(f"{job.name} cannot be asked for a range of offsets.")
    if not job.by_time and not (asked.since is None and asked.until is None):
        raise InvalidRead(f"{job.name} cannot be asked for a time.")
    if (asked.start is not None or asked.end is not None) and len(asked.topics) != 1:
        raise InvalidRead("start and end are offsets of one topic: name one.")
    if asked.archive and not job.from_archive:
        raise InvalidRead(f"{job.name} reads the live log only.")


def _parameters(asked: Asked) -> dict[str, Any]:
    """What was asked, as far as it says anything."""
    told: Mapping[str, Any] = {
        "topics": ", ".join(asked.topics),
        "start": asked.start,
        "end": asked.end,
        "since": asked.since,
        "until": asked.until,
        "archive": asked.archive,
        **asked.options,
    }
    return {
        name: value
        for name, value in told.items()
        if value not in (None, "", [], False) and name not in ("save", "url")
    }
