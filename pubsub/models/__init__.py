"""The tables, in the order a message meets them: published, numbered, read, failed."""

from .analysis import Finding, SinkBatch, StagedEvent
from .cursor import Claim, ConsumerLag, ConsumerOffset
from .dead_letter import Attempt, DeadLetter
from .journal import OperatorEvent, Sample
from .log import LogCounter, LogEntry, LogPartitionCounter, LogView, Segment, Sequencer
from .member import Member
from .message import DedupKey, DelayedMessage, OutboxMessage
from .overview import Overview
from .topic import OnFailure, Resize, Semantics, StartPosition, Status, Subscription, Topic, ZeroSubscribers

__all__ = [
    "Attempt",
    "Claim",
    "ConsumerLag",
    "ConsumerOffset",
    "DeadLetter",
    "DedupKey",
    "DelayedMessage",
    "Finding",
    "LogCounter",
    "LogEntry",
    "LogPartitionCounter",
    "LogView",
    "Member",
    "OnFailure",
    "OperatorEvent",
    "OutboxMessage",
    "Overview",
    "Resize",
    "Sample",
    "Segment",
    "Semantics",
    "Sequencer",
    "SinkBatch",
    "StagedEvent",
    "StartPosition",
    "Status",
    "Subscription",
    "Topic",
    "ZeroSubscribers",
]
