"""Topics: made here or by `migrate`, named once and for all."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import F, Func, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from ..conf import conf
from ..errors import UnknownTopic
from ..models import (
    Claim,
    ConsumerOffset,
    DeadLetter,
    DedupKey,
    DelayedMessage,
    LogCounter,
    OutboxMessage,
    Sequencer,
    Subscription,
    Topic,
)
from ..models.fields import TransactionIdField
from ..topics import DEFAULT_TOPIC, check_name
from .showing import number

NUMBERED_UP_TO = Sequencer.objects.values_list(
    Func(F("seen"), function="pg_snapshot_xmin", output_field=TransactionIdField())
)
"""What older transactions published is in the log already: only the newest messages are looked at, by their index."""


class TopicForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Topic
        fields = ("name", "total_partitions", "retention")
        widgets = {"name": forms.TextInput(attrs={"class": "vTextField"})}
        help_texts = {
            "name": _("What publishers and subscribers say, such as “orders.events”. It can’t be changed later."),
            "total_partitions": _(
                "Order is kept within a partition, and at most this many workers share a group’s work. "
                "It can’t be changed here later."
            ),
            "retention": _("How long a message stays at least: days, or days hours:minutes:seconds."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        partitions = self.fields.get("total_partitions")
        if isinstance(partitions, forms.IntegerField):
            partitions.initial = self.initial["total_partitions"] = conf().total_partitions
            partitions.min_value = partitions.widget.attrs["min"] = 1

    def clean_name(self) -> str:
        try:
            return check_name(self.cleaned_data["name"])
        except UnknownTopic as error:
            raise ValidationError(str(error)) from error

    def clean_total_partitions(self) -> int:
        partitions: int = self.cleaned_data["total_partitions"]
        if partitions < 1:
            raise ValidationError(_("A topic has at least one partition."))
        return partitions

    def clean_retention(self) -> dt.timedelta:
        retention: dt.timedelta = self.cleaned_data["retention"]
        if retention < dt.timedelta(0):
            raise ValidationError(_("Messages can’t be kept for less than no time."))
        return retention


@admin.register(Topic)
class TopicAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    form = TopicForm
    list_display = ("name", "total_partitions", "retention", "tip")
    list_select_related = ("counter",)
    search_fields = ("name",)
    show_facets = admin.ShowFacets.NEVER

    def get_fields(self, request: HttpRequest, obj: Topic | None = None) -> tuple[str, ...]:
        return TopicForm.Meta.fields if obj is None else (*TopicForm.Meta.fields, "tip", "created_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Topic | None = None) -> tuple[str, ...]:
        # Publishers and subscribers know the topic by its name, and the log was laid out by its partitions.
        return () if obj is None else ("name", "total_partitions", "tip", "created_at")

    @admin.display(description=_("tip of the log"))
    def tip(self, topic: Topic) -> str:
        counter = getattr(topic, "counter", None)  # missing until the first message is numbered
        return number(counter.next_offset - 1 if counter else 0)

    def get_deleted_objects(
        self, objs: Sequence[Any] | QuerySet[Any], request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        """Only what nothing refers to may go. Asks by EXISTS: Django's own way loads all that refers, one by one."""
        references = [f"{topic}: {reason}" for topic in objs for reason in self._references(topic)]
        if references:
            return [], {}, set(), references
        return super().get_deleted_objects(objs, request)

    def _references(self, topic: Topic) -> list[str]:
        reasons: list[str | Promise] = []
        using = topic._state.db or "default"
        if topic.name == DEFAULT_TOPIC:
            reasons.append(_("what is published without a topic goes here"))
        counter = LogCounter.objects.using(using).filter(topic_id=topic.pk).first()
        if counter and counter.next_offset > 1:
            entries = counter.next_offset - 1
            reasons.append(
                ngettext("%(entries)s message in its log", "%(entries)s messages in its log", entries)
                % {"entries": number(entries)}
            )
        published = OutboxMessage.objects.using(using).filter(topic_id=topic.pk)
        if published.filter(xid__gte=Subquery(NUMBERED_UP_TO)).exists():
            reasons.append(_("messages wait for their places in its log"))
        for model, reason in (
            (Subscription, _("groups are subscribed to it")),
            (ConsumerOffset, _("groups have their places in it")),
            (Claim, _("workers are busy with it")),
            (DeadLetter, _("dead letters come from it")),
            (DelayedMessage, _("delayed messages wait for it")),
            (DedupKey, _("dedup keys of it are remembered")),
        ):
            if model._default_manager.using(using).filter(topic_id=topic.pk).exists():
                reasons.append(reason)
        return [str(reason) for reason in reasons]
