"""Replay and discard: asked first, done as one, reported as it turned out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import OperationalError, connections, router, transaction
from django.db.models import Count, Exists, Max, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from .. import dead_letters
from ..failures import is_transient
from ..models import DeadLetter
from .showing import number

LOCK_TIMEOUT_S = 5
"""How long a press waits for a worker that is trying the same events at this moment."""

LOGGED_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True)
class Verb:
    """Something that can be done with dead letters."""

    name: str
    action: str
    """The action's name in the list's menu."""
    states: tuple[str, ...]
    """What it applies to; events in any other state stay as they are."""
    run: Callable[[list[int], str], int]
    title: str | Promise
    done: str | Promise
    nothing: str | Promise
    history: str | Promise


REPLAY = Verb(
    name="replay",
    action="replay_selected",
    states=(DeadLetter.State.DEAD,),
    run=dead_letters.replay,
    title=gettext_lazy("Replay dead letters"),
    done=gettext_lazy("%(changed)s will be handled again, as soon as a consumer of the group runs."),
    nothing=gettext_lazy("There is nothing to replay: none of the chosen events waits for somebody to act."),
    history=gettext_lazy("Replayed."),
)
DISCARD = Verb(
    name="discard",
    action="discard_selected",
    states=(DeadLetter.State.DEAD, DeadLetter.State.RETRYING),
    run=dead_letters.discard,
    title=gettext_lazy("Discard dead letters"),
    done=gettext_lazy("%(changed)s discarded: the group won’t be given them again."),
    nothing=gettext_lazy("There is nothing to discard: all of the chosen events are resolved or discarded already."),
    history=gettext_lazy("Discarded."),
)


def confirm_then_run(
    verb: Verb,
    model_admin: "admin.ModelAdmin[DeadLetter]",
    request: HttpRequest,
    chosen: QuerySet[DeadLetter],
) -> HttpResponse | None:
    """An admin action: the first POST asks, the second one, from the page that asked, does it."""
    # What fails in between was not on the page, and so was not agreed to.
    up_to = _whole_number(request, "up_to")
    if up_to is not None:
        chosen = chosen.filter(pk__lte=up_to)
    if request.POST.get("confirmed"):
        _run(verb, model_admin, request, chosen)
        return _back(model_admin, request)
    return _ask(verb, model_admin, request, chosen)


def _affected(verb: Verb, chosen: QuerySet[DeadLetter]) -> QuerySet[DeadLetter]:
    """What the verb would change: the chosen with the rest of their transactions, as `replay.sql` finds them."""
    unit = ("group_id", "topic_id", "partition_id", "transaction_id")
    same = chosen.order_by().filter(**{column: OuterRef(column) for column in unit})
    return DeadLetter.objects.using(chosen.db).filter(Exists(same), state__in=verb.states)


def _ask(
    verb: Verb, model_admin: "admin.ModelAdmin[DeadLetter]", request: HttpRequest, chosen: QuerySet[DeadLetter]
) -> HttpResponse | None:
    affected = _affected(verb, chosen)
    total = affected.aggregate(events=Count("pk"), transactions=Count("transaction_id", distinct=True))
    if not total["events"]:
        model_admin.message_user(request, str(verb.nothing), messages.WARNING)
        return _back(model_admin, request)
    context: dict[str, Any] = {
        **model_admin.admin_site.each_context(request),
        "title": verb.title,
        "opts": DeadLetter._meta,
        "media": model_admin.media,
        "verb": verb,
        "events": total["events"],
        "total": _counted(**total),
        "groups": [
            {"name": group["group_id"], "counted": _counted(group["events"], group["transactions"])}
            for group in affected.order_by("group_id")
            .values("group_id")
            .annotate(events=Count("pk"), transactions=Count("transaction_id", distinct=True))
        ],
        "unaffected": chosen.exclude(state__in=verb.states).count(),
        "up_to": chosen.aggregate(last=Max("pk"))["last"],
        "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
        "select_across": request.POST.get("select_across", "0"),
        "from_letter": _whole_number(request, "from_letter"),
        "checkbox_name": ACTION_CHECKBOX_NAME,
    }
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(request, "admin/pubsub/deadletter/confirm.html", context)


def _run(
    verb: Verb, model_admin: "admin.ModelAdmin[DeadLetter]", request: HttpRequest, chosen: QuerySet[DeadLetter]
) -> None:
    using = router.db_for_write(DeadLetter)
    try:
        with transaction.atomic(using=using):
            with connections[using].cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")
            # Locked first, so that the history names what this press changed and not what somebody else did.
            letters = list(
                _affected(verb, chosen.using(using))
                .only("pk", "group_id", "topic_id", "c_offset", "transaction_id")
                .select_for_update(of=("self",))
                .order_by("pk")
            )
            changed = verb.run([letter.pk for letter in letters], using) if letters else 0
            for start in range(0, len(letters), LOGGED_AT_ONCE):
                LogEntry.objects.log_actions(
                    request.user.pk,  # type: ignore[arg-type]
                    letters[start : start + LOGGED_AT_ONCE],
                    CHANGE,
                    str(verb.history),
                )
    except OperationalError as error:
        if not is_transient(error):
            raise
        model_admin.message_user(
            request,
            _("Nothing was changed: a worker is trying some of these events at this moment. Try again shortly."),
            messages.ERROR,
        )
        return
    transactions = len({letter.transaction_id for letter in letters})
    _report(verb, model_admin, request, changed, transactions)


def _report(
    verb: Verb, model_admin: "admin.ModelAdmin[DeadLetter]", request: HttpRequest, changed: int, transactions: int
) -> None:
    announced = _whole_number(request, "announced") or changed
    if changed >= announced:
        model_admin.message_user(request, verb.done % {"changed": _counted(changed, transactions)}, messages.SUCCESS)
        return
    part = {"changed": number(changed), "announced": number(announced)}
    text = ngettext(
        "%(changed)s of %(announced)s event: somebody was faster.",
        "%(changed)s of %(announced)s events: somebody was faster with the others.",
        announced,
    )
    if not changed:
        text = _("%(changed)s of %(announced)s, somebody was faster: nothing was left to change.")
    model_admin.message_user(request, f"{verb.title}: {text % part}", messages.WARNING)


def _counted(events: int, transactions: int) -> str:
    return _("%(events)s of %(transactions)s") % {
        "events": ngettext("%(n)s event", "%(n)s events", events) % {"n": number(events)},
        "transactions": ngettext("%(n)s transaction", "%(n)s transactions", transactions) % {"n": number(transactions)},
    }


def _back(model_admin: "admin.ModelAdmin[DeadLetter]", request: HttpRequest) -> HttpResponse | None:
    """To the event's own page if the verb was pressed there; else the admin goes back to the list, filters and all."""
    letter = _whole_number(request, "from_letter")
    if letter is None:
        return None
    site = model_admin.admin_site.name
    return HttpResponseRedirect(reverse("admin:pubsub_deadletter_change", args=[letter], current_app=site))


def _whole_number(request: HttpRequest, name: str) -> int | None:
    text = request.POST.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
