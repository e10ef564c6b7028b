"""The tables, in the order in which an event meets them: published, numbered, read, failed."""

from .analysis import Finding, SinkBatch, StagedEvent
from .audit import OperatorEvent, Sample
from .cursor import ConsumerLag, ConsumerOffset, Lease
from .dead_letter import Attempt, DeadLetter
from .log import LogCounter, LogEntry, LogPartitionCounter, LogView, SegmentContents, Sequencer
from .member import Member, WorkerProcess
from .message import DedupKey, DelayedMessage, OutboxMessage
from .overview import Overview
from .topic import Resize, Semantics, StartPosition, Status, Subscription, Topic, ZeroSubscribers

__all__ = [
    "Attempt",
    "ConsumerLag",
    "ConsumerOffset",
    "DeadLetter",
    "DedupKey",
    "DelayedMessage",
    "Finding",
    "Lease",
    "LogCounter",
    "LogEntry",
    "LogPartitionCounter",
    "LogView",
    "Member",
    "OperatorEvent",
    "OutboxMessage",
    "Overview",
    "Resize",
    "Sample",
    "SegmentContents",
    "Semantics",
    "Sequencer",
    "SinkBatch",
    "StagedEvent",
    "StartPosition",
    "Status",
    "Subscription",
    "Topic",
    "WorkerProcess",
    "ZeroSubscribers",
]
