"""Everything this package raises on purpose. Each message says what was expected, what came, and what to do."""

from collections.abc import Sequence


class PubSubError(Exception):
    """The base of all errors of this package."""


class NotInTransaction(PubSubError):
    """An event was published outside a transaction, where it could not be tied to the change it reports."""


class WrongDatabase(PubSubError):
    """An event was published on one database while the open transaction is on another."""


class UnknownTopic(PubSubError):
    """The topic does not exist."""

    def __init__(self, message: str, *, name: str = "", known: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.name = name
        """What was asked for, if it could be the name of a topic."""
        self.known = tuple(known)


class InvalidTopic(PubSubError):
    """A topic was given an unknown option, or a value that cannot work."""


class NoSubscribers(PubSubError):
    """An event was published to a topic that refuses events while no group is subscribed."""


class UnknownGroup(PubSubError):
    """The group is not subscribed to the topic."""


class UnknownWorker(PubSubError):
    """There is no such worker."""


class Refused(PubSubError):
    """What an operator asked for contradicts the present state, or would lose something."""


class PartitionInUse(Refused):
    """A worker is handling the partition at this moment."""


class InvalidEvent(PubSubError):
    """A part of an event cannot be stored as it is."""


class BadLine(PubSubError):
    """A line of JSON cannot be published."""


class InvalidPublication(PubSubError):
    """A model or a table was declared for publishing in a way that cannot work."""


class InvalidSubscription(PubSubError):
    """A subscription was declared in a way that cannot work."""


class InvalidSetting(PubSubError):
    """Settings in PUBSUB have values that cannot work. Each argument is about one of them."""

    def __str__(self) -> str:
        return "\n".join(self.args)


class NotHandled(PubSubError):
    """The base of what a handler raises to decide about an event that it has not handled."""


class Reject(NotHandled):
    """Raised by a handler: further attempts are pointless. The event becomes a dead letter at once."""


class Skipped(Reject):
    """An operator has let a group pass the event without handling it."""


class UnreadableEvent(Reject):
    """An event's payload or metadata is JSON that Python cannot hold, such as a number of 5,000 digits."""


class RetryLater(NotHandled):
    """Raised by a handler: try again after so many seconds, however often this has been raised before.

    >>> RetryLater(60, "the carrier is closed").delay
    60
    """

    def __init__(self, delay: float, reason: str = "") -> None:
        if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < 10**9:
            raise PubSubError(f"RetryLater takes a number of seconds, such as 60, not {delay!r}.")
        super().__init__(reason or f"will be retried in {delay:g} s")
        self.delay = delay


class WorkerDied(PubSubError):
    """Workers died more than once while they handled the event, which may be the cause."""


class HandlerEndedTransaction(PubSubError):
    """A handler ended the transaction it ran in, or its connection: its effects could not be tied to the event."""


class HandlerTimeout(PubSubError):
    """A handler took longer than its timeout, and was interrupted."""


class LeaseLost(PubSubError):
    """A worker was silent for too long, and another one has taken over its lease."""


class MissingExtra(PubSubError, ImportError):
    """A package is missing that an extra of this one installs."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed. Install it with: pip install 'django-outbox-pubsub[{extra}]'", name=package
        )


class CannotResume(PubSubError):
    """The log cannot be read from the position that was asked for: what followed was dropped, or never existed."""


class LettersInUse(PubSubError):
    """A worker is handling the dead letters at this moment."""


class LetterChanged(PubSubError):
    """A dead letter has changed since it was looked at."""
