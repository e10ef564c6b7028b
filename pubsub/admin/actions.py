"""Replay and discard in the admin: confirmed first, run at once or in batches, then reported."""

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core import signing
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import OperationalError, connections, router, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from pubsub.db.errors import sqlstate
from pubsub.dead_letters import actions
from pubsub.dead_letters.actions import DISCARD, REPLAY, Action, Letter
from pubsub.dead_letters.filter import LetterFilter
from pubsub.errors import LettersInUse, PubSubError
from pubsub.models import DeadLetter

from .formats import number
from .letter_filters import SHORT_STATES, letter_filter_of

AT_ONCE = 500
"""Up to so many dead letters are changed in one transaction and listed with their results; more take batches."""

SECONDS_OF_WORK = 2.0
"""After so long the page shows the progress, and continues."""

COUNTING_MS = 20_000
"""How long counting may take before a change is confirmed."""

SALT = "pubsub.dead-letters"
OLDEST_PAGE_S = 24 * 3600

if TYPE_CHECKING:
    Admin = admin.ModelAdmin[DeadLetter]
else:
    Admin = admin.ModelAdmin

TITLES: dict[str, str | Promise] = {
    "replay": gettext_lazy("Replay dead letters"),
    "discard": gettext_lazy("Discard dead letters"),
}
NOTHING: dict[str, str | Promise] = {
    "replay": gettext_lazy(
        "Nothing to replay: none of the selected events is waiting for an operator, or for a later attempt."
    ),
    "discard": gettext_lazy("Nothing to discard: all selected events are already resolved or discarded."),
}
DONE: dict[str, str | Promise] = {
    "replay": gettext_lazy("%(changed)s will be handled again as soon as a consumer of the group runs."),
    "discard": gettext_lazy("%(changed)s discarded. The group will not receive them again."),
}
HISTORY: dict[str, str | Promise] = {"replay": gettext_lazy("Replayed."), "discard": gettext_lazy("Discarded.")}


@dataclass(kw_only=True)
class Progress:
    """What you confirmed and how far it has come; the page carries it, signed, from one request to the next."""

    action: str
    filter: dict[str, Any]
    events: int
    """How many were announced."""
    reason: str = ""
    after: int = 0
    done: int = 0
    transactions: int = 0
    back_to: int | None = None
    """The dead letter on whose page the action was pressed."""
    query: str = ""
    """The list's filter."""

    def sign(self) -> str:
        return signing.dumps(self.__dict__, salt=SALT, compress=True)

    @classmethod
    def of(cls, request: HttpRequest) -> "Progress":
        try:
            return cls(**signing.loads(request.POST.get("progress", ""), salt=SALT, max_age=OLDEST_PAGE_S))
        except (signing.BadSignature, TypeError) as error:
            raise SuspiciousOperation("The page was changed, or is too old.") from error

    @property
    def letter_filter(self) -> LetterFilter:
        return LetterFilter.from_described(self.filter)


def ask_about_selection(action: Action, model_admin: Admin, request: HttpRequest) -> HttpResponse | None:
    """The admin action: some letters of a list, or all that its filter shows."""
    if request.POST.get("select_across") == "1":
        return _ask(action, model_admin, request, letter_filter_of(request.GET))
    return _ask(action, model_admin, request, LetterFilter(ids=_whole_numbers(request, ACTION_CHECKBOX_NAME)))


def action_view(model_admin: Admin, request: HttpRequest, action: str) -> HttpResponse:
    """Asks from a letter's own page, or runs what was confirmed, or continues it."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    ids = _whole_numbers(request, "letter")
    letter = model_admin.get_queryset(request).filter(pk__in=ids[:1]).first()
    if not getattr(model_admin, f"has_{action}_permission")(request, letter):
        raise PermissionDenied
    if request.POST.get("progress"):
        return _run(actions.ACTIONS[action], model_admin, request)
    letter_filter = LetterFilter(ids=ids[:1])
    if request.POST.get("whole") and letter:
        letter_filter = LetterFilter(transaction=letter.transaction_id, group=letter.group_id)
    back_to = ids[0] if ids else None
    response = _ask(actions.ACTIONS[action], model_admin, request, letter_filter, back_to)
    return response or HttpResponseRedirect(_address(model_admin, back_to))


def _ask(
    action: Action, model_admin: Admin, request: HttpRequest, letter_filter: LetterFilter, back_to: int | None = None
) -> HttpResponse | None:
    using = router.db_for_write(DeadLetter)
    try:
        counts = _count(action, letter_filter, using, model_admin.get_queryset(request))
    except PubSubError as error:
        model_admin.message_user(request, str(error), messages.ERROR)
        return None
    if not counts:
        model_admin.message_user(request, str(NOTHING[action.name]), messages.WARNING)
        return None
    # What fails from now on is not on the page, and so is not confirmed.
    letter_filter = replace(letter_filter, up_to=counts[0].last_id)
    events, transactions = sum(it.events for it in counts), sum(it.transactions for it in counts)
    names = actions.topic_names({it.topic_id for it in counts}, using=using)
    progress = Progress(action=action.name, filter=letter_filter.described, events=events, back_to=back_to)
    if back_to is None:
        progress.query = request.META.get("QUERY_STRING", "")
    return _page(
        model_admin,
        request,
        "confirm",
        action,
        total=_counted(events, transactions),
        groups=[
            {"name": it.group, "topic": names[it.topic_id], "counted": _counted(it.events, it.transactions)}
            for it in counts
        ],
        unaffected=max(0, len(letter_filter.ids) - counts[0].chosen) if letter_filter.ids else 0,
        in_batches=events > AT_ONCE,
        filter=[(name, value) for name, value in letter_filter.described.items() if name not in ("ids", "up_to")],
        progress=progress.sign(),
        back=_address(model_admin, back_to, progress.query),
    )


def _count(
    action: Action, letter_filter: LetterFilter, using: str, visible: QuerySet[DeadLetter]
) -> list[actions.Count]:
    try:
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{COUNTING_MS}ms"])
            counts = actions.count(action, letter_filter, using=using, visible=visible)
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", ["0"])
            return counts
    except OperationalError as error:
        if sqlstate(error) != "57014":
            raise
        raise PubSubError(
            _("Too many to count in %(n)s seconds. Narrow the filter, or use pubsub_dead_letters.")
            % {"n": number(COUNTING_MS // 1000)}
        ) from error


def _run(action: Action, model_admin: Admin, request: HttpRequest) -> HttpResponse:
    progress = Progress.of(request)
    if progress.action != action.name:
        raise SuspiciousOperation("The page was for another action.")
    progress.reason = request.POST.get("reason", progress.reason).strip().replace("\x00", "")[:2000]
    using = router.db_for_write(DeadLetter)
    run = _run_at_once if progress.events <= AT_ONCE else _run_for_a_while
    try:
        return run(action, model_admin, request, progress, using)
    except LettersInUse as error:
        if progress.done:
            model_admin.message_user(request, _progress_so_far(progress), messages.WARNING)
        model_admin.message_user(request, str(error), messages.ERROR)
        return HttpResponseRedirect(_address(model_admin, progress.back_to, progress.query))


def _run_at_once(
    action: Action, model_admin: Admin, request: HttpRequest, progress: Progress, using: str
) -> HttpResponse:
    names: dict[int, str] = {}

    def log(changed: list[Letter]) -> None:
        names.update(actions.topic_names({letter.topic_id for letter in changed}, using=using))
        LogEntry.objects.bulk_create(
            _log_entry(action, request, progress, f"{it.group} {names[it.topic_id]}:{it.offset}", it.id)
            for it in changed
        )

    letter_filter = progress.letter_filter
    visible = model_admin.get_queryset(request)
    changed = actions.apply(
        action,
        letter_filter,
        using=using,
        actor=request.user.get_username(),
        reason=progress.reason,
        visible=visible,
        log=log,
    )
    transactions = len({(it.group, it.topic_id, it.transaction_id) for it in changed})
    level, text = _report(action, len(changed), transactions, progress.events)
    if progress.back_to is not None:
        model_admin.message_user(request, text, level)
        return HttpResponseRedirect(_address(model_admin, progress.back_to, progress.query))
    others = _not_changed(letter_filter, changed, visible.using(using))
    return _page(
        model_admin,
        request,
        "result",
        action,
        summary=text,
        is_warning=level == messages.WARNING,
        changed=[(letter, names[letter.topic_id], SHORT_STATES[letter.state]) for letter in changed],
        becomes=SHORT_STATES[action.becomes],
        others=[(letter, SHORT_STATES[letter.state]) for letter in others],
        back=_address(model_admin, None, progress.query),
    )


def _not_changed(letter_filter: LetterFilter, changed: list[Letter], visible: QuerySet[DeadLetter]) -> list[DeadLetter]:
    if letter_filter.ids is None:
        return []
    rest = set(letter_filter.ids) - {letter.id for letter in changed}
    found = visible.filter(pk__in=rest).select_related("topic").order_by("pk")
    return list(found.only("group_id", "c_offset", "state", "updated_at", "topic__name"))


def _run_for_a_while(
    action: Action, model_admin: Admin, request: HttpRequest, progress: Progress, using: str
) -> HttpResponse:
    def log(changed: list[Letter]) -> None:
        if changed:
            count = ngettext("%(n)s dead letter", "%(n)s dead letters", len(changed)) % {"n": number(len(changed))}
            _log_entry(action, request, progress, count, None).save()

    started = time.monotonic()
    batches = actions.apply_in_batches(
        action,
        progress.letter_filter,
        using=using,
        actor=request.user.get_username(),
        reason=progress.reason,
        after=progress.after,
        visible=model_admin.get_queryset(request),
        log=log,
    )
    is_done = True
    for changed in batches:
        progress.done += len(changed)
        progress.transactions += len({(it.group, it.topic_id, it.transaction_id) for it in changed})
        progress.after = max((it.id for it in changed if it.is_chosen), default=progress.after)
        if time.monotonic() - started > SECONDS_OF_WORK:
            is_done = False
            break
    context: dict[str, Any] = {"back": _address(model_admin, None, progress.query)}
    if is_done:
        level, text = _report(action, progress.done, progress.transactions, progress.events)
        return _page(
            model_admin, request, "result", action, summary=text, is_warning=level == messages.WARNING, **context
        )
    return _page(
        model_admin,
        request,
        "progress",
        action,
        summary=_progress_so_far(progress),
        done=progress.done,
        events=progress.events,
        progress=progress.sign(),
        **context,
    )


def _progress_so_far(progress: Progress) -> str:
    return _("%(done)s of %(events)s events done.") % {
        "done": number(progress.done),
        "events": number(progress.events),
    }


def _log_entry(action: Action, request: HttpRequest, progress: Progress, what: str, pk: int | None) -> LogEntry:
    return LogEntry(
        user=request.user,  # type: ignore[misc]
        content_type_id=ContentType.objects.get_for_model(DeadLetter).pk,
        object_id=None if pk is None else str(pk),
        object_repr=what[:200],
        action_flag=CHANGE,
        change_message=f"{HISTORY[action.name]} {progress.reason}".strip(),
    )


def _report(action: Action, changed: int, transactions: int, announced: int) -> tuple[int, str]:
    if changed >= announced:
        return messages.SUCCESS, str(DONE[action.name] % {"changed": _counted(changed, transactions)})
    part = {"changed": number(changed), "announced": number(announced)}
    text = ngettext(
        "%(changed)s of %(announced)s event: already handled by someone else.",
        "%(changed)s of %(announced)s events; the others were already handled by someone else.",
        announced,
    )
    if not changed:
        text = _("%(changed)s of %(announced)s: already handled by someone else; nothing was left to change.")
    return messages.WARNING, f"{TITLES[action.name]}: {text % part}"


def _counted(events: int, transactions: int) -> str:
    return _("%(events)s of %(transactions)s") % {
        "events": ngettext("%(n)s event", "%(n)s events", events) % {"n": number(events)},
        "transactions": ngettext("%(n)s transaction", "%(n)s transactions", transactions) % {"n": number(transactions)},
    }


def _page(model_admin: Admin, request: HttpRequest, name: str, action: Action, **context: Any) -> HttpResponse:
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(
        request,
        f"admin/pubsub/deadletter/{name}.html",
        {
            **model_admin.admin_site.each_context(request),
            "title": TITLES[action.name],
            "opts": DeadLetter._meta,
            "media": model_admin.media,
            "action": action,
            **context,
        },
    )


def _address(model_admin: Admin, letter: int | None, query: str = "") -> str:
    site = model_admin.admin_site.name
    if letter is None:
        address = reverse("admin:pubsub_deadletter_changelist", current_app=site)
        return f"{address}?{query}" if query else address
    return reverse("admin:pubsub_deadletter_change", args=[letter], current_app=site)


def _whole_numbers(request: HttpRequest, name: str) -> tuple[int, ...]:
    return tuple(
        int(text) for text in request.POST.getlist(name) if text.isascii() and text.isdigit() and len(text) < 19
    )


__all__ = ["DISCARD", "REPLAY", "action_view", "ask_about_selection"]
