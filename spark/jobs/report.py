"""All analyses at once, on one HTML page."""

import os
import tempfile
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

from ..report import MOST_ROWS, Section, drawing, render
from ..results import save_findings
from . import audit, dead_letters, funnel, latency, skew, throughput
from .job import Asked, Found, Job

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
        "--url", default="", help="where people will find the page, for the admin to link; http(s)://… or a path /…"
    )


def run(asked: Asked) -> Found:
    sections: list[Section] = []
    rows: list[tuple[str, int, int]] = []
    problems: list[str] = []
    for title, job in SECTIONS.items():
        asked.say(f"{title} …")
        of_job = asked if job.by_time else replace(asked, since=None, until=None)
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
        if asked.options.get("save"):
            told = {"columns": frame.columns, "chart": found.chart, **_link(asked)}
            save_findings(frame, job=job.name, parameters=told, using=asked.using)
        rows.append((title, len(found.problems), frame.count()))
        problems += found.problems
        frame.unpersist()
    path = Path(asked.options.get("output") or "report.html")
    write_whole(path, render(sections, _about(asked)))
    return Found(
        frame=asked.session.createDataFrame(rows, SCHEMA),
        chart="rows",
        notes=[f"The report is in {path}."],
        problems=problems,
        parameters=_link(asked),
    )


def write_whole(path: Path, text: str) -> None:
    """Whoever serves the file never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    os.replace(file.name, path)  # noqa: PTH105


def _link(asked: Asked) -> dict[str, str]:
    return {"report": asked.options["url"]} if asked.options.get("url") else {}


def _about(asked: Asked) -> str:
    said = [
        f"Topics: {', '.join(asked.topics)}." if asked.topics else "All topics.",
        f"From {asked.since:%Y-%m-%d %H:%M}." if asked.since else "",
        f"Until {asked.until:%Y-%m-%d %H:%M}." if asked.until else "",
    ]
    return " ".join(filter(None, said))


JOB = Job(
    name="report",
    help="all of these on one HTML page, with charts",
    run=run,
    add_arguments=add_arguments,
    writes_page=True,
)
