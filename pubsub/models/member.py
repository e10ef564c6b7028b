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
