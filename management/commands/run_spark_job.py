"""Analyse, archive or replay the log with Spark."""

import json
import logging
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DEFAULT_DB_ALIAS

from pubsub.conf import conf
from pubsub.errors import PubSubError
from pubsub.management.arguments import LARGEST_ID, moment, whole_number
from pubsub.management.databases import DatabaseCommand, check_database
from pubsub.management.tables import cut, table, terminal_width
from pubsub.payloads.write import escaped
from pubsub.spark.jobs import JobRequest, SparkJob, jobs
from pubsub.spark.progress import shown_progress
from pubsub.spark.results import FILE_FORMATS, as_text, numeric_columns
from pubsub.spark.run import JobOutcome, run_job
from pubsub.spark.session import build_session

PROBLEMS = 1


class Command(DatabaseCommand):
    help = (
        "Runs an analysis of the log in Spark: on this machine, or where --master says. Only archive, replay and "
        "--save change anything. "
        "`spark-submit --jars DRIVER manage.py run_spark_job …` does the same. Exit code: 0; 1 if the job found "
        "something wrong, or could not run; 2 if the command was misused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parts = parser.add_subparsers(dest="job", required=True, metavar="JOB")
        for job in jobs().values():
            one = parts.add_parser(job.name, help=job.help)
            _add_common(one, job)
            job.add_arguments(one)

    def handle(self, *args: Any, **options: Any) -> None:
        check_database(options["database"])
        job = jobs()[options["job"]]
        self.on_terminal = self.stderr.isatty()
        try:
            outcome = self.run(job, options)
        except PubSubError as error:
            raise CommandError(str(error), returncode=PROBLEMS) from error
        if options["format"] == "json":
            self.stdout.write(escaped(json.dumps(_as_data(outcome), cls=DjangoJSONEncoder, ensure_ascii=False)))
        else:
            self.show_outcome(outcome)
        if outcome.problems:
            raise CommandError(_summary(outcome.problems), returncode=PROBLEMS)

    def run(self, job: SparkJob, options: dict[str, Any]) -> JobOutcome:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        # It logs each of its connections, which is of no use here.
        logging.getLogger("py4j").setLevel(logging.WARNING)
        was_open = SparkSession.getActiveSession()
        self.say("Starting Spark")
        session = was_open or build_session(
            app_name=f"pubsub {job.name}",
            master=options["master"],
            memory=options["memory"],
            config={"spark.log.level": "ERROR", **conf().spark_conf},
            using=options["database"],
        )
        own = _own_options(job)
        request = JobRequest(
            session=session,
            using=options["database"],
            topics=options.get("topic") or (),
            start=options.get("start"),
            end=options.get("end"),
            since=options.get("since"),
            until=options.get("until"),
            archive=options.get("archive") if job.from_archive else None,
            options={name: value for name, value in options.items() if name in own},
            say=self.say,
        )
        try:
            with shown_progress(session, self.show if self.on_terminal else None):
                return run_job(
                    job,
                    request,
                    output=options["output"],
                    file_format=options.get("file_format", "parquet"),
                    overwrite=options.get("overwrite", False),
                    save=options["save"],
                    rows=options["rows"],
                )
        except (PySparkException, Py4JJavaError) as error:
            raise CommandError(f"The Spark job failed: {_reason(error)}", returncode=PROBLEMS) from error
        finally:
            if was_open is None:
                session.stop()

    def say(self, text: str) -> None:
        if self.on_terminal:
            self.stderr.write(f"\r\x1b[K{text} …")

    def show(self, text: str) -> None:
        self.stderr.write(f"\r\x1b[K{cut(text, terminal_width() - 1)}", ending="")
        self.stderr.flush()

    def show_outcome(self, outcome: JobOutcome) -> None:
        numeric = numeric_columns(outcome.columns, outcome.rows)
        headings = [name.replace("_", " ") + ">" * numeric[n] for n, name in enumerate(outcome.columns)]
        if outcome.rows:
            width = terminal_width() if self.stdout.isatty() else 1000
            for line in table(headings, [[as_text(value) for value in row] for row in outcome.rows], width):
                self.stdout.write(line)
        else:
            self.stdout.write("There is nothing to show.")
        if outcome.has_more:
            self.stdout.write(f"… and more. These are the first {len(outcome.rows):,} rows; --rows shows more.")
        for note in outcome.notes:
            self.stdout.write(note)


def _add_common(parser: ArgumentParser, job: SparkJob) -> None:
    parser.add_argument("--topic", action="append", help="only this one; may be repeated (default: all)")
    if job.by_offset:
        parser.add_argument(
            "--start", type=whole_number(1, LARGEST_ID), help="the first offset, of one topic (default: the oldest)"
        )
        parser.add_argument(
            "--end", type=whole_number(1, LARGEST_ID), help="the last offset, of one topic (default: the tip)"
        )
    if job.by_time:
        parser.add_argument(
            "--since", type=moment, help="from a time on, such as 2030-01-31T12:00, or how long ago, such as 24h"
        )
        parser.add_argument("--until", type=moment, help="up to a time")
    if job.from_archive:
        parser.add_argument("--archive", metavar="DIR", help="an archive to read before the live log")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="of what is printed")
    parser.add_argument("--rows", type=whole_number(1), default=100, help="how many are printed (default: 100)")
    if job.writes_page:
        parser.add_argument("--output", metavar="FILE", default="report.html", help="the page (default: report.html)")
    else:
        parser.add_argument("--output", metavar="DIR", help="write all rows to files in this folder")
        parser.add_argument(
            "--file-format", choices=FILE_FORMATS, default="parquet", help="of those (default: parquet)"
        )
        parser.add_argument("--overwrite", action="store_true", help="replace what is in that folder")
    parser.add_argument("--save", action="store_true", help="save the rows in spark_findings, which the admin charts")
    parser.add_argument("--master", help="where Spark runs, such as local[2] (default: as configured)")
    parser.add_argument("--memory", help="of the driver, such as 2g (default: as configured)")
    parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="the database with the outbox's tables")


def _own_options(job: SparkJob) -> set[str]:
    parser = ArgumentParser(add_help=False)
    job.add_arguments(parser)
    return {action.dest for action in parser._actions}


def _as_data(outcome: JobOutcome) -> dict[str, Any]:
    return {
        "job": outcome.job,
        "run_id": outcome.run_id,
        "columns": list(outcome.columns),
        "rows": [dict(zip(outcome.columns, row, strict=True)) for row in outcome.rows],
        "has_more": outcome.has_more,
        "notes": list(outcome.notes),
        "problems": list(outcome.problems),
    }


def _summary(problems: Any, most: int = 20) -> str:
    lines = [*problems[:most], *([f"… and {len(problems) - most:,} more."] if len(problems) > most else [])]
    return "\n".join(lines)


def _reason(error: Exception) -> str:
    """What PostgreSQL or Spark reported, without the stack trace."""
    text = str(error)
    lines: list[str] = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.strip().startswith(("at ", "... ", "JVM stacktrace"))
    ]
    caused = [line for line in lines if line.startswith("Caused by:")]
    wanted: Callable[[str], bool] = lambda line: "ERROR:" in line or "Exception:" in line  # noqa: E731
    reason = (caused or [line for line in lines if wanted(line)] or lines or [type(error).__name__])[-1]
    return reason.removeprefix("Caused by:").strip()
