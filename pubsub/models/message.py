"""What publishers write: events. Rows are inserted, never updated or deleted one by one."""

from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, models
from django.db.models.functions import Greatest
from django.db.models.lookups import LessThanOrEqual
from django.db.models.signals import pre_save
from django.dispatch import receiver
from django.utils.translation import gettext_lazy as _

from pubsub.events import EARLIEST, LATEST, LONGEST_TEXT

from .fields import ClockTimestamp, CurrentTransaction, Octets, RandomUUID, TransactionIdField, TransactionUUID
from .topic import Topic


def texts_fit(table: str) -> models.CheckConstraint:
    texts = Greatest(*map(Octets, ("type", "key", "host_id", "user_id", "to_group")))
    return models.CheckConstraint(condition=LessThanOrEqual(texts, LONGEST_TEXT), name=f"{table}_texts_fit")


def times_fit(table: str, *columns: str) -> models.CheckConstraint:
    """Python has the years 1 to 9999, in any zone, and no infinity."""
    bounds = {f"{column}__gte": EARLIEST for column in columns} | {f"{column}__lt": LATEST for column in columns}
    return models.CheckConstraint(condition=models.Q(**bounds), name=f"{table}_times_fit")


class MessageContent(models.Model):
    """An event as its publisher wrote it: the columns that the outbox and delayed events share."""

    event_id = models.UUIDField(
        _("event id"),
        db_default=RandomUUID(),
        db_comment="What the outside world knows the event by: the same through delay, retry, replay and archive",
    )
    # No foreign key in the database: checking it would lock the topic's row in every publisher's transaction.
    topic = models.ForeignKey(
        Topic,
        models.DO_NOTHING,
        related_name="+",
        verbose_name=_("topic"),
        db_constraint=False,
        db_index=False,
        db_default=1,
        db_comment="A row of outbox_topics (not enforced, so that publishers share no lock)",
    )
    type = models.TextField(_("type"), default="", db_default="", db_comment="What happened, such as order.created")
    key = models.TextField(_("key"), null=True, db_comment="Events of one key keep their order; host_id if absent")
    host_id = models.TextField(_("host"), null=True, db_comment="The tenant")
    user_id = models.TextField(_("user"), null=True, db_comment="Who caused the event")
    to_group = models.TextField(_("for group"), null=True, db_comment="Only this group handles it; null: every group")
    payload = models.JSONField(_("payload"), encoder=DjangoJSONEncoder, db_comment="The event itself")
    metadata = models.JSONField(
        _("metadata"),
        encoder=DjangoJSONEncoder,
        default=dict,
        db_default=models.Value({}, models.JSONField()),
        db_comment="What travels with the event: trace context, correlation, schema version",
    )
    transaction_id = models.UUIDField(
        _("transaction"),
        db_default=TransactionUUID(),
        editable=False,
        db_comment="One value for all events of one transaction, whichever language inserted them",
    )
    created_at = models.DateTimeField(
        _("published"),
        db_default=ClockTimestamp(),
        editable=False,
        db_comment="When it was published, by the database's clock",
    )

    class Meta:
        abstract = True


class OutboxMessage(MessageContent):
    """A published event, in the publisher's own transaction.

    The sequencer finds new rows by ``xid``, which must not be set by hand.
    """

    id = models.BigAutoField(primary_key=True, db_comment="Insertion order, not the log's order")
    xid = TransactionIdField(
        db_default=CurrentTransaction(),
        editable=False,
        db_comment="The top-level transaction that published it; filled by the database, never by hand",
    )

    class Meta:
        db_table = "outbox_message_t"
        default_permissions = ("view",)
        db_table_comment = "Published events; insert-only, partitioned by id, retired by whole partitions"
        verbose_name = _("event")
        verbose_name_plural = _("events")
        indexes = [models.Index(fields=["xid"], name="outbox_message_t_xid")]
        constraints = [texts_fit("outbox_message_t"), times_fit("outbox_message_t", "created_at")]
        permissions = [
            ("publish_outboxmessage", _("Can publish events by hand")),
            ("view_payload_outboxmessage", _("Can see the payload of events")),
        ]

    def __str__(self) -> str:
        return f"{self.type or 'event'} {self.event_id}"


@receiver(pre_save, sender=OutboxMessage)
def keep_what_a_fixture_says(raw: bool, using: str, **kwargs: Any) -> None:
    """`loaddata` brings ids and xids along; from anyone else the database refuses them."""
    if raw:
        with connections[using].cursor() as cursor:
            cursor.execute("SET LOCAL pubsub.loading = 'on'")


class DelayedMessage(MessageContent):
    """An event that waits for its time; then it is moved to the outbox and numbered."""

    id = models.BigAutoField(primary_key=True)
    deliver_at = models.DateTimeField(_("deliver at"), db_comment="Not numbered, and so not seen, before this time")

    class Meta:
        db_table = "outbox_delayed_message"
        default_permissions = ()
        db_table_comment = "Events that are not due yet"
        verbose_name = _("delayed event")
        verbose_name_plural = _("delayed events")
        indexes = [models.Index(fields=["deliver_at", "id"], name="outbox_delayed_message_due")]
        constraints = [
            texts_fit("outbox_delayed_message"),
            times_fit("outbox_delayed_message", "created_at", "deliver_at"),
        ]

    def __str__(self) -> str:
        return f"{self.type or 'event'} {self.event_id} at {self.deliver_at}"


class DedupKey(models.Model):
    """The first event published under a key, for as long as the key is remembered."""

    pk = models.CompositePrimaryKey("topic_id", "dedup_key")
    topic = models.ForeignKey(
        Topic, models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False, db_comment="The topic"
    )
    dedup_key = models.TextField(db_comment="What the publisher calls the same event")
    event_id = models.UUIDField(db_comment="The event that was published first")
    expires_at = models.DateTimeField(db_comment="From then on the key may be used again")

    class Meta:
        db_table = "outbox_dedup_key"
        default_permissions = ()
        db_table_comment = "Keys under which an event has been published, so that no second one is"
        indexes = [models.Index(fields=["expires_at"], name="outbox_dedup_key_expiry")]

    def __str__(self) -> str:
        return self.dedup_key
