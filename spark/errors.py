"""What can go wrong with Spark, and in reading and writing by it."""

from pubsub.errors import PubSubError


class SparkNotReady(PubSubError):
    """Something that Spark needs is missing on this machine; the message names the ways to get it."""


class RangeNotThere(PubSubError):
    """Offsets were asked for that the log does not hold."""


class InvalidRead(PubSubError):
    """A read was described in a way that cannot work."""


class InvalidWrite(PubSubError):
    """Spark was to publish something that cannot be an event."""


class FolderInUse(PubSubError):
    """Files were to be written where there are some already."""


class ArchiveBroken(PubSubError):
    """An archive is not what its manifests say, or does not belong to this log."""


class NotAnArchive(PubSubError):
    """A folder belongs to something else than the archive that was to be written there."""


class ArchiveBusy(PubSubError):
    """An archive cannot be written at this moment; the message says why."""
