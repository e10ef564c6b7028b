"""The unit of a consumer's work: one partition of a topic, for one group."""

from typing import Any

from .declare import Declaration

PartitionKey = tuple[str, int, int]
"""Group, topic and partition: the key of a cursor."""


class PartitionTask:
    """A partition of a topic that a group reads, and how the group handles it. Nothing in it changes."""

    def __init__(
        self,
        *,
        declared: Declaration,
        topic_id: int,
        partition_id: int,
        using: str,
        below_position: int | None = None,
    ) -> None:
        self.declared = declared
        self.topic_id = topic_id
        self.partition_id = partition_id
        self.using = using
        self.below_position = below_position
        """Where the topic was resized; what is behind waits until the group has passed all that is before."""
        self.key: PartitionKey = declared.group, topic_id, partition_id
        self.parameters: dict[str, Any] = {
            "group_id": declared.group,
            "topic_id": topic_id,
            "partition_id": partition_id,
            "partitions": f"{{{partition_id}}}",
        }
        """Which cursor it is, for statements: those that take one, and those that take several."""
        self.wants_all = declared.filter.is_trivial
        """Whether the group wants every event of the topic."""
        self.parks_keys = declared.on_failure == "park_key"
        self.stops = declared.on_failure == "stop"
        """Whether the partition waits behind an event that failed."""
        self.facts: dict[str, Any] = {"group": declared.group, "topic": declared.topic, "partition": partition_id}
        """For the log's `extra`."""

    def __str__(self) -> str:
        return f"{self.declared.group} on {self.declared.topic}/{self.partition_id}"
