"""What in an archive's folder is its own. Whatever is not is left alone, unless its removal is asked for."""

import json
import re
from collections.abc import Sequence

from pubsub.spark.errors import ArchiveBroken, NotAnArchive

from .manifest import Piece, TopicArchive, age_s, replacement

MARKER = "_archive.json"

WRITTEN = re.compile(r"date=[^/]+/\d{20}-\d{20}-([0-9a-f]{32})-\d+\.parquet")
"""The name of a file, and in it the run that has written it."""

REPLACED_STAY_S = 3600
"""For those that are reading them."""


def is_marked(archive: TopicArchive, group: str) -> bool:
    """Whether the folder is this group's archive; raises :class:`NotAnArchive` if it is something else."""
    marker, folder = f"{archive.path}/{MARKER}", archive.folder.full(archive.path)
    expected = {"topic": archive.topic, "group": group}
    if archive.folder.size(marker) is None:
        # A run that was killed while it made the marker has left this, and nothing else.
        there = [path for path in archive.folder.files_below(archive.path) if path != _unfinished(archive)]
        if there:
            raise NotAnArchive(
                f"{folder} holds {len(there):,} files, such as {there[0]}, and no {MARKER}, which an archive has: "
                f"another program may have written them. Archive to another folder; if it is a copy of an archive, "
                f"copy {MARKER} too."
            )
        return False
    try:
        found = json.loads(archive.folder.read_text(marker))
    except ValueError as error:
        raise ArchiveBroken(
            f"{folder}/{MARKER} is no JSON ({error}). Restore it from a copy of the archive."
        ) from error
    if found != expected:
        raise NotAnArchive(
            f"{folder} is the archive of {found}, and not of {expected}. Archive to another folder, or name that group "
            f"by --group."
        )
    return True


def mark(archive: TopicArchive, group: str) -> None:
    """From now on the folder is this group's archive."""
    if not is_marked(archive, group):
        text = json.dumps({"topic": archive.topic, "group": group}, ensure_ascii=False)
        archive.folder.write_text(f"{archive.path}/{MARKER}", text, unfinished=_unfinished(archive))


def clean(archive: TopicArchive) -> None:
    """Removes what was left by runs that were killed, and what has been replaced for long enough."""
    kept, replaced = _pieces(archive)
    for piece in replaced:
        # The manifest goes last: as long as it is there, it is known whose the files are.
        for path in {file.path for file in piece.files} - {file.path for each in kept for file in each.files}:
            archive.folder.remove(f"{archive.path}/{path}")
        archive.folder.remove(archive.manifest_path(piece))
    left, _ = _not_named(archive)
    for path in left:
        archive.folder.remove(path)
    archive.folder.remove(archive.staging)


def strangers(archive: TopicArchive) -> list[str]:
    """The files that no manifest names, and that no run that was killed has left."""
    return _not_named(archive)[1]


def _not_named(archive: TopicArchive) -> tuple[list[str], list[str]]:
    """What runs that were killed have left, and all else that no manifest names."""
    named = {f"{archive.path}/{MARKER}"}
    for piece in archive.every_piece():
        named |= {archive.manifest_path(piece), *(f"{archive.path}/{file.path}" for file in piece.files)}
    runs = set(archive.folder.folders_in(archive.staging))
    left: list[str] = []
    others: list[str] = []
    for path in archive.folder.files_below(archive.path):
        if path in named or path.startswith(f"{archive.staging}/"):
            continue
        written = WRITTEN.fullmatch(path.removeprefix(f"{archive.path}/"))
        (left if written and written[1] in runs else others).append(path)
    return left, others


def _pieces(archive: TopicArchive) -> tuple[Sequence[Piece], Sequence[Piece]]:
    """Those that stay, and those that were replaced long ago."""
    every = archive.every_piece()
    by = [(piece, replacement(piece, every)) for piece in every]
    replaced = [piece for piece, larger in by if larger is not None and age_s(larger) > REPLACED_STAY_S]
    return [piece for piece in every if piece not in replaced], replaced


def _unfinished(archive: TopicArchive) -> str:
    return f"{archive.path}/.{MARKER}.unfinished"
