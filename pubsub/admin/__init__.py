"""What operators see in Django's admin."""

from .dead_letters import DeadLetterAdmin
from .subscriptions import SubscriptionAdmin
from .topics import TopicAdmin

__all__ = ["DeadLetterAdmin", "SubscriptionAdmin", "TopicAdmin"]
