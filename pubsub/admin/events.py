"""The log, searched by offset, time and content; one event with its delivery to each group."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import router
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.utils.formats import date_format
from django.utils.http import urlencode
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache

from pubsub.models import LogView, OutboxMessage, Topic
from pubsub.monitoring.search import PAYLOAD_CHARACTERS, Conditions, FoundEvent, LogPage, offset_at, search
from pubsub.payloads.redact import Redactor
from pubsub.payloads.visible import visible
from pubsub.payloads.write import write_json, write_line

from .delivery import GroupDelivery, deliveries
from .json_display import show_json
from .page import Pages, plain_text
from .publish import publish_view

LARGEST_OFFSET, LARGEST_PARTITION = 10**18, 2**31 - 1
"""What PostgreSQL compares with a column; a page's limit fits behind it."""

PER_PAGE = 50
PREVIEW = 160
TAIL_AT_ONCE = 500
SIBLINGS_AROUND = 200
"""The events of a transaction are contiguous: they are searched for so far to each side."""


class SearchForm(forms.Form):
    """Where to search, and for what."""

    topic = forms.ChoiceField(label=gettext_lazy("Topic"))
    offset = forms.IntegerField(
        label=gettext_lazy("Jump to offset"), required=False, min_value=1, max_value=LARGEST_OFFSET
    )
    at = forms.DateTimeField(
        label=gettext_lazy("Jump to time"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
    )
    partition = forms.IntegerField(
        label=gettext_lazy("Partition"), required=False, min_value=0, max_value=LARGEST_PARTITION
    )
    type = forms.CharField(label=gettext_lazy("Type"), required=False)
    key = forms.CharField(label=gettext_lazy("Key or host"), required=False)
    identifier = forms.UUIDField(label=gettext_lazy("Event or transaction id"), required=False)
    before = forms.IntegerField(required=False, min_value=1, max_value=LARGEST_OFFSET, widget=forms.HiddenInput)
    after = forms.IntegerField(required=False, min_value=0, max_value=LARGEST_OFFSET, widget=forms.HiddenInput)

    def __init__(self, *args: Any, topics: Sequence[Topic], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._topics = {str(topic.pk): topic for topic in topics}
        field = self.fields["topic"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101
        field.choices = [(number, topic.name) for number, topic in self._topics.items()]

    def clean_topic(self) -> Topic:
        return self._topics[self.cleaned_data["topic"]]

    @property
    def conditions(self) -> Conditions:
        chosen = self.cleaned_data
        return Conditions(
            partition=chosen["partition"],
            type=chosen["type"] or None,
            key=chosen["key"] or None,
            identifier=chosen["identifier"],
        )


@admin.register(OutboxMessage)
class EventAdmin(Pages):
    def get_urls(self) -> list[URLPattern]:
        def wrap(view: Any) -> Any:
            return never_cache(self.admin_site.admin_view(view))

        name = "pubsub_outboxmessage"
        return [
            path("", wrap(self.changelist_view), name=f"{name}_changelist"),
            path("publish/", wrap(self.publish_view), name=f"{name}_publish"),
            path("tail/", wrap(self.tail_view), name=f"{name}_tail"),
            path("tail/events/", wrap(self.tail_events_view), name=f"{name}_tail_events"),
            path("<int:topic_id>/<int:offset>/", wrap(self.event_view), name=f"{name}_event"),
            path("<int:topic_id>/<int:offset>/payload/", wrap(self.payload_view), name=f"{name}_payload"),
        ]

    def may_see_payload(self, request: HttpRequest) -> bool:
        return request.user.has_perm("pubsub.view_payload_outboxmessage")

    def has_publish_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("pubsub.publish_outboxmessage")

    def _check(self, request: HttpRequest) -> str:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return router.db_for_read(LogView)

    # The log

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        using = self._check(request)
        topics = list(Topic.objects.using(using).select_related("counter").order_by("name"))
        query = request.GET.copy()
        if topics and not query.get("topic"):
            wanted_name = query.get("topic_name")
            chosen = next((topic for topic in topics if topic.name == wanted_name), None)
            query["topic"] = str((chosen or max(topics, key=_tip)).pk)
        form = SearchForm(query, topics=topics)
        context: dict[str, Any] = {"form": form, "may_publish": self.has_publish_permission(request)}
        if form.is_valid():
            context |= self._log_page(request, form, using)
        return self.page(request, "event/list", _("Events"), **context)

    def _log_page(self, request: HttpRequest, form: SearchForm, using: str) -> dict[str, Any]:
        chosen, topic = form.cleaned_data, form.cleaned_data["topic"]
        before, after, jumped = chosen["before"], chosen["after"], None
        if before is None and after is None:
            if chosen["offset"]:
                jumped = chosen["offset"]
            elif chosen["at"]:
                jumped = offset_at(topic.pk, chosen["at"], using)
            if jumped:
                after = jumped - 1
        may_see = self.may_see_payload(request)
        log_page = search(
            topic.pk, form.conditions, before=before, after=after, limit=PER_PAGE, with_payload=may_see, using=using
        )
        kept = {
            name: value
            for name, value in form.data.items()
            if value and name not in ("before", "after", "offset", "at")
        }

        def link(**position: Any) -> str:
            return "?" + urlencode({**kept, **position})

        return {
            "topic": topic,
            "log_page": log_page,
            "rows": [(found, preview(found), self._event_address(topic.pk, found.offset)) for found in log_page.found],
            "jumped": jumped,
            "filtered": not form.conditions.is_everything,
            "may_see": may_see,
            "links": {
                "newest": link(),
                "newer": link(after=log_page.newer) if log_page.newer is not None else "",
                "older": link(before=log_page.older) if log_page.older is not None else "",
                "oldest": link(after=log_page.oldest - 1),
                "all": "?" + urlencode({"topic": topic.pk}),
            },
            "tail": self.address("outboxmessage_tail") + "?" + urlencode({"topic": topic.pk}),
            "publish": self.address("outboxmessage_publish") + "?" + urlencode({"topic": topic.name}),
        }

    def _event_address(self, topic_id: int, offset: int) -> str:
        return self.address("outboxmessage_event", topic_id, offset)

    # One event

    def _entry(self, topic_id: int, offset: int, using: str) -> Any:
        entry = (
            LogView.objects.using(using)
            .defer("payload", "metadata")
            .extra(select={"payload_text": "payload::text", "metadata_text": "metadata::text"})
            .filter(topic_id=topic_id, c_offset=offset)
            .first()
        )
        if entry is None:
            raise Http404(_("No such event: retention has dropped it, or it has not been published yet."))
        return entry

    def event_view(self, request: HttpRequest, topic_id: int, offset: int) -> HttpResponse:
        using = self._check(request)
        entry = self._entry(topic_id, offset, using)
        may_see = self.may_see_payload(request)
        redactor = Redactor(everything=not may_see)
        whole = self.address("outboxmessage_payload", topic_id, offset)
        payload = show_json(redactor.json("payload", entry.payload_text), whole) if may_see else None
        metadata = show_json(redactor.json("metadata", entry.metadata_text)) if may_see else None
        around = search(
            topic_id,
            Conditions(identifier=entry.transaction_id),
            after=max(0, offset - SIBLINGS_AROUND),
            limit=SIBLINGS_AROUND,
            using=using,
        )
        listing = self.address("outboxmessage_changelist")
        return self.page(
            request,
            "event/event",
            f"{entry.topic}:{entry.c_offset}",
            crumbs=[
                self.home(),
                (f"{listing}?{urlencode({'topic': topic_id})}", entry.topic),
            ],
            entry=entry,
            payload=payload,
            metadata=metadata,
            may_see=may_see,
            groups=[self._delivery(request, found) for found in deliveries(entry, using)],
            siblings=[
                (it, self._event_address(topic_id, it.offset)) for it in around.found[::-1] if it.offset != offset
            ],
            older=self._event_address(topic_id, offset - 1) if offset > around.oldest else "",
            newer=self._event_address(topic_id, offset + 1) if offset < around.tip else "",
            in_list=f"{listing}?{urlencode({'topic': topic_id, 'offset': offset})}",
            of_key=f"{listing}?{urlencode({'topic': topic_id, 'key': entry.key})}" if entry.key else "",
        )

    def payload_view(self, request: HttpRequest, topic_id: int, offset: int) -> HttpResponse:
        """The full payload as plain text, for one too large for the page."""
        using = self._check(request)
        if not self.may_see_payload(request):
            raise PermissionDenied
        value = Redactor().json("payload", self._entry(topic_id, offset, using).payload_text)
        return plain_text(write_json(value), f"event-{topic_id}-{offset}-payload")

    def _delivery(self, request: HttpRequest, found: GroupDelivery) -> dict[str, Any]:
        letter = ""
        if found.letter_id and request.user.has_perm("pubsub.view_deadletter"):
            letter = self.address("deadletter_change", found.letter_id)
        group = ""
        if request.user.has_perm("pubsub.view_subscription"):
            group = self.address("subscription_change", found.subscription_id)
        return {**vars(found), "address": group, "letter": letter}

    # Publishing by hand

    def publish_view(self, request: HttpRequest) -> HttpResponse:
        if not (self.has_view_permission(request) and self.has_publish_permission(request)):
            raise PermissionDenied
        return publish_view(self, request)

    # The live tail

    def tail_view(self, request: HttpRequest) -> HttpResponse:
        using = self._check(request)
        topics = list(Topic.objects.using(using).order_by("name"))
        text = request.GET.get("topic", "")
        topic = next((it for it in topics if str(it.pk) == text or it.name == text), topics[0] if topics else None)
        listing = self.address("outboxmessage_changelist")
        return self.page(
            request,
            "event/tail",
            _("Live tail"),
            crumbs=[self.home()],
            topics=topics,
            topic=topic,
            may_see=self.may_see_payload(request),
            source=self.address("outboxmessage_tail_events"),
            listing=listing,
        )

    def tail_events_view(self, request: HttpRequest) -> HttpResponse:
        """What has been numbered since an offset, for the tail. It asks again with `next`, so nothing is left out."""
        using = self._check(request)
        form = SearchForm(request.GET, topics=list(Topic.objects.using(using)))
        if not form.is_valid():
            return JsonResponse({"errors": form.errors}, status=400)
        topic, after = form.cleaned_data["topic"], form.cleaned_data["after"]
        may_see = self.may_see_payload(request)
        if after is None:
            # The newest few, so that there is something to see at once.
            log_page = search(topic.pk, limit=20, with_payload=may_see, using=using)
        else:
            log_page = search(topic.pk, after=after, limit=TAIL_AT_ONCE, with_payload=may_see, using=using)
        return JsonResponse(
            {
                "events": [self._as_json(topic.pk, found) for found in log_page.found[::-1]],
                "next": _next(log_page, after),
                "tip": log_page.tip,
                "dropped": max(0, log_page.oldest - after - 1) if after is not None else 0,
            }
        )

    def _as_json(self, topic_id: int, found: FoundEvent) -> dict[str, Any]:
        return {
            "offset": found.offset,
            "partition": found.partition,
            "at": date_format(localtime(found.created_at), "H:i:s"),
            "type": visible(found.type),
            "key": visible(found.key or ""),
            "payload": preview(found),
            "address": self._event_address(topic_id, found.offset),
        }


def preview(found: FoundEvent) -> str:
    """The beginning of a payload on one line, redacted."""
    if found.payload is None:
        return ""
    if found.payload_length > PAYLOAD_CHARACTERS:
        # Cut off, it is no JSON, and so cannot be redacted.
        return _("(%(n)s characters)") % {"n": f"{found.payload_length:,}"}
    return write_line(Redactor().json("payload", found.payload), at_most=PREVIEW)


def _next(log_page: LogPage, after: int | None) -> int:
    """The last offset searched. A tail never goes back, not even where the log has been replaced."""
    return max(log_page.high, after or 0)


def _tip(topic: Topic) -> int:
    """The busiest topic is more likely what you want to see than the first by name."""
    counter = getattr(topic, "counter", None)  # missing until the first event is numbered
    return counter.next_offset if counter else 0
