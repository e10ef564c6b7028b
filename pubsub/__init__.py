"""A transactional outbox, event log and pub/sub for Django, on PostgreSQL alone."""

from .consuming.retrying import Backoff
from .delivery import Delivery
from .errors import NoSubscribers, PubSubError, Reject, RetryLater
from .events import Event
from .publishing.model_events import publish_changes
from .publishing.publish import apublish, publish, publish_many, publish_on_commit
from .reach.listening import listen
from .subscriptions.declaring import subscribe

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Delivery",
    "Event",
    "NoSubscribers",
    "PubSubError",
    "Reject",
    "RetryLater",
    "apublish",
    "listen",
    "publish",
    "publish_changes",
    "publish_many",
    "publish_on_commit",
    "subscribe",
]
