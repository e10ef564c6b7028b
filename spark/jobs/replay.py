"""Replaying as a job: archived events to one group."""

from argparse import ArgumentParser

from pubsub.spark.archive.replay import ReplayRequest, archived_events, check_group, replay
from pubsub.spark.errors import InvalidRead

from .job import JobRequest, JobResult, SparkJob

SCHEMA = "topic string, group string, type string, first bigint, last bigint, events bigint"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--from", dest="root", metavar="DIR", required=True, help="the archive's folder")
    parser.add_argument("--to-group", required=True, help="the group that gets the events; no other does")
    parser.add_argument("--key", action="append", help="only events of this key, or host; may be repeated")
    parser.add_argument("--type", action="append", help="only events of this type; may be repeated")
    parser.add_argument("--again", action="store_true", help="also what this command has already replayed to the group")
    parser.add_argument("--dry-run", action="store_true", help="say what would be published, and publish nothing")


def run(request: JobRequest) -> JobResult:
    from pyspark.sql import functions as f

    if len(request.topics) != 1:
        raise InvalidRead("A replay reads one topic: name it with --topic.")
    options = request.options
    wanted = ReplayRequest(
        topic=request.topics[0],
        group=options.get("to_group") or "",
        start=request.start,
        end=request.end,
        since=request.since,
        until=request.until,
        keys=tuple(options.get("key") or ()),
        types=tuple(options.get("type") or ()),
    )
    root = options["root"]
    check_group(wanted, request.using)
    frame = (
        archived_events(request.session, root, wanted)
        .groupBy("topic", f.lit(wanted.group).alias("group"), "type")
        .agg(f.min("c_offset").alias("first"), f.max("c_offset").alias("last"), f.count("*").alias("events"))
        .orderBy("topic", "type")
    )
    if options.get("dry_run"):
        notes = ["This was a dry run: nothing was published."]
    else:
        done = replay(
            request.session,
            root,
            wanted,
            again=options.get("again", False),
            reached=lambda events: request.say(f"{events:,} events published"),
            using=request.using,
        )
        notes = [f"{done.events:,} events were published to group {wanted.group}."]
        if done.before:
            notes.append(f"{done.before:,} had already been published; --again publishes them once more.")
    return JobResult(frame=frame, chart="events", notes=notes)


JOB = SparkJob(
    name="replay",
    help="publish archived events again, for one group",
    run=run,
    add_arguments=add_arguments,
    by_offset=True,
)
