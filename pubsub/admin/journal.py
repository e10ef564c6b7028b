"""The journal: what operators did and what was decided automatically. Read here, never written."""

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from pubsub.models import OperatorEvent

from .page import Pages
from .paging import KeysetPages
from .showing import NOTHING, pretty_json


@admin.register(OperatorEvent)
class OperatorEventAdmin(KeysetPages, Pages):
    list_display = ("happened_at", "actor", "action", "topic", "group_id", "reason")
    nothing_yet = _("Nothing has been done yet. What operators do, and what is decided automatically, is told here.")
    search_fields = ("=topic", "=group_id", "=actor")
    search_help_text = _("Finds a topic, a group or a name, each exactly as it is.")
    fields = ("happened_at", "actor", "action", "topic", "group_id", "reason", "before_shown", "after_shown")

    @admin.display(description=_("before"))
    def before_shown(self, event: OperatorEvent) -> str:
        return NOTHING if event.before is None else pretty_json(event.before)

    @admin.display(description=_("after"))
    def after_shown(self, event: OperatorEvent) -> str:
        return NOTHING if event.after is None else pretty_json(event.after)
