"""What operators see in Django's admin."""

from .dead_letters import DeadLetterAdmin
from .findings import FindingAdmin
from .journal import OperatorEventAdmin
from .messages import MessageAdmin
from .overview import OverviewAdmin
from .subscriptions import SubscriptionAdmin
from .topics import TopicAdmin

__all__ = [
    "DeadLetterAdmin",
    "FindingAdmin",
    "MessageAdmin",
    "OperatorEventAdmin",
    "OverviewAdmin",
    "SubscriptionAdmin",
    "TopicAdmin",
]
