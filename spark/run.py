"""Running a job: its result goes to files, to the table that the admin shows, and back to the caller."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .errors import InvalidRead
from .jobs import JobRequest, SparkJob
from .results import save_findings, visible_rows, without_payloads, write_files


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """The outcome of a run."""

    job: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    """The first ones."""
    has_more: bool
    notes: Sequence[str]
    problems: Sequence[str]
    run_id: uuid.UUID | None = None
    """The number under which it was saved."""


def run_job(
    job: SparkJob,
    request: JobRequest,
    *,
    output: str | None = None,
    file_format: str = "parquet",
    overwrite: bool = False,
    save: bool = False,
    rows: int = 100,
) -> JobOutcome:
    """Runs a job once, whatever is done with its result.

    >>> from pubsub.spark.jobs import jobs
    >>> from pubsub.spark.session import build_session
    >>> run_job(jobs()["throughput"], JobRequest(session=build_session())).rows
    []
    """
    _check(job, request)
    if job.writes_page:
        request, output = replace(request, options={**request.options, "output": output, "save": save}), None
    found = job.run(request)
    frame = found.frame if job.is_large else found.frame.persist()
    try:
        run_id = None
        if output:
            request.say(f"Writing to {output}")
            write_files(frame if job.is_large else frame.coalesce(1), output, file_format, overwrite=overwrite)
        request.say("Reading the result")
        first = frame.take(rows + 1)
        shown = visible_rows(frame.columns, first[:rows])
        if save:
            request.say("Saving for the admin")
            parameters = {**_parameters(request), **found.parameters, "columns": frame.columns, "chart": found.chart}
            findings = without_payloads(frame.limit(rows) if job.is_large else frame)
            run_id = save_findings(findings, job=job.name, parameters=parameters, using=request.using)
    finally:
        frame.unpersist()
    return JobOutcome(
        job=job.name,
        columns=frame.columns,
        rows=shown,
        has_more=len(first) > rows,
        notes=found.notes,
        problems=found.problems,
        run_id=run_id,
    )


def _check(job: SparkJob, request: JobRequest) -> None:
    if not job.by_offset and not (request.start is None and request.end is None):
        raise InvalidRead(f"{job.name} does not take a range of offsets.")
    if not job.by_time and not (request.since is None and request.until is None):
        raise InvalidRead(f"{job.name} does not take a time.")
    if (request.start is not None or request.end is not None) and len(request.topics) != 1:
        raise InvalidRead("start and end are offsets of one topic: name one.")
    if request.archive and not job.from_archive:
        raise InvalidRead(f"{job.name} reads the live log only.")


def _parameters(request: JobRequest) -> dict[str, Any]:
    """The options that were given."""
    parameters: Mapping[str, Any] = {
        "topics": ", ".join(request.topics),
        "start": request.start,
        "end": request.end,
        "since": request.since,
        "until": request.until,
        "archive": request.archive,
        **request.options,
    }
    return {
        name: value
        for name, value in parameters.items()
        if value not in (None, "", [], False) and name not in ("save", "url")
    }
