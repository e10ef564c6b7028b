"""Dead letters: found, looked into, replayed or discarded. Nobody edits them."""

import uuid
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from ..models import DeadLetter, Subscription
from .showing import BoundedPaginator, pre, pretty_json
from .verbs import DISCARD, REPLAY, confirm_then_run

SIBLINGS_SHOWN = 50


SHORT_STATES: dict[str, str | Promise] = {
    DeadLetter.State.RETRYING: _("retrying"),
    DeadLetter.State.DEAD: _("dead"),
    DeadLetter.State.RESOLVED: _("resolved"),
    DeadLetter.State.DISCARDED: _("discarded"),
}
"""For columns; the filter and the page itself say what each means."""


def short_state(letter: DeadLetter) -> str:
    return str(SHORT_STATES.get(letter.state, letter.state))


class GroupFilter(admin.SimpleListFilter):
    """The groups come from the subscriptions: asking the dead letters themselves would read them all."""

    title = _("group")
    parameter_name = "group"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        groups = set(Subscription.objects.order_by().values_list("group_id", flat=True).distinct())
        if chosen := self.value():
            groups.add(chosen)  # one that has no subscription any more
        return [(group, group) for group in sorted(groups)]

    def has_output(self) -> bool:
        return bool(self.lookup_choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> QuerySet[DeadLetter]:
        return queryset.filter(group_id=self.value()) if self.value() else queryset


@admin.register(DeadLetter)
class DeadLetterAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = (
        "place",
        "state_shown",
        "exception_shown",
        "attempts",
        "created_at",
        "group_id",
        "type_shown",
        "key_shown",
    )
    list_filter = ("state", GroupFilter, "topic")
    list_select_related = ("topic",)
    ordering = ("-id",)
    sortable_by = ()
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("event_id",)  # what get_search_results() looks for; its being there shows the search box
    search_help_text = _("Finds an event id, a transaction or a key, each exactly as it is.")
    actions = ("replay_selected", "discard_selected")
    fieldsets = (
        (None, {"fields": ("state", "group_id", "topic", "partition_id", "c_offset", "type", "key", "event_id")}),
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
                )
            },
        ),
        (_("Event"), {"fields": ("payload_shown", "metadata_shown", "host_id", "user_id", "published_at")}),
        (_("Transaction"), {"fields": ("transaction_id", "siblings")}),
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return False

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("pubsub.replay_deadletter")

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("pubsub.discard_deadletter")

    @admin.action(description=_("Replay the selected dead letters"), permissions=["replay"])
    def replay_selected(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponse | None:
        return confirm_then_run(REPLAY, self, request, queryset)

    @admin.action(description=_("Discard the selected dead letters"), permissions=["discard"])
    def discard_selected(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponse | None:
        return confirm_then_run(DISCARD, self, request, queryset)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[DeadLetter], search_term: str
    ) -> tuple[QuerySet[DeadLetter], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        wanted = Q(key=term)
        try:
            identifier = uuid.UUID(term)
        except ValueError:
            pass
        else:
            wanted |= Q(event_id=identifier) | Q(transaction_id=identifier)
        return queryset.filter(wanted), False

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        verbs = {
            "replay_states": REPLAY.states if self.has_replay_permission(request) else (),
            "discard_states": DISCARD.states if self.has_discard_permission(request) else (),
        }
        return super().change_view(request, object_id, form_url, {**verbs, **(extra_context or {})})

    @admin.display(description=_("event"))
    def place(self, letter: DeadLetter) -> str:
        return f"{letter.topic.name}:{letter.c_offset}"

    @admin.display(description=_("state"))
    def state_shown(self, letter: DeadLetter) -> str:
        return short_state(letter)

    @admin.display(description=_("type"))
    def type_shown(self, letter: DeadLetter) -> str:
        return Truncator(letter.type).chars(40)

    @admin.display(description=_("key"))
    def key_shown(self, letter: DeadLetter) -> str | None:
        return letter.key and Truncator(letter.key).chars(40)

    @admin.display(description=_("exception"))
    def exception_shown(self, letter: DeadLetter) -> str:
        name = letter.exception_class
        return format_html('<span title="{}">{}</span>', name, Truncator(name.rpartition(".")[2]).chars(40))

    @admin.display(description=_("message"))
    def message_shown(self, letter: DeadLetter) -> str | None:
        return pre(letter.exception_message) if letter.exception_message else None

    @admin.display(description=_("traceback"))
    def traceback_shown(self, letter: DeadLetter) -> str | None:
        return pre(letter.traceback) if letter.traceback else None

    @admin.display(description=_("payload"))
    def payload_shown(self, letter: DeadLetter) -> str:
        return pretty_json(letter.payload)

    @admin.display(description=_("metadata"))
    def metadata_shown(self, letter: DeadLetter) -> str:
        return pretty_json(letter.metadata)

    @admin.display(description=_("failed with it"))
    def siblings(self, letter: DeadLetter) -> str | None:
        same = DeadLetter.objects.filter(group_id=letter.group_id, transaction_id=letter.transaction_id)
        others: list[DeadLetter] = list(
            same.exclude(pk=letter.pk).select_related("topic").order_by("pk")[: SIBLINGS_SHOWN + 1]
        )
        if not others:
            return None
        return render_to_string(
            "admin/pubsub/deadletter/siblings.html",
            {
                "siblings": [(other, short_state(other)) for other in others[:SIBLINGS_SHOWN]],
                "has_more": len(others) > SIBLINGS_SHOWN,
                "letter": letter,
            },
        )
