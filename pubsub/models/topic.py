"""What is published to, and who reads it."""

import datetime as dt

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Semantics(models.TextChoices):
    PUB_SUB = "PUB_SUB", _("every group gets each message")
    QUEUE = "QUEUE", _("one group gets each message")


class Status(models.TextChoices):
    ACTIVE = "ACTIVE", _("active")
    PAUSED = "PAUSED", _("paused: keeps its position and what it has not read")
    CANCELLED = "CANCELLED", _("cancelled: for good, holds nothing back")
    DEAD = "DEAD", _("dead: missed its heartbeats, holds nothing back")


class StartPosition(models.TextChoices):
    EARLIEST = "earliest", _("the oldest message that is still there")
    LATEST = "latest", _("what is published after the subscription")
    TIMESTAMP = "timestamp", _("the first message at or after a time")
    OFFSET = "offset", _("a given offset")


class OnFailure(models.TextChoices):
    DEAD_LETTER = "dead_letter", _("set the failed transaction aside and go on")
    PARK_KEY = "park_key", _("later events of the same key wait behind the failed one")
    STOP = "stop", _("the partition waits until somebody acts")


class Topic(models.Model):
    """A named log: ordered, gapless from offset 1. Topic 1 is the default one."""

    id = models.AutoField(primary_key=True, db_comment="Never reused; 1 is the default topic")
    name = models.TextField(_("name"), db_comment="What publishers and subscribers say")
    semantics = models.TextField(
        _("semantics"),
        choices=Semantics,
        default=Semantics.PUB_SUB,
        db_default=Semantics.PUB_SUB,
        db_comment="PUB_SUB: every group gets each message; QUEUE: one group whose members compete",
    )
    total_partitions = models.IntegerField(
        _("partitions"),
        default=8,
        db_default=8,
        db_comment="Order is kept within a partition; as many consumers can work on a group as there are partitions",
    )
    retention = models.DurationField(
        _("retention"),
        default=dt.timedelta(days=7),
        db_default=dt.timedelta(days=7),
        db_comment="How long a message stays at least, counted from its publication",
    )
    created_at = models.DateTimeField(_("created"), db_default=Now(), editable=False)

    class Meta:
        db_table = "outbox_topics"
        db_table_comment = "Topics: one gapless, ordered log each"
        verbose_name = _("topic")
        verbose_name_plural = _("topics")
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["name"], name="outbox_topics_name"),
            models.CheckConstraint(condition=~Q(name=""), name="outbox_topics_name_given"),
            models.CheckConstraint(condition=Q(semantics__in=Semantics.values), name="outbox_topics_semantics_known"),
            models.CheckConstraint(condition=Q(total_partitions__gte=1), name="outbox_topics_has_partitions"),
            models.CheckConstraint(
                condition=Q(retention__gte=dt.timedelta(0)), name="outbox_topics_retention_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Subscription(models.Model):
    """A group's wish to read a topic: from where, what of it, and how."""

    # Found by the constraint on topic and group; an index of its own would be one more to keep.
    topic = models.ForeignKey(
        Topic, models.PROTECT, related_name="subscriptions", db_index=False, verbose_name=_("topic")
    )
    group_id = models.TextField(_("group"), db_comment="The consumer group; groups read independently of one another")
    status = models.TextField(
        _("status"),
        choices=Status,
        default=Status.ACTIVE,
        db_default=Status.ACTIVE,
        db_comment="ACTIVE and PAUSED hold retention back, CANCELLED and DEAD do not",
    )
    start_position = models.TextField(
        _("start"),
        choices=StartPosition,
        default=StartPosition.LATEST,
        db_default=StartPosition.LATEST,
        db_comment="Where the group began; where it stands now is in consumer_offsets",
    )
    start_value = models.TextField(
        _("start at"), null=True, blank=True, db_comment="The time or offset, for those two start positions"
    )
    where = models.JSONField(
        _("filter"),
        default=dict,
        db_default=models.Value({}, models.JSONField()),
        blank=True,
        db_comment="Lookups that a message must match; empty: everything",
    )
    delivery = models.TextField(
        _("delivery"),
        default="transactional",
        db_default="transactional",
        db_comment="transactional: effects in this database happen exactly once; at_least_once; at_most_once",
    )
    on_failure = models.TextField(
        _("on failure"),
        choices=OnFailure,
        default=OnFailure.DEAD_LETTER,
        db_default=OnFailure.DEAD_LETTER,
        db_comment="What a failing transaction does to those behind it",
    )
    retry_delays = models.JSONField(
        _("retry delays"),
        default=list,
        db_default=models.Value([], models.JSONField()),
        blank=True,
        db_comment="Seconds before each further attempt; empty: none",
    )
    heartbeat_interval = models.DurationField(
        _("heartbeat interval"), default=dt.timedelta(seconds=60), db_default=dt.timedelta(seconds=60)
    )
    heartbeat_timeout = models.DurationField(
        _("heartbeat timeout"),
        default=dt.timedelta(seconds=300),
        db_default=dt.timedelta(seconds=300),
        db_comment="A group silent for longer has missed a heartbeat",
    )
    last_heartbeat_at = models.DateTimeField(_("last heartbeat"), null=True, editable=False)
    created_at = models.DateTimeField(_("created"), db_default=Now(), editable=False)

    class Meta:
        db_table = "outbox_topic_subscriptions"
        db_table_comment = "Which consumer group reads which topic, and how"
        verbose_name = _("subscription")
        verbose_name_plural = _("subscriptions")
        ordering = ["topic", "group_id"]
        constraints = [
            models.UniqueConstraint(fields=["topic", "group_id"], name="outbox_topic_subscriptions_topic_group"),
            models.CheckConstraint(condition=~Q(group_id=""), name="outbox_topic_subscriptions_group_given"),
            models.CheckConstraint(
                condition=Q(status__in=Status.values), name="outbox_topic_subscriptions_status_known"
            ),
            models.CheckConstraint(
                condition=Q(start_position__in=StartPosition.values), name="outbox_topic_subscriptions_start_known"
            ),
            models.CheckConstraint(
                condition=Q(delivery__in=["transactional", "at_least_once", "at_most_once"]),
                name="outbox_topic_subscriptions_delivery_known",
            ),
            models.CheckConstraint(
                condition=Q(on_failure__in=OnFailure.values), name="outbox_topic_subscriptions_on_failure_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group_id} ← {self.topic}"
