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

from .charts import Bar, bars, course

MOST_BARS = 20
MOST_ROWS = 200


@dataclass(frozen=True, kw_only=True)
class Section:
    """What one job has found, as far as it is shown."""

    title: str
    about: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str]
    problems: Sequence[str]
    has_more: bool = False
    chart: str = ""
    """A drawing that `charts` has made."""


def render(sections: Sequence[Section], about: str = "", made_at: dt.datetime | None = None) -> str:
    """The page as a text. Whatever stands in an event is escaped."""
    shown = [
        {
            "section": section,
            "headings": [(name.replace("_", " "), _is_numeric(section, n)) for n, name in enumerate(section.columns)],
            "rows": [[(_text(value), _is_numeric(section, n)) for n, value in enumerate(row)] for row in section.rows],
        }
        for section in sections
    ]
    text = files("pubsub.spark").joinpath("report", "page.html").read_text(encoding="utf-8")
    moment = made_at or dt.datetime.now(dt.UTC)
    # An engine of its own: the project's may be another one, or have no folder of ours.
    return (
        Engine(autoescape=True)
        .from_string(text)
        .render(Context({"sections": shown, "about": about, "made_at": f"{moment:%Y-%m-%d %H:%M:%S} UTC"}))
    )


def drawing(job: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The chart that suits a job's result; empty where there is nothing to draw.

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
        return course(sorted(events.items()), dt.timedelta(hours=1), "events an hour")
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
    return bars([make(row) for row in dicts[:MOST_BARS]], job.replace("_", " "))


def _is_numeric(section: Section, number: int) -> bool:
    return all(isinstance(row[number], int | float | None) for row in section.rows)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, dt.datetime) else str(value)
