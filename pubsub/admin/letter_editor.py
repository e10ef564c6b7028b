"""Edit and replay: another payload for one dead letter, reviewed before it is saved."""

import difflib
import hashlib
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import router
from django.db.models import TextField
from django.db.models.functions import Cast
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from pubsub.dead_letters.edit import as_stored, edit_and_replay, edit_payload
from pubsub.errors import PubSubError
from pubsub.models import DeadLetter
from pubsub.payloads.decode import decode
from pubsub.payloads.redact import Redactor
from pubsub.payloads.write import write_json

from .letter_page import LetterPage
from .page import plain_text

if TYPE_CHECKING:
    Admin = admin.ModelAdmin[DeadLetter]
else:
    Admin = admin.ModelAdmin

LARGEST_EDITED = 500_000
"""Characters that a text field of a browser still handles well."""

LINES_ROUND_A_CHANGE = 3

MOST_COMPARED = 2000
"""Lines between the first and the last difference."""


class TooLongToCompare(Exception):
    """There are more lines between the first and the last difference than can be compared in a moment."""


def edit_view(model_admin: Admin, request: HttpRequest, pk: int) -> HttpResponse:
    using = router.db_for_write(DeadLetter)
    letter = model_admin.get_queryset(request).using(using).select_related("topic").filter(pk=pk).first()
    if not model_admin.has_edit_payload_permission(request, letter):  # type: ignore[attr-defined]
        raise PermissionDenied
    if letter is None:
        raise Http404
    back = reverse("admin:pubsub_deadletter_change", args=[pk], current_app=model_admin.admin_site.name)
    text = DeadLetter.objects.using(using).values_list(Cast("payload", TextField()), flat=True).get(pk=pk)
    if why := _why_not(letter, text):
        model_admin.message_user(request, why, messages.WARNING)
        return HttpResponseRedirect(back)

    before = write_json(decode(text))
    context: dict[str, Any] = {
        "text": before,
        "seen": hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
        "reason": "",
        "back": back,
        "letter": letter,
        "may_replay": model_admin.has_replay_permission(request, letter),  # type: ignore[attr-defined]
    }
    if request.method == "POST":
        context |= {name: request.POST.get(name, "").replace("\r\n", "\n") for name in ("text", "seen", "reason")}
        try:
            after = as_stored(context["text"], using=using)
            if "store" in request.POST or "replay" in request.POST:
                return _store(model_admin, request, letter, context, using)
            context["difference"] = difference(before, write_json(decode(after)))
            context["is_same"] = not context["difference"]
        except TooLongToCompare:
            context["is_too_long"] = True
        except PubSubError as error:
            context["error"] = str(error)
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(
        request,
        "admin/pubsub/deadletter/edit.html",
        {
            **model_admin.admin_site.each_context(request),
            "title": _("Edit and replay"),
            "opts": DeadLetter._meta,
            "media": model_admin.media,
            **context,
        },
    )


def _why_not(letter: DeadLetter, text: str) -> str | None:
    if letter.state != DeadLetter.State.DEAD:
        return _("Only a dead letter that is waiting for an operator can be edited; this one is in another state.")
    if len(text) > LARGEST_EDITED:
        return _("The payload is too large to edit in a browser.")
    if write_json(Redactor().json("payload", text)) != write_json(decode(text)):
        return _("The payload can’t be edited here: the parts that are redacted would be lost.")
    return None


def _store(
    model_admin: Admin, request: HttpRequest, letter: DeadLetter, context: dict[str, Any], using: str
) -> HttpResponse:
    given = {
        "seen": context["seen"],
        "actor": request.user.get_username(),
        "reason": context["reason"].strip().replace("\x00", "")[:2000],
    }
    if "replay" in request.POST:
        if not context["may_replay"]:
            raise PermissionDenied
        edit_and_replay(letter.pk, context["text"], using=using, **given)
        text = _("The payload is changed. The event will be handled again with the rest of its transaction.")
        history = _("Payload changed, replayed.")
    else:
        edit_payload(letter.pk, context["text"], using=using, **given)
        text = _("The payload is changed. The event is still waiting to be replayed.")
        history = _("Payload changed.")
    LogEntry.objects.create(
        user=request.user,  # type: ignore[misc]
        content_type_id=ContentType.objects.get_for_model(DeadLetter).pk,
        object_id=str(letter.pk),
        object_repr=str(letter)[:200],
        action_flag=CHANGE,
        change_message=f"{history} {given['reason']}".strip(),
    )
    model_admin.message_user(request, text, messages.SUCCESS)
    return HttpResponseRedirect(context["back"])


def difference(before: str, after: str) -> list[tuple[str, str]]:
    """Lines that go, come and stay, with a few round each change: ("-", text), ("+", text), (" ", text), ("…", "").

    >>> difference("{\\n  1\\n}", "{\\n  2\\n}")
    [(' ', '{'), ('-', '  1'), ('+', '  2'), (' ', '}')]
    """
    lines: list[tuple[str, str]] = []
    old, new = _without_common_ends(before.splitlines(), after.splitlines())
    if max(len(old), len(new)) > MOST_COMPARED:
        raise TooLongToCompare
    unified = difflib.unified_diff(old, new, lineterm="", n=LINES_ROUND_A_CHANGE)
    for number, line in enumerate(unified):
        if number < 2:  # the names of the files
            continue
        if line.startswith("@@"):
            if lines:
                lines.append(("…", ""))
            continue
        lines.append((line[0], line[1:]))
    return lines


def _without_common_ends(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """The lines between the first and the last difference, with a few round them. To compare them takes the time of all
    pairs of lines."""
    if old == new:
        return [], []
    shorter = min(len(old), len(new))
    head = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    tail = next((n for n in range(shorter - head) if old[-1 - n] != new[-1 - n]), shorter - head)
    first, last = max(0, head - LINES_ROUND_A_CHANGE), max(0, tail - LINES_ROUND_A_CHANGE)
    return old[first : len(old) - last], new[first : len(new) - last]


def json_view(model_admin: Admin, request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """All of a payload or of metadata."""
    letters = model_admin.get_queryset(request)
    letter = letters.filter(pk=pk).first()
    if not model_admin.has_view_payload_permission(request, letter):  # type: ignore[attr-defined]
        raise PermissionDenied
    if letter is None or name not in ("payload", "metadata", "original_payload"):
        raise Http404
    text = write_json(LetterPage(letter, True, letters).value(name))
    return plain_text(text, f"dead-letter-{pk}-{name}")
