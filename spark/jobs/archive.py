"""Archiving as a job: writes the log to Parquet, and merges small files."""

from argparse import ArgumentParser

from pubsub.spark.archive.write import RANGE_SIZE, TOGETHER, archive_topic, would_archive
from pubsub.spark.errors import InvalidRead
from pubsub.spark.ranges import extents

from .job import JobRequest, JobResult, SparkJob

SCHEMA = "topic string, what string, first bigint, last bigint, files int, bytes bigint, events bigint"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--to", metavar="DIR", required=True, help="the archive's folder, on a disk or as hdfs://…, s3a://…"
    )
    parser.add_argument(
        "--group", default="archive", help="the subscription by which retention waits for it (default: archive)"
    )
    parser.add_argument(
        "--range-size", type=int, default=RANGE_SIZE, help=f"most events in one range (default: {RANGE_SIZE})"
    )
    parser.add_argument(
        "--together", type=int, default=TOGETHER, help=f"this many small ranges become one (default: {TOGETHER})"
    )
    parser.add_argument(
        "--allow-gap", action="store_true", help="continue even if retention has dropped unarchived events"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be archived, and do nothing")


def run(request: JobRequest) -> JobResult:
    options = request.options
    size, root = options.get("range_size", RANGE_SIZE), options.get("to")
    if not root:
        raise InvalidRead("Name the folder to archive to: --to DIR.")
    rows: list[tuple[object, ...]] = []
    notes = []
    for topic in request.topics or [extent.topic for extent in extents(None, request.using)]:
        request.say(f"Archiving {topic}")
        if options.get("dry_run"):
            pieces = would_archive(request.session, root, topic, range_size=size, using=request.using)
            rows += [(topic, "to be archived", each.first, each.last, None, None, each.count) for each in pieces]
            continue
        done = archive_topic(
            request.session,
            root,
            topic,
            group=options.get("group", "archive"),
            range_size=size,
            together=max(2, options.get("together", TOGETHER)),
            allow_gap=options.get("allow_gap", False),
            using=request.using,
        )
        for what, some in (("archived", done.pieces), ("put together", done.merged)):
            rows += [(topic, what, each.first, each.last, len(each.files), each.bytes, each.count) for each in some]
        if done.last >= done.first:
            notes.append(f"{topic}: offsets {done.first} to {done.last} are archived.")
    if options.get("dry_run"):
        notes.append("This was a dry run: nothing was changed.")
    return JobResult(frame=request.session.createDataFrame(rows, SCHEMA), chart="events", notes=notes)


JOB = SparkJob(
    name="archive",
    help="the log to Parquet, by topic and date, exactly once",
    run=run,
    add_arguments=add_arguments,
    by_time=False,
)
