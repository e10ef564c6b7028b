"""Where a job's results go: to files, to the table that the admin shows, and as text to pages and terminals."""

import datetime as dt
import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import DEFAULT_DB_ALIAS

from pubsub.payloads.redact import REDACTED, Redactor
from pubsub.payloads.write import write_line

from .connection import jdbc_options
from .errors import FolderInUse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE_FORMATS = ("parquet", "csv", "json")

QUOTING = ("payload", "metadata", "for_example")
"""Columns of results that hold payloads, or texts that may quote them."""


def write_files(frame: "DataFrame", folder: str, file_format: str, *, overwrite: bool = False) -> None:
    """Writes the rows as files to a folder anywhere Spark can write."""
    from pyspark.errors import AnalysisException

    options = {"header": "true"} if file_format == "csv" else {}
    if file_format == "json":
        options["ignoreNullFields"] = "false"
    if "://" not in folder:
        # Spark would take it from its own working directory, and without a word from HDFS where there is one.
        folder = f"file://{Path(folder).absolute()}"
    writer = frame.write.format(file_format).options(**options).mode("overwrite" if overwrite else "errorifexists")
    try:
        writer.save(folder)
    except AnalysisException as error:
        if error.getCondition() == "PATH_ALREADY_EXISTS":
            raise FolderInUse(f"{folder} exists already. Name another folder, or allow overwriting it.") from error
        raise


def save_findings(
    frame: "DataFrame",
    *,
    job: str,
    parameters: Mapping[str, Any],
    run_id: uuid.UUID | None = None,
    using: str = DEFAULT_DB_ALIAS,
) -> uuid.UUID:
    """Writes the rows to `spark_findings`, over JDBC, in one transaction. Returns the run's number.

    >>> from pubsub.spark.session import build_session
    >>> run_id = save_findings(build_session().range(2), job="doctest", parameters={"columns": ["id"]})
    >>> from pubsub.models import Finding
    >>> [finding.data for finding in Finding.objects.filter(run_id=run_id).order_by("row_number")]
    [{'id': 0}, {'id': 1}]
    """
    from pyspark.sql import functions as f

    run_id = run_id or uuid.uuid4()
    rows = frame.coalesce(1).select(
        f.lit(str(run_id)).alias("run_id"),
        f.lit(job).alias("job"),
        f.lit(json.dumps(parameters, cls=DjangoJSONEncoder)).alias("parameters"),
        f.monotonically_increasing_id().cast("int").alias("row_number"),
        f.to_json(f.struct(*frame.columns), {"ignoreNullFields": "false"}).alias("data"),
    )
    options = jdbc_options(using, write=True)
    # One task, and so one transaction: a run is stored completely or not at all.
    rows.write.jdbc(options.pop("url"), "spark_findings", mode="append", properties=options)
    return run_id


def visible_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows as people may see them: without what PUBSUB redacts of payloads and metadata.

    >>> from django.test import override_settings
    >>> with override_settings(PUBSUB={"redact_paths": ["card"]}):
    ...     visible_rows(["key", "payload"], [("7", '{"card": "4111"}')])
    [['7', '{"card": "[redacted]"}']]
    """
    return [[_visible(name, value) for name, value in zip(columns, row, strict=True)] for row in rows]


def _visible(name: str, value: Any) -> Any:
    redactor = Redactor()
    if redactor.shows_all or not isinstance(value, str) or name not in QUOTING:
        return value
    # An exception's message may quote from a payload that is not at hand.
    return write_line(redactor.json(name, value)) if name != "for_example" else REDACTED


def without_payloads(frame: "DataFrame") -> "DataFrame":
    """For the admin's page of findings, which may be seen without the permission to see payloads."""
    from pyspark.sql import functions as f

    return frame.withColumns({name: f.lit(REDACTED) for name in QUOTING if name in frame.columns})


def numeric_columns(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[bool]:
    """Whether each column's values are numbers: those are aligned to the right."""
    return [all(isinstance(row[n], int | float | None) for row in rows) for n in range(len(columns))]


def as_text(value: Any) -> str:
    """A value as readable text.

    >>> [as_text(value) for value in (None, True, 1234567, 0.5)]
    ['–', 'true', '1,234,567', '0.5']
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, dt.datetime) else str(value)
