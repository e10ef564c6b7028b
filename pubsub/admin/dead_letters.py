"""Dead letters: found, inspected, replayed, repaired or discarded. They are never written by hand."""

from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.text import Truncator
from django.utils.timezone import localtime
from django.utils.translation import gettext_lazy as _

from pubsub.dead_letters.filter import LetterFilter
from pubsub.models import DeadLetter
from pubsub.payloads.visible import visible

from .actions import DISCARD, REPLAY, action_view, ask_about_selection
from .formats import NOTHING, pre
from .letter_editor import edit_view, json_view
from .letter_filters import FILTERS, SHORT_STATES, storable
from .letter_page import LetterPage
from .paging import KeysetPages

LARGE = ("payload", "metadata", "original_payload", "traceback", "exception_message")
"""Not read for a list, and JSON never through the model: Python cannot decode all that PostgreSQL stores."""


@admin.register(DeadLetter)
class DeadLetterAdmin(KeysetPages, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = (
        "event_shown",
        "state_shown",
        "group_shown",
        "key_shown",
        "failed_shown",
    )
    list_filter = FILTERS
    list_select_related = ("topic",)
    nothing_yet = _(
        "Nothing has failed. Events that a handler cannot handle are set aside here, for you to inspect and replay."
    )
    search_fields = ("event_id",)  # what get_search_results() looks for; its being there shows the search box
    search_help_text = _("Searches for an exact event id, transaction, key or host.")
    actions = ("replay_selected", "discard_selected")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    "state",
                    "group_id",
                    "topic",
                    "partition_id",
                    "c_offset",
                    "type_shown",
                    "key_in_full",
                    "event_id",
                )
            },
        ),
        (
            _("Failure"),
            {
                "fields": (
                    "handler",
                    "exception_class",
                    "message_shown",
                    "attempts",
                    "next_attempt_at",
                    "created_at",
                    "updated_at",
                    "traceback_shown",
                    "attempts_shown",
                )
            },
        ),
        (
            _("Event"),
            {
                "fields": (
                    "payload_shown",
                    "original_shown",
                    "metadata_shown",
                    "host_shown",
                    "user_shown",
                    "published_at",
                )
            },
        ),
        (_("Related events"), {"fields": ("transaction_id", "siblings", "parked")}),
        (_("History"), {"fields": ("operator_actions",)}),
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return False

    def has_replay_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return self.has_view_permission(request, obj) and request.user.has_perm("pubsub.replay_deadletter")

    def has_discard_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return self.has_view_permission(request, obj) and request.user.has_perm("pubsub.discard_deadletter")

    def has_view_payload_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return self.has_view_permission(request, obj) and request.user.has_perm("pubsub.view_payload_deadletter")

    def has_edit_payload_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        may_edit = request.user.has_perm("pubsub.edit_payload_deadletter")
        return may_edit and self.has_view_payload_permission(request, obj)

    @admin.action(description=_("Replay the selected dead letters"), permissions=["replay"])
    def replay_selected(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponse | None:
        return ask_about_selection(REPLAY, self, request)

    @admin.action(description=_("Discard the selected dead letters"), permissions=["discard"])
    def discard_selected(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponse | None:
        return ask_about_selection(DISCARD, self, request)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path("replay/", view(partial(action_view, self)), {"action": "replay"}, "pubsub_deadletter_replay"),
            path("discard/", view(partial(action_view, self)), {"action": "discard"}, "pubsub_deadletter_discard"),
            path("<int:pk>/edit/", view(partial(edit_view, self)), name="pubsub_deadletter_edit"),
            path("<int:pk>/<slug:name>.json", view(partial(json_view, self)), name="pubsub_deadletter_json"),
        ]
        return [*own, *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[DeadLetter]:
        queryset: QuerySet[DeadLetter] = super().get_queryset(request)
        return queryset.defer(*LARGE)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """What narrows the list must narrow the actions that apply to all of it, so nothing else is allowed."""
        return lookup in {it.parameter_name for it in FILTERS}

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[DeadLetter], search_term: str
    ) -> tuple[QuerySet[DeadLetter], bool]:
        term = storable(search_term).strip()
        return (LetterFilter(search=term).among(queryset) if term else queryset), False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> DeadLetter | None:
        letter: DeadLetter | None = super().get_object(request, object_id, from_field or None)
        if letter is not None:
            may_see = self.has_view_payload_permission(request, letter)
            letter.page = LetterPage(letter, may_see, self.get_queryset(request))  # type: ignore[attr-defined]
        return letter

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        letter = self.get_object(request, object_id)
        actions = {
            "replay_states": REPLAY.states if self.has_replay_permission(request, letter) else (),
            "discard_states": DISCARD.states if self.has_discard_permission(request, letter) else (),
            "edit_states": (DeadLetter.State.DEAD,) if self.has_edit_payload_permission(request, letter) else (),
        }
        return super().change_view(request, object_id, form_url, {**actions, **(extra_context or {})})

    @admin.display(description=_("event"))
    def event_shown(self, letter: DeadLetter) -> str:
        name = f"{letter.topic.name}:{letter.c_offset}"
        return format_html('{}<span class="pubsub-quiet">{}</span>', name, _short(letter.type)) if letter.type else name

    @admin.display(description=_("state"))
    def state_shown(self, letter: DeadLetter) -> str:
        return format_html(
            '<span class="pubsub-state pubsub-state-{}">{}</span><span class="pubsub-quiet" title="{}">{}</span>',
            letter.state,
            SHORT_STATES[letter.state],
            letter.exception_class,
            _short(letter.exception_class.rpartition(".")[2]),
        )

    @admin.display(description=_("group"))
    def group_shown(self, letter: DeadLetter) -> str:
        return _short(letter.group_id)

    @admin.display(description=_("key"))
    def key_shown(self, letter: DeadLetter) -> str | None:
        return letter.key and _short(letter.key)

    @admin.display(description=_("failed first"))
    def failed_shown(self, letter: DeadLetter) -> str:
        return date_format(localtime(letter.created_at), "SHORT_DATETIME_FORMAT")

    @admin.display(description=_("type"))
    def type_shown(self, letter: DeadLetter) -> str:
        return visible(letter.type) or NOTHING

    @admin.display(description=_("key"))
    def key_in_full(self, letter: DeadLetter) -> str:
        return visible(letter.key or "") or NOTHING

    @admin.display(description=_("host"))
    def host_shown(self, letter: DeadLetter) -> str:
        return visible(letter.host_id or "") or NOTHING

    @admin.display(description=_("user"))
    def user_shown(self, letter: DeadLetter) -> str:
        return visible(letter.user_id or "") or NOTHING

    @admin.display(description=_("message"))
    def message_shown(self, letter: DeadLetter) -> str:
        return pre(_page(letter).text(letter.exception_message)) if letter.exception_message else NOTHING

    @admin.display(description=_("traceback"))
    def traceback_shown(self, letter: DeadLetter) -> str:
        return _page(letter).traceback() or NOTHING

    @admin.display(description=_("attempts over time"))
    def attempts_shown(self, letter: DeadLetter) -> str:
        return _page(letter).attempts() or NOTHING

    @admin.display(description=_("payload"))
    def payload_shown(self, letter: DeadLetter) -> str:
        return _page(letter).json("payload")

    @admin.display(description=_("original payload"))
    def original_shown(self, letter: DeadLetter) -> str:
        page = _page(letter)
        return page.json("original_payload") if page.is_edited else str(_("Unchanged."))

    @admin.display(description=_("metadata"))
    def metadata_shown(self, letter: DeadLetter) -> str:
        return _page(letter).json("metadata")

    @admin.display(description=_("failed in the same transaction"))
    def siblings(self, letter: DeadLetter) -> str:
        return _page(letter).siblings() or NOTHING

    @admin.display(description=_("parked behind it"))
    def parked(self, letter: DeadLetter) -> str:
        return _page(letter).parked() or NOTHING

    @admin.display(description=_("operator actions"))
    def operator_actions(self, letter: DeadLetter) -> str:
        return _page(letter).operator_actions() or NOTHING


def _page(letter: DeadLetter) -> LetterPage:
    page: LetterPage = letter.page  # type: ignore[attr-defined]
    return page


def _short(text: str) -> str:
    return Truncator(visible(text)).chars(32)
