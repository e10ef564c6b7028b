"""What can go wrong with Spark, and when reading and writing with it."""

from pubsub.errors import PubSubError


class SparkNotReady(PubSubError):
    """Something that Spark needs is missing on this machine; the message says how to get it."""


class RangeNotThere(PubSubError):
    """Offsets were asked for that the log does not hold."""


class InvalidRead(PubSubError):
    """The options of a read cannot work."""


class InvalidWrite(PubSubError):
    """Spark was given something to publish that cannot be an event."""


class FolderInUse(PubSubError):
    """There are already files in the folder to write to."""


class ArchiveBroken(PubSubError):
    """An archive is not what its manifests say, or does not belong to this log."""


class ArchiveBusy(PubSubError):
    """An archive cannot be written now; the message says why."""
