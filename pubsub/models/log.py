"""What the sequencer writes: the order of the events."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from .fields import SnapshotField
from .topic import Topic


class LogEntry(models.Model):
    """Which event stands at which offset of its topic.

    Entries of all topics share one numbering, ``position``: it is the order of storage, by which segments are cut and
    readers walk. ``c_offset`` counts per topic and is what people and programs outside know.
    """

    pk = models.CompositePrimaryKey("topic_id", "c_offset")
    position = models.BigIntegerField(_("position"), db_comment="Gapless over all topics; the order of storage")
    c_offset = models.BigIntegerField(_("offset"), db_comment="Gapless from 1 within the topic")
    message_id = models.BigIntegerField(_("message"), db_comment="outbox_message_t.id")
    topic = models.ForeignKey(
        Topic, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False, verbose_name=_("topic")
    )
    partition_id = models.IntegerField(
        _("partition"), db_comment="Decided when numbered, so that a later resize moves nothing"
    )

    class Meta:
        db_table = "log_entry"
        db_table_comment = "The log: which event stands at which offset; insert-only, partitioned by position"
        verbose_name = _("log entry")
        verbose_name_plural = _("log entries")
        indexes = [models.Index(fields=["topic", "partition_id", "position"], name="log_entry_walk")]

    def __str__(self) -> str:
        return f"{self.topic_id}:{self.c_offset}"


class LogCounter(models.Model):
    """The next free offset of a topic. Only the sequencer moves it."""

    topic = models.OneToOneField(
        Topic, models.DO_NOTHING, primary_key=True, related_name="counter", db_constraint=False
    )
    next_offset = models.BigIntegerField(default=1, db_default=1, db_comment="The tip of the log is one less")

    class Meta:
        db_table = "log_counter"
        db_table_comment = "The next free offset of each topic"
        constraints = [models.CheckConstraint(condition=Q(next_offset__gte=1), name="log_counter_from_one")]

    def __str__(self) -> str:
        return f"{self.topic_id}: {self.next_offset}"


class LogPartitionCounter(models.Model):
    """How many entries a partition of a topic has had, so that they are never counted."""

    pk = models.CompositePrimaryKey("topic_id", "partition_id")
    topic = models.ForeignKey(Topic, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)
    partition_id = models.IntegerField()
    entries = models.BigIntegerField(default=0, db_default=0, db_comment="Entries ever numbered into this partition")
    retired = models.BigIntegerField(default=0, db_default=0, db_comment="Those of them that retention has dropped")

    class Meta:
        db_table = "log_partition_counter"
        db_table_comment = "Entries ever numbered, by topic and partition: what lag is worked out from"

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.partition_id}: {self.entries}"


class SegmentContents(models.Model):
    """What a segment of the log holds of one partition of a topic. Written once, when the segment is full."""

    pk = models.CompositePrimaryKey("lower", "topic_id", "partition_id")
    lower = models.BigIntegerField(db_comment="The first position of the segment log_entry_<lower>")
    upper = models.BigIntegerField(db_comment="The first position behind it")
    topic = models.ForeignKey(Topic, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)
    partition_id = models.IntegerField()
    entries = models.BigIntegerField()
    first_offset = models.BigIntegerField()
    last_offset = models.BigIntegerField()
    first_message_id = models.BigIntegerField(db_comment="The smallest id of an event; ids are not in the log's order")
    last_message_id = models.BigIntegerField(db_comment="The greatest id of an event")
    filled_at = models.DateTimeField(db_comment="When it was found to be full: nothing in it was numbered later")

    class Meta:
        db_table = "log_segments"
        db_table_comment = "What full segments of the log hold, so that retention need not read them to decide"

    def __str__(self) -> str:
        return f"{self.lower}: {self.entries} of {self.topic_id}/{self.partition_id}"


class Sequencer(models.Model):
    """The sequencer's memory: one row, locked by the session that is numbering."""

    id = models.SmallIntegerField(primary_key=True, default=1, db_default=1)
    seen = SnapshotField(
        db_default=models.Value("1:1:", SnapshotField()),
        db_comment="Events of transactions that were over at this moment have been numbered",
    )
    backlog = SnapshotField(
        null=True,
        db_comment="While a backlog is numbered in pieces: the moment by which its transactions were over",
    )
    reached_id = models.BigIntegerField(
        default=0,
        db_default=0,
        db_comment="The last id given out before the last pass; in a backlog, how far its pieces have come",
    )
    next_position = models.BigIntegerField(default=1, db_default=1, db_comment="The next free position in log_entry")
    settled_id = models.BigIntegerField(
        default=1,
        db_default=1,
        db_comment="All events with a smaller id have been numbered, also those whose entries are gone",
    )
    system_identifier = models.BigIntegerField(
        null=True, db_comment="The cluster that the snapshot belongs to; transaction ids mean nothing in another one"
    )

    class Meta:
        db_table = "log_sequencer"
        db_table_comment = "Up to where the outbox has been numbered (one row)"
        constraints = [models.CheckConstraint(condition=Q(id=1), name="log_sequencer_one_row")]

    def __str__(self) -> str:
        return f"position {self.next_position}"


class LogView(models.Model):
    """Events as readers see them: topic, offset, partition and content in one row (``outbox_log_v``)."""

    pk = models.CompositePrimaryKey("topic_id", "c_offset")
    topic_id = models.IntegerField()
    topic = models.TextField(_("topic"))
    c_offset = models.BigIntegerField(_("offset"))
    partition_id = models.IntegerField(_("partition"))
    position = models.BigIntegerField(_("position"))
    message_id = models.BigIntegerField(_("message"))
    event_id = models.UUIDField(_("event id"))
    type = models.TextField(_("type"))
    key = models.TextField(_("key"), null=True)
    host_id = models.TextField(_("host"), null=True)
    user_id = models.TextField(_("user"), null=True)
    to_group = models.TextField(_("for group"), null=True)
    transaction_id = models.UUIDField(_("transaction"))
    payload = models.JSONField(_("payload"))
    metadata = models.JSONField(_("metadata"))
    created_at = models.DateTimeField(_("published"))

    class Meta:
        db_table = "outbox_log_v"
        managed = False

    def __str__(self) -> str:
        return f"{self.topic}:{self.c_offset}"
