"""The tables, in the order a message meets them: published, numbered, read, failed."""

from .cursor import Claim, ConsumerLag, ConsumerOffset
from .dead_letter import DeadLetter
from .log import LogCounter, LogEntry, LogPartitionCounter, LogView, Sequencer
from .message import DedupKey, DelayedMessage, OutboxMessage
from .topic import OnFailure, Semantics, StartPosition, Status, Subscription, Topic

__all__ = [
    "Claim",
    "ConsumerLag",
    "ConsumerOffset",
    "DeadLetter",
    "DedupKey",
    "DelayedMessage",
    "LogCounter",
    "LogEntry",
    "LogPartitionCounter",
    "LogView",
    "OnFailure",
    "OutboxMessage",
    "Semantics",
    "Sequencer",
    "StartPosition",
    "Status",
    "Subscription",
    "Topic",
]
