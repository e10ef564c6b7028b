"""What Spark writes: what its jobs found out, for the admin to show, and what its streams publish."""

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils.translation import gettext_lazy as _

from .fields import ClockTimestamp


class Finding(models.Model):
    """One row of the result of one run of a job. Written by Spark over JDBC."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField(_("run"))
    job = models.TextField(_("job"), db_comment="Such as throughput, latency, skew")
    made_at = models.DateTimeField(_("made"), db_default=ClockTimestamp(), editable=False)
    parameters = models.JSONField(
        _("parameters"), encoder=DjangoJSONEncoder, db_default=models.Value({}, models.JSONField())
    )
    row_number = models.IntegerField(_("row"))
    data = models.JSONField(_("data"), encoder=DjangoJSONEncoder)

    class Meta:
        db_table = "spark_findings"
        default_permissions = ("view",)
        db_table_comment = "What Spark jobs found in the log, a row each"
        verbose_name = _("finding")
        verbose_name_plural = _("findings")
        constraints = [models.UniqueConstraint(fields=["run_id", "row_number"], name="spark_findings_once")]
        indexes = [models.Index(fields=["job", "-made_at"], name="spark_findings_latest")]

    def __str__(self) -> str:
        return f"{self.job} {self.made_at}: {self.row_number}"


class SinkBatch(models.Model):
    """A batch that a stream has published. It is in the transaction of its events, so no batch is published twice."""

    pk = models.CompositePrimaryKey("sink", "batch_id")
    sink = models.TextField(db_comment="The stream, as its checkpoint knows it")
    batch_id = models.BigIntegerField()
    events = models.BigIntegerField()
    published_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)

    class Meta:
        db_table = "spark_sink_batches"
        default_permissions = ()
        db_table_comment = "Batches that streams have published, each exactly once"

    def __str__(self) -> str:
        return f"{self.sink} {self.batch_id}"


class StagedEvent(models.Model):
    """An event that a Spark task wants to publish. It is published when all tasks of its batch are done."""

    id = models.BigAutoField(primary_key=True)
    task_id = models.UUIDField(db_comment="One attempt of one task; only those that the driver names count")
    staged_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    topic = models.TextField()
    type = models.TextField()
    key = models.TextField(null=True)
    host_id = models.TextField(null=True)
    user_id = models.TextField(null=True)
    to_group = models.TextField(null=True)
    payload = models.JSONField()
    metadata = models.JSONField()

    class Meta:
        db_table = "spark_staged_events"
        default_permissions = ()
        db_table_comment = "Events that Spark tasks want to publish; empty but for batches in the making"
        indexes = [
            models.Index(fields=["task_id", "id"], name="spark_staged_events_task"),
            models.Index(fields=["staged_at"], name="spark_staged_events_age"),
        ]

    def __str__(self) -> str:
        return f"{self.type or 'event'} for {self.topic}"
