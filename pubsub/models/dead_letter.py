"""What failed, with everything needed to understand it and to try again."""

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import Q
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _

from .fields import ClockTimestamp
from .topic import Topic


class DeadLetter(models.Model):
    """An event that one group could not handle. Other groups never notice."""

    class State(models.TextChoices):
        RETRYING = "retrying", _("waiting for its next attempt")
        DEAD = "dead", _("waiting for an operator")
        RESOLVED = "resolved", _("handled at a later attempt")
        DISCARDED = "discarded", _("given up by an operator")
        PARKED = "parked", _("waiting behind a failed event of the same key")

    id = models.BigAutoField(primary_key=True)
    group_id = models.TextField(_("group"))
    topic = models.ForeignKey(Topic, models.PROTECT, related_name="+", db_index=False, verbose_name=_("topic"))
    partition_id = models.IntegerField(_("partition"))
    c_offset = models.BigIntegerField(_("offset"))
    event_id = models.UUIDField(_("event id"))
    transaction_id = models.UUIDField(
        _("transaction"), db_comment="The events of a transaction fail, and are replayed, together"
    )
    type = models.TextField(_("type"), default="")
    key = models.TextField(_("key"), null=True)
    host_id = models.TextField(_("host"), null=True)
    user_id = models.TextField(_("user"), null=True)
    payload = models.JSONField(_("payload"), encoder=DjangoJSONEncoder, db_comment="Kept beyond the log's retention")
    original_payload = models.JSONField(
        _("original payload"),
        encoder=DjangoJSONEncoder,
        null=True,
        blank=True,
        db_comment="What was published, if an operator has changed the payload since; null: it is as published",
    )
    metadata = models.JSONField(_("metadata"), encoder=DjangoJSONEncoder)
    published_at = models.DateTimeField(_("published"))
    handler = models.TextField(_("handler"), db_comment="Dotted name of the function that failed")
    exception_class = models.TextField(_("exception"), default="")
    exception_message = models.TextField(_("message"), default="")
    traceback = models.TextField(_("traceback"), default="")
    attempts = models.IntegerField(_("attempts"), default=1, db_comment="0: parked, and not tried yet")
    state = models.TextField(_("state"), choices=State, default=State.DEAD, db_default=State.DEAD)
    next_attempt_at = models.DateTimeField(_("next attempt"), null=True, db_comment="Set while the state is retrying")
    created_at = models.DateTimeField(_("failed first"), db_default=ClockTimestamp(), editable=False)
    updated_at = models.DateTimeField(_("changed"), db_default=ClockTimestamp(), editable=False)

    class Meta:
        db_table = "dead_letter_queue"
        default_permissions = ("view",)
        db_table_comment = "Dead letters: events that a group could not handle"
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        constraints = [
            models.UniqueConstraint(fields=["group_id", "topic", "c_offset"], name="dead_letter_queue_once"),
            models.CheckConstraint(condition=Q(attempts__gte=0), name="dead_letter_queue_attempted"),
            models.CheckConstraint(
                condition=Q(state__in=["retrying", "dead", "resolved", "discarded", "parked"]),
                name="dead_letter_queue_state_known",
            ),
            models.CheckConstraint(
                condition=Q(state="retrying", next_attempt_at__isnull=False)
                | (~Q(state="retrying") & Q(next_attempt_at__isnull=True)),
                name="dead_letter_queue_retrying_has_time",
            ),
        ]
        indexes = [
            models.Index(
                fields=["group_id", "topic", "partition_id", "next_attempt_at"],
                name="dead_letter_queue_due",
                condition=Q(state="retrying"),
            ),
            models.Index(
                Coalesce("key", "host_id"),
                "group_id",
                "topic",
                "c_offset",
                name="dead_letter_queue_blocking",
                condition=Q(state__in=["retrying", "dead", "parked"]),
            ),
            models.Index(
                fields=["group_id", "topic", "partition_id", "c_offset"],
                name="dead_letter_queue_open",
                condition=Q(state__in=["retrying", "dead", "parked"]),
            ),
            models.Index(
                fields=["updated_at"],
                name="dead_letter_queue_finished",
                condition=Q(state__in=["resolved", "discarded"]),
            ),
            models.Index(fields=["state", "-id"], name="dead_letter_queue_by_state"),
            models.Index(fields=["transaction_id", "group_id"], name="dead_letter_queue_transaction"),
            # For people, who look for the newest of some kind.
            models.Index(fields=["group_id", "-id"], name="dead_letter_queue_by_group"),
            models.Index(fields=["topic", "-id"], name="dead_letter_queue_by_topic"),
            models.Index(fields=["type", "-id"], name="dead_letter_queue_by_type"),
            models.Index(fields=["exception_class", "-id"], name="dead_letter_queue_by_exception"),
            models.Index(
                fields=["host_id", "-id"], name="dead_letter_queue_by_host", condition=Q(host_id__isnull=False)
            ),
            models.Index(fields=["created_at"], name="dead_letter_queue_by_time"),
            models.Index(fields=["event_id"], name="dead_letter_queue_event"),
            models.Index(fields=["key"], name="dead_letter_queue_keyed", condition=Q(key__isnull=False)),
        ]
        permissions = [
            ("replay_deadletter", _("Can replay dead letters")),
            ("discard_deadletter", _("Can discard dead letters")),
            ("edit_payload_deadletter", _("Can change the payload of dead letters")),
            ("view_payload_deadletter", _("Can see the payload of dead letters")),
        ]

    def __str__(self) -> str:
        return f"{self.group_id} {self.topic}:{self.c_offset}"


class Attempt(models.Model):
    """One failed attempt at a dead letter: how it went, when, and with which handler."""

    id = models.BigAutoField(primary_key=True)
    letter = models.ForeignKey(
        DeadLetter, models.CASCADE, related_name="history", db_index=False, verbose_name=_("dead letter")
    )
    attempt = models.IntegerField(_("attempt"))
    failed_at = models.DateTimeField(_("failed"), db_default=ClockTimestamp(), editable=False)
    handler = models.TextField(_("handler"))
    exception_class = models.TextField(_("exception"))
    exception_message = models.TextField(_("message"))
    traceback = models.TextField(_("traceback"))

    class Meta:
        db_table = "dead_letter_attempts"
        default_permissions = ()
        db_table_comment = "Every failed attempt at a dead letter"
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        ordering = ["id"]
        indexes = [models.Index(fields=["letter", "id"], name="dead_letter_attempts_in_order")]

    def __str__(self) -> str:
        return f"{self.letter_id}: attempt {self.attempt}"
