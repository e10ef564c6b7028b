"""All analyses at once, on one HTML page."""

import os
import tempfile
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

from pubsub.spark.report import MOST_ROWS, Section, drawing, render
from pubsub.spark.results import save_findings

from . import audit, dead_letters, funnel, latency, skew, throughput
from .job import JobRequest, JobResult, SparkJob

SECTIONS = {
    "Throughput": throughput.JOB,
    "Latency": latency.JOB,
    "Dead letters": dead_letters.JOB,
    "Skew": skew.JOB,
    "From one event to the next": funnel.JOB,
    "Audit": audit.JOB,
}

SCHEMA = "analysis string, problems bigint, rows bigint"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--url", default="", help="the page's address, which the admin links to; http(s)://… or a path /…"
    )


def run(request: JobRequest) -> JobResult:
    sections: list[Section] = []
    rows: list[tuple[str, int, int]] = []
    problems: list[str] = []
    for title, job in SECTIONS.items():
        request.say(f"{title} …")
        of_job = request if job.by_time else replace(request, since=None, until=None)
        found = job.run(replace(of_job, options={}, archive=None))
        frame = found.frame.persist()
        first = [list(row) for row in frame.take(MOST_ROWS + 1)]
        sections.append(
            Section(
                title=title,
                about=f"{job.help[0].upper()}{job.help[1:]}.",
                columns=frame.columns,
                rows=first[:MOST_ROWS],
                notes=found.notes,
                problems=found.problems,
                has_more=len(first) > MOST_ROWS,
                chart=drawing(job.name, frame.columns, first[:MOST_ROWS]),
            )
        )
        if request.options.get("save"):
            parameters = {"columns": frame.columns, "chart": found.chart, **_link(request)}
            save_findings(frame, job=job.name, parameters=parameters, using=request.using)
        rows.append((title, len(found.problems), frame.count()))
        problems += found.problems
        frame.unpersist()
    path = Path(request.options.get("output") or "report.html")
    write_whole(path, render(sections, _about(request)))
    return JobResult(
        frame=request.session.createDataFrame(rows, SCHEMA),
        chart="rows",
        notes=[f"The report is in {path}."],
        problems=problems,
        parameters=_link(request),
    )


def write_whole(path: Path, text: str) -> None:
    """The file is never half written, even while it is being served."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    os.replace(file.name, path)  # noqa: PTH105


def _link(request: JobRequest) -> dict[str, str]:
    return {"report": request.options["url"]} if request.options.get("url") else {}


def _about(request: JobRequest) -> str:
    parts = [
        f"Topics: {', '.join(request.topics)}." if request.topics else "All topics.",
        f"From {request.since:%Y-%m-%d %H:%M}." if request.since else "",
        f"Until {request.until:%Y-%m-%d %H:%M}." if request.until else "",
    ]
    return " ".join(filter(None, parts))


JOB = SparkJob(
    name="report",
    help="all of these on one HTML page, with charts",
    run=run,
    add_arguments=add_arguments,
    writes_page=True,
)
