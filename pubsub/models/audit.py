"""The audit log: what was done to topics, groups and dead letters, by whom and why. And how far they had come when."""

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils.translation import gettext_lazy as _

from .fields import ClockTimestamp
from .topic import Topic


class OperatorEvent(models.Model):
    """A row of the audit log: what an operator did or what was decided automatically. Written in its transaction."""

    id = models.BigAutoField(primary_key=True)
    happened_at = models.DateTimeField(_("when"), db_default=ClockTimestamp(), editable=False)
    actor = models.TextField(_("who"), db_comment="A user's name, or the part of the system that decided")
    action = models.TextField(_("what"), db_comment="Such as pause, seek, resize, dead, partition-dropped")
    # Names and not keys: the row stays when the topic is gone.
    topic = models.TextField(_("topic"), default="", db_default="")
    group_id = models.TextField(_("group"), default="", db_default="")
    reason = models.TextField(_("why"), default="", db_default="")
    before = models.JSONField(_("before"), encoder=DjangoJSONEncoder, null=True)
    after = models.JSONField(_("after"), encoder=DjangoJSONEncoder, null=True)

    class Meta:
        db_table = "operator_events"
        default_permissions = ("view",)
        db_table_comment = "The audit log: what operators did and what was decided automatically"
        verbose_name = _("audit log row")
        verbose_name_plural = _("audit log rows")
        ordering = ["-id"]
        indexes = [models.Index(fields=["topic", "group_id", "-id"], name="operator_events_of_group")]

    def __str__(self) -> str:
        return f"{self.action} by {self.actor}"


class Sample(models.Model):
    """How far a topic, or a group on it, had come at some moment: what charts are drawn from."""

    id = models.BigAutoField(primary_key=True)
    taken_at = models.DateTimeField(_("when"), db_default=ClockTimestamp(), editable=False)
    topic = models.ForeignKey(Topic, models.CASCADE, related_name="+", db_index=False, verbose_name=_("topic"))
    group_id = models.TextField(_("group"), default="", db_default="", db_comment="Empty: the topic itself")
    tip = models.BigIntegerField(_("tip"), db_comment="The topic's last offset")
    lag = models.BigIntegerField(_("events behind"), default=0, db_default=0)
    behind_s = models.FloatField(
        _("seconds behind"), default=0, db_default=0.0, db_comment="The age of the first event not passed"
    )
    after_gap = models.BooleanField(
        _("after a gap"), default=False, db_default=False, db_comment="No worker was there before it to take one"
    )

    class Meta:
        db_table = "outbox_samples"
        default_permissions = ()
        db_table_comment = "How far topics and groups had come at some moments, for charts; written only on change"
        verbose_name = _("sample")
        verbose_name_plural = _("samples")
        indexes = [models.Index(fields=["topic", "group_id", "taken_at"], name="outbox_samples_course")]

    def __str__(self) -> str:
        return f"{self.topic_id} {self.group_id}: {self.tip}, {self.lag} behind"
