"""The audit log: what operators did and what was decided automatically. Read here, never written."""

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from pubsub.models import OperatorEvent
from pubsub.payloads.visible import visible

from .formats import NOTHING, pretty_json
from .page import Pages
from .paging import KeysetPages


@admin.register(OperatorEvent)
class OperatorEventAdmin(KeysetPages, Pages):
    list_display = ("happened_at", "actor", "action", "topic", "group_id", "reason_shown")
    nothing_yet = _("Nothing yet. Operators’ actions and automatic decisions are recorded here.")
    search_fields = ("=topic", "=group_id", "=actor")
    search_help_text = _("Searches for an exact topic, group or user name.")
    fields = (
        "happened_at",
        "actor",
        "action",
        "topic",
        "group_id",
        "reason_shown",
        "before_shown",
        "after_shown",
    )

    @admin.display(description=_("why"))
    def reason_shown(self, event: OperatorEvent) -> str:
        return visible(event.reason) or NOTHING

    @admin.display(description=_("before"))
    def before_shown(self, event: OperatorEvent) -> str:
        return NOTHING if event.before is None else pretty_json(event.before)

    @admin.display(description=_("after"))
    def after_shown(self, event: OperatorEvent) -> str:
        return NOTHING if event.after is None else pretty_json(event.after)
