"""What changes while the log does not: each group's cursors, and its workers' leases."""

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from .fields import ClockTimestamp
from .managers import NothingToDump
from .topic import Topic


class ConsumerOffset(models.Model):
    """A group's cursor in one partition of a topic. The worker that holds its row lock works on the partition."""

    pk = models.CompositePrimaryKey("group_id", "topic_id", "partition_id")
    group_id = models.TextField(_("group"))
    topic = models.ForeignKey(Topic, models.PROTECT, related_name="+", db_index=False, verbose_name=_("topic"))
    partition_id = models.IntegerField(_("partition"))
    next_offset = models.BigIntegerField(
        _("next offset"), default=1, db_default=1, db_comment="The first offset this group has not passed here"
    )
    next_position = models.BigIntegerField(
        default=1, db_default=1, db_comment="The same in the order of storage: where the next read begins"
    )
    passed = models.BigIntegerField(
        default=0, db_default=0, db_comment="Entries of this partition before the cursor; lag = entries - passed"
    )
    epoch = models.BigIntegerField(
        default=0, db_default=0, db_comment="Grows with each lease; an acknowledgement under an older one is rejected"
    )
    failing_offset = models.BigIntegerField(
        null=True, db_comment="Where the publisher's transaction begins at which the database has failed last"
    )
    failures = models.IntegerField(default=0, db_default=0, db_comment="How often in a row it has failed there")
    failing_s = models.FloatField(default=0, db_default=0, db_comment="How many seconds those attempts have taken")
    rests_until = models.DateTimeField(null=True, db_comment="Until when workers leave the partition alone after that")
    alone_to = models.BigIntegerField(
        null=True,
        db_comment="Failed events up to this offset are tried one transaction at a time: a worker has died "
        "that had them in hand",
    )
    updated_at = models.DateTimeField(_("updated"), db_default=ClockTimestamp())

    class Meta:
        db_table = "consumer_offsets"
        default_permissions = ()
        db_table_comment = "Cursors: how far each group has come in each partition"
        verbose_name = _("cursor")
        verbose_name_plural = _("cursors")
        constraints = [
            models.CheckConstraint(
                condition=Q(next_offset__gte=1, next_position__gte=1, passed__gte=0, partition_id__gte=0),
                name="consumer_offsets_in_range",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group_id} {self.topic_id}/{self.partition_id}: {self.next_offset}"


class Lease(models.Model):
    """A range of a partition that a worker has for a limited time, because it holds no transaction open.

    A cursor has one at most. In transactional mode there is one only where a worker has died: it holds the crash count.
    """

    pk = models.CompositePrimaryKey("group_id", "topic_id", "partition_id")
    group_id = models.TextField(_("group"))
    topic = models.ForeignKey(Topic, models.PROTECT, related_name="+", db_index=False, verbose_name=_("topic"))
    partition_id = models.IntegerField(_("partition"))
    first_offset = models.BigIntegerField(_("first offset"))
    last_offset = models.BigIntegerField(
        _("last offset"), db_comment="As far as was read when it was taken; a long transaction may go on behind it"
    )
    worker_id = models.TextField(_("worker"), db_comment="The process that holds the lease")
    epoch = models.BigIntegerField(
        db_comment="The cursor's epoch when it was taken; an acknowledgement under an older one is rejected"
    )
    attempts = models.IntegerField(_("attempts"), default=1, db_default=1, db_comment="A crash counts as one")
    lock_key = models.IntegerField(
        null=True, db_comment="The advisory lock that the worker holds for as long as it is connected; null: none"
    )
    taken_at = models.DateTimeField(_("taken"), db_default=ClockTimestamp())
    expires_at = models.DateTimeField(_("lease ends"), db_comment="When another worker may take the range over")

    class Meta:
        db_table = "consumer_claims"
        default_permissions = ()
        db_table_comment = "Leases: ranges in flight, for delivery modes that hold no transaction open"
        verbose_name = _("lease")
        verbose_name_plural = _("leases")
        constraints = [
            models.CheckConstraint(condition=Q(last_offset__gte=F("first_offset")), name="consumer_claims_not_empty"),
        ]

    def __str__(self) -> str:
        return f"{self.group_id} {self.topic_id}/{self.partition_id}: {self.first_offset}–{self.last_offset}"


class ConsumerLag(models.Model):
    """How far each group is behind, worked out in one place (``consumer_lag_v``)."""

    pk = models.CompositePrimaryKey("group_id", "topic_id", "partition_id")
    group_id = models.TextField(_("group"))
    topic_id = models.IntegerField()
    topic = models.TextField(_("topic"))
    partition_id = models.IntegerField(_("partition"))
    status = models.TextField(_("status"), null=True)
    next_offset = models.BigIntegerField(_("next offset"))
    tip = models.BigIntegerField(_("tip"))
    lag = models.BigIntegerField(_("events behind"))
    waiting_since = models.DateTimeField(_("waiting since"), null=True)
    updated_at = models.DateTimeField(_("moved"))

    dumped = NothingToDump()
    objects = models.Manager()

    class Meta:
        db_table = "consumer_lag_v"
        default_permissions = ()
        managed = False

    def __str__(self) -> str:
        return f"{self.group_id} {self.topic}/{self.partition_id}: {self.lag} behind"
