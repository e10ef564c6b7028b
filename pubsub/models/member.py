"""Which processes work for a group at the moment."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from .fields import ClockTimestamp
from .topic import Topic


class Member(models.Model):
    """A process that reads a topic for a group. It sends heartbeats for as long as it lives."""

    pk = models.CompositePrimaryKey("topic_id", "group_id", "worker_id")
    topic = models.ForeignKey(Topic, models.CASCADE, related_name="+", db_index=False, verbose_name=_("topic"))
    group_id = models.TextField(_("group"))
    worker_id = models.TextField(_("worker"), db_comment="Unique among all processes; --worker-id chooses it")
    host = models.TextField(_("machine"), default="", db_default="")
    pid = models.IntegerField(_("process"), null=True)
    joined_at = models.DateTimeField(_("joined"), db_default=ClockTimestamp(), editable=False)
    last_heartbeat_at = models.DateTimeField(_("last heartbeat"), db_default=ClockTimestamp(), editable=False)

    class Meta:
        db_table = "outbox_members"
        default_permissions = ()
        db_table_comment = "Members: the processes that work for a group, with their last heartbeats"
        verbose_name = _("member")
        verbose_name_plural = _("members")

    def __str__(self) -> str:
        return f"{self.worker_id} of {self.group_id}"


class WorkerProcess(models.Model):
    """A process that runs a worker: what it has in hand, and whether an operator wants it to stop."""

    id = models.BigAutoField(primary_key=True)
    worker_id = models.TextField(_("worker"))
    host = models.TextField(_("machine"))
    pid = models.IntegerField(_("process"))
    threads = models.IntegerField(_("threads"), db_comment="How many partitions it handles at the same time")
    lock_key = models.IntegerField(
        null=True, db_comment="The advisory lock that it holds for as long as it is connected; null: none"
    )
    in_hand = models.JSONField(
        _("in hand"),
        default=list,
        db_default=models.Value([], models.JSONField()),
        db_comment="The calls of handlers that have taken longer than a second, and since when",
    )
    stop_requested_at = models.DateTimeField(
        _("stop requested"), null=True, db_comment="When an operator has asked it to stop; null: no operator has"
    )
    started_at = models.DateTimeField(_("started"), db_default=ClockTimestamp(), editable=False)

    class Meta:
        db_table = "outbox_workers"
        default_permissions = ()
        db_table_comment = "Workers: the processes that call handlers, and what they have had in hand for long"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        constraints = [models.UniqueConstraint(fields=["worker_id"], name="outbox_workers_worker_id")]

    def __str__(self) -> str:
        return self.worker_id
