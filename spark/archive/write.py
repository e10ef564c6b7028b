"""Archiving: closed ranges of the log, each exactly once, even if a run is killed.

For each range, first the files are written into a folder of their own and checked; then they get their names; then the
manifest is written, and the range is archived; then the group's cursors move, and retention may drop the range. If a
run is killed in between, the next run repeats or continues it.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import DEFAULT_DB_ALIAS, connections

from pubsub.spark.errors import ArchiveBroken, InvalidRead, RangeNotThere
from pubsub.spark.ranges import Extent, LogRange, extents
from pubsub.spark.readers import read_ranges

from . import group as groups
from .manifest import Archive, Piece, PieceFile, TopicArchive, age_s, replacement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANGE_SIZE = 1_000_000
"""Events in one range, if there are that many."""

ROWS_OF_FILE = 500_000

WRITING = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Events are roughly in order of time, so few dates, and few files, are open at a time and nothing need be sorted.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
}

OPTIONS = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "1",
    "maxRecordsPerFile": str(ROWS_OF_FILE),
}

NEVER_TWICE = ("c_offset", "position", "event_id", "payload", "created_at")
"""Columns for which a dictionary would be wasted work."""

TOGETHER = 8
"""This many small ranges are merged into one."""

REPLACED_STAY_S = 3600
"""For readers that are using them."""


@dataclass(frozen=True, kw_only=True)
class Archived:
    """What a run did for a topic."""

    topic: str
    pieces: Sequence[Piece]
    merged: Sequence[Piece]
    first: int
    last: int
    """Of everything that is now archived."""


def archive_topic(
    session: "SparkSession",
    root: str,
    topic: str,
    *,
    group: str = "archive",
    range_size: int = RANGE_SIZE,
    together: int = TOGETHER,
    allow_gap: bool = False,
    reached: Callable[[str], None] = lambda step: None,
    using: str = DEFAULT_DB_ALIAS,
) -> Archived:
    """Archives a topic up to its current tip, and merges small ranges.

    ``reached`` is called at each step: staged, checked, named, published, moved, merged.

    >>> import tempfile
    >>> from pubsub.spark.session import build_session
    >>> archive_topic(build_session(), tempfile.mkdtemp(), "default").pieces
    []
    """
    if range_size < 1:
        raise InvalidRead(f"range_size must be at least 1, not {range_size}.")
    (extent,) = extents(topic, using)
    writer = Writer(session, Archive(session, root).topic(topic), reached)
    with groups.alone(group, extent.topic_id, using):
        writer.clean()
        there = writer.archive.pieces()
        next_offset = there[-1].last + 1 if there else extent.oldest
        groups.subscribe(group, extent.topic_id, next_offset, using)
        # Only now: retention waits for the group, so the oldest offset stays.
        (extent,) = extents(topic, using)
        next_offset = _next(there, extent, allow_gap=allow_gap, using=using)
        groups.move_to(group, extent.topic_id, next_offset, using)
        done = []
        for piece in extent.range(next_offset).split(range_size):
            done.append(writer.write_log(piece, using))
            groups.move_to(group, extent.topic_id, piece.last + 1, using)
            reached("moved")
        merged = writer.merge(range_size, together)
        there = writer.archive.pieces()
    return Archived(
        topic=topic,
        pieces=done,
        merged=merged,
        first=there[0].first if there else next_offset,
        last=there[-1].last if there else next_offset - 1,
    )


def would_archive(session: "SparkSession", root: str, topic: str, *, range_size: int, using: str) -> list[LogRange]:
    """The ranges that archiving would write now."""
    (extent,) = extents(topic, using)
    there = Archive(session, root).topic(topic).pieces()
    next_offset = _next(there, extent, allow_gap=True, using=using)
    return extent.range(next_offset).split(range_size)


def _next(there: Sequence[Piece], extent: Extent, *, allow_gap: bool, using: str) -> int:
    """Where to continue; raises if the log is not the one that was archived, or begins after a gap."""
    if not there:
        return extent.oldest
    last = there[-1]
    name = f'topic "{extent.topic}"'
    if last.last > extent.tip:
        raise ArchiveBroken(
            f"The archive of {name} ends at offset {last.last}, and the log at {extent.tip}: the database is not "
            f"the one that was archived, or an older copy of it. Archive it to another folder."
        )
    found = _event_id_at(extent.topic_id, last.last, using)
    if found and found != last.last_event_id:
        raise ArchiveBroken(
            f"Offset {last.last} of {name} is event {last.last_event_id} in the archive and {found} in the log: the "
            f"database is not the one that was archived. Archive it to another folder."
        )
    if last.last + 1 < extent.oldest and not allow_gap:
        raise RangeNotThere(
            f"The archive of {name} ends at offset {last.last}, and the log begins at {extent.oldest}: retention has "
            f"dropped offsets {last.last + 1} to {extent.oldest - 1}, because the archive's group did not exist or "
            f"did not count. --allow-gap continues without them."
        )
    return max(last.last + 1, extent.oldest)


def _event_id_at(topic_id: int, offset: int, using: str) -> str | None:
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT event_id::text FROM outbox_log_v WHERE topic_id = %s AND c_offset = %s", [topic_id, offset]
        )
        found = cursor.fetchone()
    return found[0] if found else None


class Writer:
    """Writes ranges into one topic's part of an archive."""

    def __init__(self, session: "SparkSession", archive: TopicArchive, reached: Callable[[str], None]) -> None:
        self.session = session
        self.archive = archive
        self.folder = archive.folder
        self.reached = reached

    def write_log(self, piece: LogRange, using: str) -> Piece:
        frame = read_ranges(self.session, [piece], using=using)
        return self._write(frame, piece.first, piece.last, str(_event_id_at(piece.topic_id, piece.last, using)))

    def merge(self, range_size: int, together: int) -> list[Piece]:
        """Merge small neighbours, and leave the old files for a while to their readers."""
        from pyspark.sql import functions as f

        from .read import read_pieces

        merged = []
        for run in to_merge(self.archive.pieces(), range_size, together):
            frame = (
                read_pieces(self.session, self.archive, run)
                .repartition(f.to_date("created_at"), f.floor(f.col("c_offset") / ROWS_OF_FILE))
                .sortWithinPartitions("created_at", "c_offset")
            )
            merged.append(self._write(frame, run[0].first, run[-1].last, run[-1].last_event_id))
            self.reached("merged")
        return merged

    def clean(self) -> None:
        """Removes files of killed runs, and files that were replaced long enough ago."""
        every = self.archive.every_piece()
        kept = []
        for piece in every:
            by = replacement(piece, every)
            if by is not None and age_s(by) > REPLACED_STAY_S:
                self.folder.remove(self.archive.manifest_path(piece))
            else:
                kept.append(piece)
        named = {f"{self.archive.path}/{file.path}" for piece in kept for file in piece.files}
        manifests = {self.archive.manifest_path(piece) for piece in kept}
        for path in self.folder.files_below(self.archive.path):
            if path not in named and path not in manifests:
                self.folder.remove(path)
        self.folder.remove(f"{self.archive.path}/_staging")

    def _write(self, frame: "DataFrame", first: int, last: int, last_event_id: str) -> Piece:
        from pyspark.sql import functions as f

        staging = f"{self.archive.path}/_staging/{uuid.uuid4()}"
        writer = frame.withColumn("date", f.to_date("created_at")).write.partitionBy("date")
        for column in NEVER_TWICE:
            writer = writer.option(f"parquet.enable.dictionary#{column}", "false")
        for name, value in OPTIONS.items():
            writer = writer.option(name, value)
        with self._settings(WRITING):
            writer.parquet(self.folder.full(staging))
        self.reached("staged")
        piece = self._named(staging, first, last, last_event_id)
        self.folder.settle([f"{self.archive.path}/{file.path}" for file in piece.files])
        self.folder.remove(staging)
        self.reached("named")
        self.archive.publish(piece)
        self.reached("published")
        return piece

    @contextmanager
    def _settings(self, wanted: Mapping[str, str]) -> Iterator[None]:
        before = {name: str(self.session.conf.get(name)) for name in wanted}
        for name, value in wanted.items():
            self.session.conf.set(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                self.session.conf.set(name, value)

    def _named(self, staging: str, first: int, last: int, last_event_id: str) -> Piece:
        """Checks the staged files, and gives them their final names."""
        from pyspark.sql import functions as f

        staged = self.session.read.parquet(self.folder.full(staging))
        of_files = (
            staged.groupBy(f.input_file_name().alias("file"))
            .agg(
                f.count("*").alias("rows"),
                f.min("c_offset").alias("first"),
                f.max("c_offset").alias("last"),
                f.sum("c_offset").alias("sum"),
            )
            .collect()
        )
        self._check(of_files, first, last)
        self.reached("checked")
        run, files = uuid.uuid4().hex[:8], []
        parts = {_name(row.file): row for row in of_files}
        for number, path in enumerate(self.folder.files_below(staging)):
            row = parts.get(_name(path))
            if row is None:
                continue  # Spark's marks of success, and checksums
            date = path.split("/date=")[1].partition("/")[0]
            name = f"date={date}/{row.first:020}-{row.last:020}-{run}-{number}.parquet"
            size, digest = self.folder.size(path) or 0, self.folder.sha256(path)
            self.folder.move(path, f"{self.archive.path}/{name}")
            files.append(
                PieceFile(
                    path=name, date=date, rows=row.rows, first=row.first, last=row.last, bytes=size, sha256=digest
                )
            )
        return Piece(
            topic=self.archive.topic,
            first=first,
            last=last,
            last_event_id=last_event_id,
            written_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            files=sorted(files, key=lambda file: (file.date, file.first)),
        )

    def _check(self, of_files: Sequence[object], first: int, last: int) -> None:
        rows = sum(row.rows for row in of_files)  # type: ignore[attr-defined]
        total = sum(row.sum for row in of_files)  # type: ignore[attr-defined]
        names = {_name(row.file) for row in of_files}  # type: ignore[attr-defined]
        count = last - first + 1
        if rows != count or total != count * (first + last) // 2 or len(names) != len(of_files):
            raise ArchiveBroken(
                f'Offsets {first} to {last} of topic "{self.archive.topic}" are {count:,} events, but {rows:,} were '
                f"read, or others. None was archived; `manage.py run_spark_job audit` finds out why."
            )


def _name(path: str) -> str:
    """The folder and the name: files of different dates in one write may have the same name."""
    return "/".join(path.split("/")[-2:])


def to_merge(pieces: Sequence[Piece], range_size: int, together: int) -> list[list[Piece]]:
    """Neighbours that are worth merging. One that outweighs all the others is not copied again for them.

    >>> def of(*counts):
    ...     ends = [sum(counts[: n + 1]) for n in range(len(counts))]
    ...     rest = {"topic": "a", "last_event_id": "", "written_at": "", "files": []}
    ...     return [Piece(first=end - count + 1, last=end, **rest) for end, count in zip(ends, counts)]
    >>> [[piece.count for piece in run] for run in to_merge(of(10, 1, 1, 1, 90, 1, 1, 1), 100, 3)]
    [[1, 1, 1], [1, 1, 1]]
    """
    runs: list[list[Piece]] = []
    start = 0
    while start < len(pieces):
        run = [pieces[start]]
        for piece in pieces[start + 1 :]:
            if piece.first != run[-1].last + 1 or sum(each.count for each in run) + piece.count > range_size:
                break
            run.append(piece)
        while len(run) >= together and max(piece.count for piece in run) > sum(piece.count for piece in run) / 2:
            largest = max(run, key=lambda piece: piece.count)
            run = run[: run.index(largest)] if run[0] is not largest else []
        if len(run) >= together:
            runs.append(run)
            start += len(run)
        else:
            start += 1
    return runs
