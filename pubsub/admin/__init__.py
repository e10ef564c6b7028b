"""What operators see in Django's admin."""

from .audit_log import OperatorEventAdmin
from .dead_letters import DeadLetterAdmin
from .events import EventAdmin
from .findings import FindingAdmin
from .overview import OverviewAdmin
from .subscriptions import SubscriptionAdmin
from .topics import TopicAdmin

__all__ = [
    "DeadLetterAdmin",
    "EventAdmin",
    "FindingAdmin",
    "OperatorEventAdmin",
    "OverviewAdmin",
    "SubscriptionAdmin",
    "TopicAdmin",
]
