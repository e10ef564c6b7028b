"""A transactional outbox, event log and pub/sub for Django, on PostgreSQL alone."""

from pubsub.publishing.model_changes import publish_changes
from pubsub.publishing.publish import apublish, apublish_on_commit, publish, publish_many, publish_on_commit
from pubsub.streams.listen import listen
from pubsub.subscriptions.declare import subscribe

from .delivery import Delivery, OnFailure, Start
from .errors import NoSubscribers, PubSubError, Reject, RetryLater
from .events import Event
from .retry import Backoff, RetryPolicy

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Delivery",
    "Event",
    "NoSubscribers",
    "OnFailure",
    "PubSubError",
    "Reject",
    "RetryLater",
    "RetryPolicy",
    "Start",
    "apublish",
    "apublish_on_commit",
    "listen",
    "publish",
    "publish_changes",
    "publish_many",
    "publish_on_commit",
    "subscribe",
]
