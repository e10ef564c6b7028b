"""What Spark jobs have found in the log: the latest run of each, as a chart and a table."""

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import router
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from pubsub.charts import small_bars
from pubsub.db.sql import load
from pubsub.models import Finding
from pubsub.payloads.visible import visible

from .formats import number
from .page import Pages

ROWS_SHOWN = 200
CHARTED_ROWS = 100


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a job, as far as it is shown."""

    job: str
    made_at: Any
    parameters: str
    report: str
    """Where the whole report is; empty where the job did not say."""
    columns: list[str]
    rows: list[list[Any]]
    chart: SafeString | None
    charted: str
    has_more: bool


@admin.register(Finding)
class FindingAdmin(Pages):
    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", never_cache(view), name="pubsub_finding_changelist")]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        using = router.db_for_read(Finding)
        rows = Finding.objects.using(using).raw(load("admin/latest_findings"), {"most": ROWS_SHOWN + 1})
        runs = [_run(job, list(found)) for job, found in groupby(rows, key=attrgetter("job"))]
        return self.page(request, "finding/list", _("Findings"), runs=runs, **(extra_context or {}))


def _run(job: str, found: list[Finding]) -> Run:
    shown = found[:ROWS_SHOWN]
    dicts = [row.data if isinstance(row.data, dict) else {_("value"): row.data} for row in shown]
    parameters = dict(found[0].parameters) if isinstance(found[0].parameters, dict) else {}
    # jsonb forgets the order of names, which the job therefore says.
    order = parameters.pop("columns", None)
    columns = list(dict.fromkeys(name for row in dicts for name in row))
    if isinstance(order, list):
        columns.sort(key=lambda name: order.index(name) if name in order else len(order))
    chart_column = parameters.pop("chart", None)
    charted, values = _numbers([chart_column] if chart_column in columns else columns, dicts)
    chart = None
    if values:
        label = _("%(column)s: from %(least)s to %(most)s.") % {
            "column": charted,
            "least": f"{min(values):g}",
            "most": f"{max(values):g}",
        }
        chart = small_bars(values, label)
    report = str(parameters.get("report", ""))
    return Run(
        job=job,
        made_at=found[0].made_at,
        parameters=", ".join(f"{name}: {value}" for name, value in parameters.items() if name != "report"),
        # Never anything but an address of the web: what is written in a table must not become a script.
        report=report if report.startswith(("http://", "https://", "/")) else "",
        columns=columns,
        rows=[[_shown(row.get(column)) for column in columns] for row in dicts],
        chart=chart,
        charted=charted,
        has_more=len(found) > ROWS_SHOWN,
    )


def _numbers(columns: list[str], rows: list[dict[str, Any]]) -> tuple[str, list[float]]:
    """The last column that holds nothing but amounts: the first ones say what they are amounts of."""
    for column in reversed(columns):
        values = [row.get(column) for row in rows[:CHARTED_ROWS]]
        if len(values) > 1 and all(_is_number(value) for value in values):
            return column, [float(value) for value in values]  # type: ignore[arg-type]
    return "", []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    return f"{value:,.2f}" if isinstance(value, float) else visible(str(value))
