"""The format `pubsub`: the log as a source of Spark's streams and batch reads, and a sink for both.

The classes are sent to Spark's workers by value, so this package need not be installed there: psycopg and pyarrow are
enough.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from .columns import SCHEMA
from .copy_log import read_range
from .errors import InvalidRead
from .sink import BatchWriter, StreamWriter
from .stream_log import StreamLog, TopicState, check_offset
from .stream_options import NamedOffset, ReadOptions, read_options

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

Offsets = dict[str, dict[str, Any]]
"""A stream's progress, by topic: the next offset, and the event before it, which identifies the log."""


class PubSubSource(DataSource):
    """What ``format("pubsub")`` means. :func:`.register_format` gives it the database's address."""

    reading: ClassVar[dict[str, Any]]
    writing: ClassVar[dict[str, Any]]
    max_payload_bytes: ClassVar[int]

    @classmethod
    def name(cls) -> str:
        return "pubsub"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: "StructType") -> "LogReader":
        return LogReader(self.reading, read_options(self.options, streaming=False))

    def streamReader(self, schema: "StructType") -> "LogStreamReader":
        return LogStreamReader(self.reading, self.writing, read_options(self.options, streaming=True))

    def writer(self, schema: "StructType", overwrite: bool) -> "BatchWriter":
        return BatchWriter(self.writing, schema, self.options, self.max_payload_bytes, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "StreamWriter":
        return StreamWriter(self.writing, schema, self.options, self.max_payload_bytes)


class LogReader(DataSourceReader):
    """A batch read: the same ranges as a stream's, read once."""

    def __init__(self, address: dict[str, Any], options: ReadOptions) -> None:
        self.address = address
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        log = StreamLog(self.address)
        try:
            states = log.states(dict.fromkeys(self.options.topics, 1))
        finally:
            log.close()
        pieces = []
        for topic, state in states.items():
            first = _at(self.options.starting.get(topic, self.options.default_start), state)
            check_offset(topic, first, None, state, may_skip=False)
            # An offset says which event comes last; "latest" means all that are there.
            ending = self.options.ending.get(topic, "latest")
            end = ending + 1 if isinstance(ending, int) else _at(ending, state)
            pieces += _pieces(topic, state.topic_id, first, min(end, state.next_offset), self.options.range_size)
        return pieces

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        return _read(self.address, partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of the log, by offsets: exactly the events between two checkpoints, however often they are requested."""

    def __init__(self, reading: dict[str, Any], writing: dict[str, Any], options: ReadOptions) -> None:
        self.address = reading
        self.options = options
        # A group's cursors are written, so with a group the same connection does both.
        self.log = StreamLog(writing if options.group else reading)
        self.target: dict[str, int] | None = None
        self.idle_since: float | None = None
        self.moved_to: dict[str, int] | None = None

    def initialOffset(self) -> Offsets:
        states = self.log.states(dict.fromkeys(self.options.topics, 1))
        return {
            topic: self._mark(topic, check_offset(topic, self._start(topic, state), None, state, may_skip=False))
            for topic, state in states.items()
        }

    def _start(self, topic: str, state: TopicState) -> int:
        if topic not in self.options.starting and self.options.group:
            group = self.log.group_state(self.options.group, state.topic_id)
            if group and group[1] is not None:
                return max(group[1], state.oldest)
        return _at(self.options.starting.get(topic, self.options.default_start), state)

    def _mark(self, topic: str, offset: int) -> dict[str, Any]:
        return {"offset": offset, "event": self.log.states({topic: offset})[topic].event_before or ""}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_offsets is None:
            return ReadAllAvailable()
        return ReadMaxRows(self.options.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        states = self.log.states(dict.fromkeys(self.options.topics, 1))
        self.target = {topic: state.next_offset for topic, state in states.items()}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        # Spark asks a hundred times a second while there is nothing.
        if self.idle_since is not None and time.monotonic() - self.idle_since < self.options.poll_seconds:
            return start
        begin = {topic: mark["offset"] for topic, mark in start.items() if topic in self.options.topics}
        # A topic that was added to the query when it was restarted is read from its beginning.
        begin |= {topic: 0 for topic in self.options.topics if topic not in begin}
        states = self.log.states(begin)
        end: dict[str, int] = {}
        for topic, state in states.items():
            if topic in start:
                begin[topic] = check_offset(
                    topic, begin[topic], start[topic]["event"], state, may_skip=not self.options.fail_on_data_loss
                )
            else:
                begin[topic] = state.oldest
            end[topic] = state.next_offset if self.target is None else min(self.target[topic], state.next_offset)
            end[topic] = max(end[topic], begin[topic])
        if self._is_paused(begin, states):
            end = begin
        elif isinstance(limit, ReadMaxRows):
            end = _share(begin, end, limit.max_rows)
        if all(topic in start and end[topic] == start[topic]["offset"] for topic in end):
            self.idle_since = time.monotonic()
            return start
        self.idle_since = None
        marks = {topic: after.event_before or "" for topic, after in self.log.states(end).items()}
        return start | {topic: {"offset": end[topic], "event": marks[topic]} for topic in end}

    def _is_paused(self, begin: dict[str, int], states: dict[str, TopicState]) -> bool:
        """Moves the group to the stream's progress: everything before has been processed. True while it is paused."""
        if not self.options.group:
            return False
        if self.moved_to is None:
            offsets = {state.topic_id: begin[topic] for topic, state in states.items()}
            self.log.move_group(self.options.group, offsets, subscribe=True)
        elif self.moved_to != begin:
            self.log.move_group(self.options.group, {states[topic].topic_id: begin[topic] for topic in begin})
        self.moved_to = dict(begin)
        for topic, state in states.items():
            group = self.log.group_state(self.options.group, state.topic_id)
            status = group[0] if group else "gone"
            if status == "PAUSED":
                return True
            if status != "ACTIVE":
                raise InvalidRead(
                    f'The subscription of group "{self.options.group}" to topic "{topic}" is {status}: it no longer '
                    f"keeps what this stream has not read. Resume it, or use another group."
                )
        return False

    def reportLatestOffset(self) -> Offsets | None:
        states = self.log.states(dict.fromkeys(self.options.topics, 1))
        return {topic: {"offset": state.next_offset} for topic, state in states.items()}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        begin = {topic: start[topic]["offset"] if topic in start else 0 for topic in end}
        states = self.log.states(begin)
        pieces = []
        for topic, mark in end.items():
            first = begin[topic]
            if topic not in start:
                first = states[topic].oldest
            elif first < mark["offset"]:
                may_skip = not self.options.fail_on_data_loss
                first = check_offset(topic, first, start[topic]["event"], states[topic], may_skip=may_skip)
            pieces += _pieces(topic, states[topic].topic_id, first, mark["offset"], self.options.range_size)
        return pieces

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        return _read(self.address, partition)

    def commit(self, end: Offsets) -> None:
        if not self.options.group:
            return
        offsets = {topic: mark["offset"] for topic, mark in end.items() if topic in self.options.topics}
        states = self.log.states(offsets)
        self.log.move_group(self.options.group, {states[topic].topic_id: offsets[topic] for topic in offsets})
        self.moved_to = offsets

    def stop(self) -> None:
        self.log.close()


def _at(offset: NamedOffset, state: TopicState) -> int:
    if isinstance(offset, int):
        return offset
    return state.oldest if offset == "earliest" else state.next_offset


def _share(begin: dict[str, int], end: dict[str, int], most: int) -> dict[str, int]:
    """At most `most` events, shared in proportion to what each topic has: at least one each, so that none starves."""
    waiting = {topic: end[topic] - begin[topic] for topic in end}
    total = sum(waiting.values())
    if total <= most:
        return end
    return {topic: begin[topic] + min(n, max(1, most * n // total)) for topic, n in waiting.items()}


def _pieces(topic: str, topic_id: int, first: int, end: int, size: int) -> list[InputPartition]:
    return [InputPartition((topic, topic_id, begin, min(begin + size, end) - 1)) for begin in range(first, end, size)]


def _read(address: dict[str, Any], partition: InputPartition) -> "Iterator[RecordBatch]":
    if partition.value is None:  # Spark's own partition, if there is nothing to read
        return iter(())
    return read_range(address, *partition.value)
