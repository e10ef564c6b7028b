"""Topics: created here, by a command or by `migrate`. The name is final, every option can be changed."""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db import router
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import urlencode
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from pubsub import control
from pubsub.conf import conf
from pubsub.db.transactions import read_committed
from pubsub.errors import PubSubError
from pubsub.models import ConsumerLag, Status, Subscription, Topic
from pubsub.models.topic import Semantics
from pubsub.monitoring.problems import duration
from pubsub.topic_options import OPTIONS, column_of
from pubsub.topics.names import check_name

from .formats import number
from .page import OwnPages
from .topic_changes import consequences

COLUMNS = tuple(map(column_of, OPTIONS))


class TopicForm(forms.ModelForm):  # type: ignore[type-arg]
    """Validated by a dry run of the whole change, so that every refusal is an error of the form."""

    actor = ""

    class Meta:
        model = Topic
        fields = ("name", *COLUMNS)
        widgets = {"name": forms.TextInput(attrs={"class": "vTextField"})}
        help_texts = {
            "name": _("The name publishers and subscribers use, such as “orders.events”. It can’t be changed later."),
            "total_partitions": _(
                "Order is kept within a partition, and at most this many workers share a group’s work. A change "
                "applies to events published from then on; each key keeps its order."
            ),
            "retention": _("How long an event is kept at least: days, or days hours:minutes:seconds."),
            "max_age": _("Days, or days hours:minutes:seconds. Empty: no limit."),
            "max_bytes": _("Empty: no limit."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        partitions = self.fields.get("total_partitions")
        if isinstance(partitions, forms.IntegerField):
            if self.instance.pk is None:
                partitions.initial = self.initial["total_partitions"] = conf().partitions
            partitions.min_value = partitions.widget.attrs["min"] = 1

    def clean_name(self) -> str:
        try:
            return check_name(self.cleaned_data["name"])
        except PubSubError as error:
            raise ValidationError(str(error)) from error

    def clean_total_partitions(self) -> int:
        partitions: int = self.cleaned_data["total_partitions"]
        if partitions < 1:
            raise ValidationError(_("A topic must have at least one partition."))
        return partitions

    def clean_retention(self) -> dt.timedelta:
        retention: dt.timedelta = self.cleaned_data["retention"]
        if retention < dt.timedelta(0):
            raise ValidationError(_("Retention can’t be negative."))
        return retention

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if self.errors:
            return
        using = router.db_for_write(Topic)
        try:
            with control.dry_run(using=using):
                self.apply(using)
        except PubSubError as error:
            self.add_error(None, str(error))

    def apply(self, using: str) -> Topic:
        """Creates the topic, or changes the existing one."""
        options = {
            option: self.cleaned_data[column]
            for option, column in zip(OPTIONS, COLUMNS, strict=True)
            if column in self.cleaned_data
        }
        given = {"actor": self.actor, "reason": self.data.get("reason", "").strip().replace("\x00", "")[:1000]}
        if self.instance.pk is None:
            return control.create_topic(self.cleaned_data["name"], using=using, **given, **options)
        topic: Topic = self.instance
        control.configure_topic(topic.name, using=using, **given, **options)
        return topic


@dataclass(frozen=True, kw_only=True)
class GridRow:
    """A group, and how far it is behind in each partition."""

    group: str
    status: str
    address: str
    cells: list[ConsumerLag | None]
    lag: int


@admin.register(Topic)
class TopicAdmin(OwnPages):
    form = TopicForm
    list_display = ("name", "semantics_shown", "total_partitions", "retention_shown", "tip")
    list_select_related = ("counter",)
    search_fields = ("name",)
    show_facets = admin.ShowFacets.NEVER

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> type[TopicForm]:
        form: type[TopicForm] = super().get_form(request, obj, change, **kwargs)  # type: ignore[assignment]
        form.actor = request.user.get_username()
        return form

    def get_fields(self, request: HttpRequest, obj: Topic | None = None) -> tuple[str, ...]:
        return ("name", *COLUMNS) if obj is None else ("name", *COLUMNS, "tip", "created_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Topic | None = None) -> tuple[str, ...]:
        # Publishers and subscribers know the topic by its name.
        return () if obj is None else ("name", "tip", "created_at")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        topic = self.get_object(request, object_id)
        if topic is not None and request.method == "POST" and (asked := self._asked(request, topic)):
            return asked
        context: dict[str, Any] = {}
        if topic is not None and request.user.has_perm("pubsub.view_subscription"):
            context = self.grid(topic)
        if topic is not None and request.user.has_perm("pubsub.view_outboxmessage"):
            of_topic = "?" + urlencode({"topic": topic.pk})
            context |= {
                "events_address": self.address("outboxmessage_changelist") + of_topic,
                "tail_address": self.address("outboxmessage_tail") + of_topic,
            }
        return super().change_view(request, object_id, form_url, {**context, **(extra_context or {})})

    def _asked(self, request: HttpRequest, topic: Topic) -> HttpResponse | None:
        """The page that shows what the change would cost, unless it costs nothing or is confirmed already."""
        if not self.has_change_permission(request, topic):
            return None
        form = self.get_form(request, topic, change=True)(request.POST, instance=topic)
        if not form.is_valid():
            return None  # Django shows what is wrong
        using = router.db_for_write(Topic)
        stored = Topic.objects.using(using).get(pk=topic.pk)
        found = consequences(stored, form.cleaned_data, using)
        if {it.agreed for it in found} <= set(request.POST.getlist("agreed")):
            return None
        back = self.address("topic_change", topic.pk)
        return self.page(
            request,
            "topic/confirm",
            _("Change topic %(name)s?") % {"name": topic.name},
            crumbs=[self.home(), (back, topic.name)],
            consequences=found,
            given=[
                (name, value)
                for name, values in request.POST.lists()
                if name not in ("csrfmiddlewaretoken", "agreed", "reason")
                for value in values
            ],
            back=back,
        )

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        return self._or_refused(
            request, lambda: super(TopicAdmin, self).changeform_view(request, object_id, form_url, extra_context)
        )

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return self._or_refused(request, lambda: super(TopicAdmin, self).delete_view(request, object_id, extra_context))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return self._or_refused(request, lambda: super(TopicAdmin, self).changelist_view(request, extra_context))

    def _or_refused(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        """If the change has become impossible since it was confirmed, the page says so and nothing is changed."""
        if request.method != "POST":
            return view()
        try:
            with read_committed(router.db_for_write(Topic)):
                return view()
        except PubSubError as error:
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def grid(self, topic: Topic) -> dict[str, Any]:
        """Every group by every partition. A resize leaves groups with partitions that are no longer in use."""
        cursors = list(ConsumerLag.objects.filter(topic_id=topic.pk))
        partitions = sorted({cursor.partition_id for cursor in cursors})
        by_partition = {(cursor.group_id, cursor.partition_id): cursor for cursor in cursors}
        rows = []
        for subscription in Subscription.objects.filter(topic=topic).order_by("group_id"):
            cells = [by_partition.get((subscription.group_id, partition)) for partition in partitions]
            rows.append(
                GridRow(
                    group=subscription.group_id,
                    status=str(Status(subscription.status).label).partition(":")[0],
                    address=self.address("subscription_change", subscription.pk),
                    cells=cells,
                    lag=sum(cell.lag for cell in cells if cell),
                )
            )
        return {"grid": rows, "partitions": partitions}

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        obj.pk = form.apply(router.db_for_write(Topic)).pk

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        control.remove_topic(obj.name, actor=request.user.get_username(), using=router.db_for_write(Topic))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for topic in queryset:
            self.delete_model(request, topic)

    @admin.display(description=_("semantics"), ordering="semantics")
    def semantics_shown(self, topic: Topic) -> str:
        return str(_("queue") if topic.semantics == Semantics.QUEUE else _("pub/sub"))

    @admin.display(description=_("retention"), ordering="retention")
    def retention_shown(self, topic: Topic) -> str:
        return duration(topic.retention.total_seconds())

    @admin.display(description=_("last offset"))
    def tip(self, topic: Topic) -> str:
        counter = getattr(topic, "counter", None)  # missing until the first event is numbered
        return number(counter.next_offset - 1 if counter else 0)

    def get_deleted_objects(
        self, objs: Sequence[Any] | QuerySet[Any], request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        """Only a topic with which nothing would be lost may go. Django's own way loads all that refers, one by one."""
        using = router.db_for_write(Topic)
        lost = [f"{topic}: {loss}" for topic in objs for loss in control.losses(topic, using=using)]
        if lost:
            return [], {}, set(), lost
        names = [f"{capfirst(str(Topic._meta.verbose_name))}: {topic}" for topic in objs]
        return names, {str(Topic._meta.verbose_name_plural): len(names)}, set(), []
