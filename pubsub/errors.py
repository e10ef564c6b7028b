"""Everything this package raises on purpose. Each message says what was expected, what came, and what to do."""


class PubSubError(Exception):
    """The base of all errors of this package."""


class NotInTransaction(PubSubError):
    """An event was published outside a transaction, where it could not be tied to the change it reports."""


class WrongDatabase(PubSubError):
    """An event was published on one database while the open transaction is on another."""


class UnknownTopic(PubSubError):
    """The topic does not exist."""


class InvalidTopic(PubSubError):
    """A topic was given an option that it does not have, or a value that cannot work."""


class NoSubscribers(PubSubError):
    """An event was published to a topic that refuses events while no group would get them."""


class UnknownGroup(PubSubError):
    """The group is not subscribed to the topic."""


class Refused(PubSubError):
    """What an operator asked for contradicts the state of things, or would lose something."""


class PartitionInUse(Refused):
    """A worker has the partition in hand at this moment."""


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


class NotHandled(PubSubError):
    """A handler's way to say what shall become of an event that it has not handled."""


class Reject(NotHandled):
    """Raised by a handler: no further attempt is of any use. The event goes straight to the dead letters."""


class RetryLater(NotHandled):
    """Raised by a handler: not now, but after so many seconds, however often that has been said before.

    >>> RetryLater(60, "the carrier is closed").delay
    60
    """

    def __init__(self, delay: float, reason: str = "") -> None:
        if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < 10**9:
            raise PubSubError(f"RetryLater wants a number of seconds, such as 60, not {delay!r}.")
        super().__init__(reason or f"to be tried again in {delay:g} s")
        self.delay = delay


class WorkerDied(PubSubError):
    """A worker died while it handled the event, more than once. It may be the event that kills."""


class HandlerEndedTransaction(PubSubError):
    """A handler committed, rolled back or closed what it ran in. Its effects could not be tied to the event."""


class LeaseLost(PubSubError):
    """A worker was silent for too long: another one has taken over what it had in hand."""


class MissingExtra(PubSubError, ImportError):
    """A package is needed that only an extra of this one brings."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed. Install it with: pip install 'django-outbox-pubsub[{extra}]'", name=package
        )


class CannotResume(PubSubError):
    """The log cannot be read from the place that was asked for: what followed has been dropped, or never was."""


class LettersInUse(PubSubError):
    """A worker is trying the dead letters at this moment."""


class LetterChanged(PubSubError):
    """A dead letter is not any more what somebody looked at."""
