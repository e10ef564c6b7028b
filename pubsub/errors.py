"""Everything this package raises on purpose. Each message says what was expected, what came, and what to do."""


class PubSubError(Exception):
    """The base of all errors of this package."""


class NotInTransaction(PubSubError):
    """An event was published outside a transaction, where it could not be tied to the change it reports."""


class WrongDatabase(PubSubError):
    """An event was published on one database while the open transaction is on another."""


class UnknownTopic(PubSubError):
    """The topic does not exist."""


class InvalidEvent(PubSubError):
    """A part of an event cannot be stored as it is."""


class BadLine(PubSubError):
    """A line of JSON from outside cannot be published."""


class InvalidPublication(PubSubError):
    """A model or a table was declared for publishing in a way that cannot work."""


class InvalidSubscription(PubSubError):
    """A subscription was declared in a way that cannot work."""


class InvalidSetting(PubSubError):
    """A setting in PUBSUB has a value that cannot work."""
