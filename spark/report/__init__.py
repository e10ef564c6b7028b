"""All analyses on one page: a single HTML file that needs nothing else, neither a network nor a script.

>>> found = {"columns": ["group", "lag"], "rows": [["<b>", 3]], "notes": [], "problems": []}
>>> page = render([Section(title="Lag", about="Why.", **found)])
>>> "&lt;b&gt;" in page and "<script" not in page
True
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from django.template import Context, Engine

from pubsub.charts import Bar, named_bars, time_bars
from pubsub.spark.results import as_text, numeric_columns

MOST_BARS = 20
MOST_ROWS = 200


@dataclass(frozen=True, kw_only=True)
class Section:
    """What one job found, as far as it is shown."""

    title: str
    about: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str]
    problems: Sequence[str]
    has_more: bool = False
    chart: str = ""
    """A drawing of :mod:`pubsub.charts`."""


def render(sections: Sequence[Section], about: str = "", made_at: dt.datetime | None = None) -> str:
    """The page as text. Everything that events contain is escaped."""
    text = files("pubsub.spark").joinpath("report", "page.html").read_text(encoding="utf-8")
    moment = made_at or dt.datetime.now(dt.UTC)
    # An engine of its own: the project may use another one, or not know our folder.
    return (
        Engine(autoescape=True)
        .from_string(text)
        .render(
            Context(
                {
                    "sections": [_shown(section) for section in sections],
                    "about": about,
                    "made_at": f"{moment:%Y-%m-%d %H:%M:%S} UTC",
                }
            )
        )
    )


def _shown(section: Section) -> dict[str, Any]:
    """A section for the page's template: headings and cells, each with whether it is a number."""
    numeric = numeric_columns(section.columns, section.rows)
    headings = [name.replace("_", " ") for name in section.columns]
    rows = [[as_text(value) for value in row] for row in section.rows]
    return {
        "section": section,
        "headings": list(zip(headings, numeric, strict=True)),
        "rows": [list(zip(row, numeric, strict=True)) for row in rows],
    }


def drawing(job: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The chart that suits a job's result; empty if there is nothing to draw.

    >>> drawing("audit", [], [])
    ''
    """
    dicts = [dict(zip(columns, row, strict=True)) for row in rows]
    if not dicts:
        return ""
    if job == "throughput":
        events: dict[dt.datetime, float] = {}
        for row in dicts:
            events[row["hour"]] = events.get(row["hour"], 0) + row["events"]
        return time_bars(sorted(events.items()), dt.timedelta(hours=1), "events an hour")
    make = {
        "latency": lambda row: Bar(label=f"{row['group']} ← {row['topic']}", value=row["p95_at_most_s"], unit="s"),
        "dead_letters": lambda row: Bar(label=f"{row['group']}: {row['exception'] or '–'}", value=row["letters"]),
        "skew": lambda row: Bar(label=f"{row['topic']} / {row['name']}", value=row["share"] * 100, unit="%"),
        "funnel": lambda row: Bar(label=f"{row['from_type'] or '–'} → {row['to_type'] or '–'}", value=row["times"]),
    }.get(job)
    if make is None:
        return ""
    if job == "skew":
        dicts = [row for row in dicts if row["what"] == "partition"]
    return named_bars([make(row) for row in dicts[:MOST_BARS]], job.replace("_", " "))
