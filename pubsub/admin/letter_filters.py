"""How a list of dead letters is narrowed. No filter reads the letters to learn what there is to choose from."""

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import admin
from django.db import connections, router
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from pubsub.db.sql import load
from pubsub.dead_letters.filter import LetterFilter
from pubsub.models import DeadLetter, Subscription
from pubsub.payloads.visible import visible

CHOICES_SHOWN = 30
"""Of types, exceptions and hosts; what is beyond is found by the search box, or by the address."""

AGES: dict[str, tuple[str | Promise, dt.timedelta]] = {
    "hour": (_("in the last hour"), dt.timedelta(hours=1)),
    "day": (_("in the last 24 hours"), dt.timedelta(days=1)),
    "week": (_("in the last 7 days"), dt.timedelta(days=7)),
}

SHORT_STATES: dict[str, str | Promise] = {
    DeadLetter.State.DEAD: _("dead"),
    DeadLetter.State.RETRYING: _("retrying"),
    DeadLetter.State.PARKED: _("parked"),
    DeadLetter.State.RESOLVED: _("resolved"),
    DeadLetter.State.DISCARDED: _("discarded"),
}
"""For columns; the filter and the page itself say what each means."""


def letter_filter_of(parameters: Mapping[str, str]) -> LetterFilter:
    """What a list with this address shows."""
    given: dict[str, Any] = {
        name: value
        for name in ("state", "group", "topic", "type", "exception", "key", "host")
        if (value := storable(parameters.get(name, "")))
    }
    if search := storable(parameters.get("q", "")).strip():
        given["search"] = search
    if (age := parameters.get("failed", "")) in AGES:
        given["since"] = timezone.now() - AGES[age][1]
    return LetterFilter(**given)


def storable(text: str) -> str:
    """The text without what PostgreSQL cannot store, and so cannot look for."""
    return text.replace("\x00", "\ufffd")


class LetterListFilter(admin.SimpleListFilter):
    """One of the things that a list can be narrowed by; `letter_filter_of` says what they mean together."""

    def choices_of(self, request: HttpRequest) -> list[tuple[str, str]]:
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        choices = self.choices_of(request)
        chosen = self.value()
        if chosen and chosen not in dict(choices):
            choices.append((chosen, chosen))  # such as a group that has no subscription any more
        return [(value, Truncator(visible(name)).chars(60)) for value, name in choices]

    def has_output(self) -> bool:
        return len(self.lookup_choices) > 1 or bool(self.value())

    def queryset(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> QuerySet[DeadLetter]:
        value = self.value()
        if not value:
            return queryset
        return letter_filter_of({str(self.parameter_name): value}).among(queryset)


class StateFilter(LetterListFilter):
    title, parameter_name = _("state"), "state"

    def choices_of(self, request: HttpRequest) -> list[tuple[str, str]]:
        return [(state, f"{name}: {DeadLetter.State(state).label}") for state, name in SHORT_STATES.items()]


class FailedFilter(LetterListFilter):
    title, parameter_name = _("failed first"), "failed"

    def choices_of(self, request: HttpRequest) -> list[tuple[str, str]]:
        return [(name, str(label)) for name, (label, _age) in AGES.items()]


def _subscriptions(request: HttpRequest) -> list[tuple[str, str]]:
    return _once(
        request,
        "subscriptions",
        lambda: list(Subscription.objects.order_by("group_id", "topic__name").values_list("group_id", "topic__name")),
    )


class GroupFilter(LetterListFilter):
    title, parameter_name = _("group"), "group"

    def choices_of(self, request: HttpRequest) -> list[tuple[str, str]]:
        return [(group, group) for group in dict.fromkeys(group for group, _topic in _subscriptions(request))]


class TopicFilter(LetterListFilter):
    title, parameter_name = _("topic"), "topic"

    def choices_of(self, request: HttpRequest) -> list[tuple[str, str]]:
        return [(topic, topic) for topic in sorted({topic for _group, topic in _subscriptions(request)})]


class ValueFilter(LetterListFilter):
    """Its choices are what an index lists, not what a million rows say."""

    def choices_of(self, request: HttpRequest) -> list[tuple[str, str]]:
        def ask() -> list[tuple[str, str]]:
            with connections[router.db_for_read(DeadLetter)].cursor() as cursor:
                cursor.execute(load("admin/letter_choices"), {"most": CHOICES_SHOWN})
                return list(cursor.fetchall())

        values = _once(request, "values", ask)
        return [(value, value) for kind, value in values if kind == self.parameter_name]


class TypeFilter(ValueFilter):
    title, parameter_name = _("type"), "type"


class ExceptionFilter(ValueFilter):
    title, parameter_name = _("exception"), "exception"


class HostFilter(ValueFilter):
    title, parameter_name = _("host"), "host"


class KeyFilter(LetterListFilter):
    """Shown only once a key is selected: there are too many to list."""

    title, parameter_name = _("key"), "key"

    def choices_of(self, request: HttpRequest) -> list[tuple[str, str]]:
        return []


FILTERS = (
    StateFilter,
    FailedFilter,
    GroupFilter,
    TopicFilter,
    TypeFilter,
    ExceptionFilter,
    HostFilter,
    KeyFilter,
)


def _once(request: HttpRequest, name: str, ask: Callable[[], list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Several filters share the answer of one query."""
    kept: dict[str, list[tuple[str, str]]] = request.__dict__.setdefault("_pubsub_letter_choices", {})
    if name not in kept:
        kept[name] = ask()
    return kept[name]
