"""What an archive holds, as its manifests say."""

import datetime as dt
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from pubsub.spark.errors import ArchiveBroken

from .folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class PieceFile:
    """A Parquet file: the events of one date in a part of a range."""

    path: str
    date: str
    rows: int
    first: int
    last: int
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A closed range of a topic's offsets that is archived as a whole."""

    topic: str
    first: int
    last: int
    last_event_id: str
    """By which the following log is recognised."""
    written_at: str
    files: Sequence[PieceFile]

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def as_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False)


class TopicArchive:
    """One topic's part of an archive."""

    def __init__(self, folder: Folder, topic: str) -> None:
        self.folder = folder
        self.topic = topic
        self.path = f"topic={quote(topic, safe='')}"

    def every_piece(self) -> list[Piece]:
        """All that have a manifest, including those that a larger one has replaced."""
        names = [name for name in self.folder.files_below(f"{self.path}/_manifest") if _is_manifest(name)]
        return [_piece(name, self.folder.read_text(name)) for name in sorted(names)]

    def pieces(self) -> list[Piece]:
        """Those that count, in order and without gaps, unless a gap was allowed when they were written."""
        every = self.every_piece()
        kept = sorted((piece for piece in every if replacement(piece, every) is None), key=lambda piece: piece.first)
        for before, after in itertools.pairwise(kept):
            if after.first <= before.last:
                raise ArchiveBroken(
                    f"{self.folder.full(self.path)} has two manifests of the same offsets of topic "
                    f'"{self.topic}": {before.first} to {before.last}, and {after.first} to {after.last}. Only one of '
                    f"them can be right: compare them with the log, and remove the wrong one."
                )
        return kept

    def publish(self, piece: Piece) -> None:
        """From now on the range is archived."""
        self.folder.write_text(self.manifest_path(piece), piece.as_json())

    def manifest_path(self, piece: Piece) -> str:
        return f"{self.path}/_manifest/{piece.first:020}-{piece.last:020}.json"

    def files(self, pieces: Sequence[Piece]) -> list[str]:
        return [self.folder.full(f"{self.path}/{file.path}") for piece in pieces for file in piece.files]


class Archive:
    """A folder with the archived parts of some topics."""

    def __init__(self, session: "SparkSession", root: str) -> None:
        self.folder = Folder(session, root)

    def topics(self) -> list[str]:
        return [
            unquote(name.removeprefix("topic=")) for name in self.folder.folders_in("") if name.startswith("topic=")
        ]

    def topic(self, name: str) -> TopicArchive:
        return TopicArchive(self.folder, name)


def replacement(piece: Piece, every: Sequence[Piece]) -> Piece | None:
    """The larger piece that has replaced this one."""
    for other in every:
        if other.first <= piece.first and other.last >= piece.last and other.count > piece.count:
            return other
    return None


def age_s(piece: Piece) -> float:
    return (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(piece.written_at)).total_seconds()


def _is_manifest(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".json") and not name.startswith(".")


def _piece(path: str, text: str) -> Piece:
    try:
        given = json.loads(text)
        if given.pop("format") != FORMAT:
            raise ArchiveBroken(f"{path} was written by a newer version of this package. Use that version.")
        files = [PieceFile(**file) for file in given.pop("files")]
        return Piece(**given, files=files)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveBroken(f"{path} is not a manifest ({error}). Restore it from a copy of the archive.") from error
