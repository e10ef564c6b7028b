"""What is published to, and which groups read it."""

import datetime as dt

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from pubsub.delivery import Delivery, OnFailure

from .fields import ClockTimestamp


class Semantics(models.TextChoices):
    PUB_SUB = "PUB_SUB", _("every group gets each event")
    QUEUE = "QUEUE", _("one group gets each event")


class Status(models.TextChoices):
    ACTIVE = "ACTIVE", _("active")
    PAUSED = "PAUSED", _("paused: keeps its cursors and what it has not read")
    CANCELLED = "CANCELLED", _("cancelled: for good, holds nothing back")
    DEAD = "DEAD", _("dead: missed its heartbeats, holds nothing back")


class ZeroSubscribers(models.TextChoices):
    KEEP = "keep", _("keep events until retention drops them")
    REFUSE = "refuse", _("refuse to publish")


class StartPosition(models.TextChoices):
    EARLIEST = "earliest", _("the oldest event that is still there")
    LATEST = "latest", _("what is published after the subscription")
    TIMESTAMP = "timestamp", _("the first event at or after a time")
    OFFSET = "offset", _("a given offset")


ON_FAILURE_TEXTS = {
    OnFailure.DEAD_LETTER: _("set the failed transaction aside and go on"),
    OnFailure.PARK_KEY: _("later events of the same key wait behind the failed one"),
    OnFailure.STOP: _("the partition waits for an operator"),
}


class Topic(models.Model):
    """A named log: ordered, gapless from offset 1. Topic 1 is the default one."""

    id = models.AutoField(primary_key=True, db_comment="Never reused; 1 is the default topic")
    name = models.TextField(_("name"), db_comment="What publishers and subscribers call it")
    semantics = models.TextField(
        _("semantics"),
        choices=Semantics,
        default=Semantics.PUB_SUB,
        db_default=Semantics.PUB_SUB,
        db_comment="PUB_SUB: every group gets each event; QUEUE: one group whose members compete",
    )
    total_partitions = models.IntegerField(
        _("partitions"),
        default=8,
        db_default=8,
        db_comment="Order is kept within a partition; at most this many workers are busy for a group at once",
    )
    retention = models.DurationField(
        _("retention"),
        default=dt.timedelta(days=7),
        db_default=dt.timedelta(days=7),
        db_comment="How long an event is kept at least, counted from its publication",
    )
    zero_subscribers = models.TextField(
        _("without subscriptions"),
        choices=ZeroSubscribers,
        default=ZeroSubscribers.KEEP,
        db_default=ZeroSubscribers.KEEP,
        db_comment="What publishing does while no group holds retention back: keep events all the same, or refuse them",
    )
    max_age = models.DurationField(
        _("oldest backlog kept for a group"),
        null=True,
        blank=True,
        db_comment="A group further behind than this is moved on, and what it missed is recorded; null: never",
    )
    max_bytes = models.BigIntegerField(
        _("largest backlog kept for a group, in bytes"),
        null=True,
        blank=True,
        db_comment="A group that holds back more than this is moved on, and what it missed is recorded; null: never",
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
            models.CheckConstraint(
                condition=Q(zero_subscribers__in=ZeroSubscribers.values), name="outbox_topics_zero_subscribers_known"
            ),
            models.CheckConstraint(
                condition=Q(max_age__isnull=True) | Q(max_age__gt=dt.timedelta(0)),
                name="outbox_topics_max_age_positive",
            ),
            models.CheckConstraint(
                condition=Q(max_bytes__isnull=True) | Q(max_bytes__gt=0), name="outbox_topics_max_bytes_positive"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Resize(models.Model):
    """A change of a topic's number of partitions. A group finishes everything before it, then goes on."""

    pk = models.CompositePrimaryKey("topic_id", "position")
    topic = models.ForeignKey(Topic, models.CASCADE, related_name="resizes", db_index=False)
    position = models.BigIntegerField(db_comment="The first position that is partitioned by the new number")
    c_offset = models.BigIntegerField(db_comment="The topic's offset there")
    partitions_before = models.IntegerField()
    partitions_after = models.IntegerField()
    resized_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)

    class Meta:
        db_table = "outbox_topic_resizes"
        default_permissions = ()
        db_table_comment = (
            "From which position on a topic has how many partitions; keeps the order of keys over a resize"
        )

    def __str__(self) -> str:
        return f"{self.topic_id}: {self.partitions_before} → {self.partitions_after} at {self.c_offset}"


class Subscription(models.Model):
    """That a group reads a topic: from where, what of it, and how."""

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
        db_comment="Where the group began; its cursors are in consumer_offsets",
    )
    start_value = models.TextField(
        _("start at"), null=True, blank=True, db_comment="The time or offset, for those two start positions"
    )
    where = models.JSONField(
        _("filter"),
        default=dict,
        db_default=models.Value({}, models.JSONField()),
        blank=True,
        db_comment="Lookups that an event must match; empty: every event",
    )
    delivery = models.TextField(
        _("delivery"),
        choices=[(mode.value, mode.value.replace("_", " ")) for mode in Delivery],
        default=Delivery.TRANSACTIONAL.value,
        db_default=Delivery.TRANSACTIONAL.value,
        db_comment="transactional: effects in this database happen exactly once; at_least_once; at_most_once",
    )
    on_failure = models.TextField(
        _("on failure"),
        choices=[(each.value, text) for each, text in ON_FAILURE_TEXTS.items()],
        default=OnFailure.DEAD_LETTER.value,
        db_default=OnFailure.DEAD_LETTER.value,
        db_comment="What a failing transaction does to those behind it",
    )
    retry_delays = models.JSONField(
        _("retry delays"),
        default=list,
        db_default=models.Value([], models.JSONField()),
        blank=True,
        db_comment="Seconds before each further attempt, or how they grow; empty: none",
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
    misses = models.IntegerField(
        _("missed heartbeats"), default=0, db_default=0, editable=False, db_comment="In a row, by all members"
    )
    last_miss_at = models.DateTimeField(
        null=True, editable=False, db_comment="When the last of them was counted; the next one counts a timeout later"
    )
    resizes_passed = models.BigIntegerField(
        default=0, db_default=0, editable=False, db_comment="Resizes up to this position are behind the group"
    )
    expires_after = models.DurationField(
        _("expires after"),
        null=True,
        blank=True,
        db_comment="A temporary subscription is removed when it was not used for so long; null: it stays",
    )
    timeout = models.DurationField(
        _("timeout"), null=True, blank=True, db_comment="How long one call of its handler may take; null: no limit"
    )
    missed = models.JSONField(
        _("missed offsets"),
        null=True,
        blank=True,
        editable=False,
        db_comment="What was dropped unread, by partition: [first, last] offset; null: nothing",
    )
    status_reason = models.TextField(
        _("reason"), default="", db_default="", blank=True, db_comment="Why it has this status"
    )
    status_changed_at = models.DateTimeField(_("since"), db_default=Now(), editable=False)
    created_at = models.DateTimeField(_("created"), db_default=Now(), editable=False)

    class Meta:
        db_table = "outbox_topic_subscriptions"
        default_permissions = ("view", "delete")
        db_table_comment = "Which consumer group reads which topic, and how"
        verbose_name = _("subscription")
        verbose_name_plural = _("subscriptions")
        ordering = ["topic", "group_id"]
        permissions = [
            ("pause_subscription", _("Can pause and resume subscriptions")),
            ("seek_subscription", _("Can move the cursors of subscriptions")),
            ("stop_worker_subscription", _("Can stop the workers of subscriptions")),
        ]
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
                condition=Q(delivery__in=[mode.value for mode in Delivery]),
                name="outbox_topic_subscriptions_delivery_known",
            ),
            models.CheckConstraint(
                condition=Q(on_failure__in=[each.value for each in OnFailure]),
                name="outbox_topic_subscriptions_on_failure_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group_id} ← {self.topic}"
