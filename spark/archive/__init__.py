"""The log beyond its retention: in Parquet, by topic and date, in closed ranges that each have a manifest.

    DIR/topic=orders.events/date=2030-01-31/<first>-<last>-<run>-<n>.parquet
    DIR/topic=orders.events/_manifest/<first>-<last>.json

A range is archived once its manifest exists, which is written last, by renaming. Files that no manifest names were left
by a run that was killed, and the next run removes them.
"""

from .manifest import Archive, Piece, PieceFile, TopicArchive
from .read import read_archive, read_both
from .write import Archived, archive_topic

__all__ = [
    "Archive",
    "Archived",
    "Piece",
    "PieceFile",
    "TopicArchive",
    "archive_topic",
    "read_archive",
    "read_both",
]
