"""Topics: made here, by a command or by `migrate`; named once and for all, everything else can be changed."""

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

from pubsub import operating
from pubsub.conf import conf
from pubsub.errors import PubSubError
from pubsub.models import ConsumerLag, Status, Subscription, Topic
from pubsub.models.topic import Semantics
from pubsub.observing.problems import duration
from pubsub.topics.finding import check_name
from pubsub.topics.options import OPTIONS
from pubsub.transactions import read_committed

from .page import OwnPages
from .showing import number
from .topic_changes import consequences


class TopicForm(forms.ModelForm):  # type: ignore[type-arg]
    """What is entered is tried out as a whole before it is done, so that what cannot work is said here."""

    actor = ""

    class Meta:
        model = Topic
        fields = ("name", *OPTIONS)
        widgets = {"name": forms.TextInput(attrs={"class": "vTextField"})}
        help_texts = {
            "name": _("What publishers and subscribers say, such as “orders.events”. It can’t be changed later."),
            "total_partitions": _(
                "Order is kept within a partition, and at most this many workers share a group’s work. A change holds "
                "for what is published from then on; the order of each key is kept."
            ),
            "retention": _("How long a message stays at least: days, or days hours:minutes:seconds."),
            "max_age": _("Days, or days hours:minutes:seconds. Empty: never."),
            "max_bytes": _("Empty: never."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        partitions = self.fields.get("total_partitions")
        if isinstance(partitions, forms.IntegerField):
            if self.instance.pk is None:
                partitions.initial = self.initial["total_partitions"] = conf().total_partitions
            partitions.min_value = partitions.widget.attrs["min"] = 1

    def clean_name(self) -> str:
        try:
            return check_name(self.cleaned_data["name"])
        except PubSubError as error:
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

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if self.errors:
            return
        using = router.db_for_write(Topic)
        try:
            with operating.rehearsal(using):
                self.apply(using)
        except PubSubError as error:
            self.add_error(None, str(error))

    def apply(self, using: str) -> Topic:
        """Makes the topic, or changes the one there is."""
        options = {name: value for name, value in self.cleaned_data.items() if name in OPTIONS}
        given = {"actor": self.actor, "reason": self.data.get("reason", "").strip().replace("\x00", "")[:1000]}
        if self.instance.pk is None:
            return operating.create_topic(self.cleaned_data["name"], using=using, **given, **options)
        topic: Topic = self.instance
        operating.configure_topic(topic.name, using=using, **given, **options)
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
        return ("name", *OPTIONS) if obj is None else ("name", *OPTIONS, "tip", "created_at")

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
                "messages_address": self.address("outboxmessage_changelist") + of_topic,
                "tail_address": self.address("outboxmessage_tail") + of_topic,
            }
        return super().change_view(request, object_id, form_url, {**context, **(extra_context or {})})

    def _asked(self, request: HttpRequest, topic: Topic) -> HttpResponse | None:
        """A page that tells what the change would cost, unless it costs nothing, or that has been agreed to."""
        if not self.has_change_permission(request, topic):
            return None
        form = self.get_form(request, topic, change=True)(request.POST, instance=topic)
        if not form.is_valid():
            return None  # Django shows what is wrong
        using = router.db_for_write(Topic)
        stored = Topic.objects.using(using).get(pk=topic.pk)
        told = consequences(stored, form.cleaned_data, using)
        if {it.agreed for it in told} <= set(request.POST.getlist("agreed")):
            return None
        back = self.address("topic_change", topic.pk)
        return self.page(
            request,
            "topic/confirm",
            _("Change topic %(name)s?") % {"name": topic.name},
            crumbs=[self.home(), (back, topic.name)],
            consequences=told,
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
        """What has become impossible since it was asked about is said, and none of it is done."""
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
        places = list(ConsumerLag.objects.filter(topic_id=topic.pk))
        partitions = sorted({place.partition_id for place in places})
        by_place = {(place.group_id, place.partition_id): place for place in places}
        rows = []
        for subscription in Subscription.objects.filter(topic=topic).order_by("group_id"):
            cells = [by_place.get((subscription.group_id, partition)) for partition in partitions]
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
        operating.remove_topic(obj.name, actor=request.user.get_username(), using=router.db_for_write(Topic))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for topic in queryset:
            self.delete_model(request, topic)

    @admin.display(description=_("semantics"), ordering="semantics")
    def semantics_shown(self, topic: Topic) -> str:
        return str(_("queue") if topic.semantics == Semantics.QUEUE else _("pub/sub"))

    @admin.display(description=_("retention"), ordering="retention")
    def retention_shown(self, topic: Topic) -> str:
        return duration(topic.retention.total_seconds())

    @admin.display(description=_("tip of the log"))
    def tip(self, topic: Topic) -> str:
        counter = getattr(topic, "counter", None)  # missing until the first message is numbered
        return number(counter.next_offset - 1 if counter else 0)

    def get_deleted_objects(
        self, objs: Sequence[Any] | QuerySet[Any], request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        """Only a topic with which nothing would be lost may go. Django's own way loads all that refers, one by one."""
        using = router.db_for_write(Topic)
        lost = [f"{topic}: {loss}" for topic in objs for loss in operating.losses(topic, using)]
        if lost:
            return [], {}, set(), lost
        names = [f"{capfirst(str(Topic._meta.verbose_name))}: {topic}" for topic in objs]
        return names, {str(Topic._meta.verbose_name_plural): len(names)}, set(), []
