"""A transactional outbox, event log and pub/sub for Django, on PostgreSQL alone."""

from .errors import PubSubError
from .events import Event
from .model_events import publish_changes
from .publishing import apublish, publish, publish_many, publish_on_commit
from .subscribing import subscribe

__version__ = "0.1.0"

__all__ = [
    "Event",
    "PubSubError",
    "apublish",
    "publish",
    "publish_changes",
    "publish_many",
    "publish_on_commit",
    "subscribe",
]
