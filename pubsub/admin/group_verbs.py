"""What can be done with a group on a topic: asked first, done as one, kept in journal and history."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import router
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pubsub import operating
from pubsub.errors import PubSubError, Refused, UnknownGroup
from pubsub.models import OperatorEvent, Status, Subscription
from pubsub.transactions import read_committed

from .group_forms import WAIT_S, ReasonForm, SeekForm
from .showing import number


@dataclass(frozen=True, kw_only=True)
class GroupVerb:
    name: str
    permission: str
    states: tuple[str, ...]
    """In which it is offered."""
    label: str | Promise
    what: str | Promise
    """What will happen, for the page that asks."""
    done: str | Promise
    is_danger: bool = False
    can_force: str | Promise = ""
    """What forcing means; empty: there is nothing to force."""


_ANY = tuple(Status.values)
_LIVING = (Status.ACTIVE, Status.PAUSED, Status.DEAD)

VERBS = {
    verb.name: verb
    for verb in (
        GroupVerb(
            name="pause",
            permission="pubsub.pause_subscription",
            states=(Status.ACTIVE, Status.DEAD),
            label=gettext_lazy("Pause"),
            what=gettext_lazy(
                "Its workers finish what they have in hand and begin nothing. It keeps its place and what it has not "
                "read, until somebody resumes it; meanwhile retention drops nothing that it has not read."
            ),
            done=gettext_lazy("Group %(group)s on %(topic)s is paused."),
        ),
        GroupVerb(
            name="resume",
            permission="pubsub.pause_subscription",
            states=(Status.PAUSED, Status.DEAD),
            label=gettext_lazy("Resume"),
            what=gettext_lazy("Its workers go on where it stands, as soon as they look."),
            done=gettext_lazy("Group %(group)s on %(topic)s goes on."),
        ),
        GroupVerb(
            name="seek",
            permission="pubsub.seek_subscription",
            states=_LIVING,
            label=gettext_lazy("Move"),
            what=gettext_lazy(
                "Going back means that events are handled again; going forward, that some are not handled at all."
            ),
            done=gettext_lazy("Group %(group)s on %(topic)s was moved; it is now %(lag)s events behind."),
            can_force=gettext_lazy("Do it even while workers are busy: wait for what they have in hand, end leases"),
        ),
        GroupVerb(
            name="cancel",
            permission="pubsub.delete_subscription",
            states=_LIVING,
            label=gettext_lazy("Cancel"),
            what=gettext_lazy(
                "The subscription ends for good. It is not worked on any more and keeps no messages; nothing leads "
                "back, it can only be removed."
            ),
            done=gettext_lazy("Group %(group)s on %(topic)s is cancelled."),
            is_danger=True,
        ),
        GroupVerb(
            name="remove",
            permission="pubsub.delete_subscription",
            states=_ANY,
            label=gettext_lazy("Remove"),
            what=gettext_lazy(
                "The subscription goes, with its places and members; its open dead letters are discarded. A consumer "
                "that still runs would subscribe it anew, from then on."
            ),
            done=gettext_lazy("Group %(group)s on %(topic)s is removed."),
            is_danger=True,
            can_force=gettext_lazy("Remove it even if it is active, has unread events, or has open dead letters"),
        ),
    )
}

RUN: dict[str, Callable[..., Any]] = {
    "pause": operating.pause,
    "resume": operating.resume,
    "cancel": operating.cancel,
    "remove": operating.remove_group,
}


def offered(request: HttpRequest, subscription: Subscription) -> list[GroupVerb]:
    """What the user may do with it now."""
    return [
        verb for verb in VERBS.values() if subscription.status in verb.states and request.user.has_perm(verb.permission)
    ]


class MovedMeanwhile(Refused):
    """Somebody else has moved the group since the page that asked was shown."""


def verb_view(admin: Any, request: HttpRequest, subscription: Subscription, verb: GroupVerb) -> HttpResponse:
    """GET asks; a POST from the page that asked does it. Moving shows first what it would do, by a POST as well."""
    form_class = SeekForm if verb.name == "seek" else ReasonForm
    form = form_class(request.POST or None, can_force=str(verb.can_force))
    as_of = 0
    topic, group = subscription.topic.name, subscription.group_id
    using = router.db_for_write(Subscription)
    back = admin.address("subscription_change", subscription.pk)
    moves: list[operating.Move] = []
    if request.method == "POST" and form.is_valid():
        is_previewed = not request.POST.get("change")
        try:
            if not isinstance(form, SeekForm) or request.POST.get("confirmed"):
                messages.add_message(request, *_run(admin, request, subscription, verb, form, using))
                return HttpResponseRedirect(admin.address("subscription_changelist") if verb.name == "remove" else back)
        except UnknownGroup:
            return gone(admin, request)
        except PubSubError as error:
            form.add_error(None, str(error))
            is_previewed = isinstance(error, MovedMeanwhile)
        if isinstance(form, SeekForm) and is_previewed:
            as_of = _last_moved(subscription)
            moves = _preview(form, topic, group, using)
    return admin.page(  # type: ignore[no-any-return]
        request,
        "subscription/verb",
        f"{verb.label}: {group} ← {topic}",
        crumbs=[admin.home(), (back, str(subscription))],
        subscription=subscription,
        verb=verb,
        form=form,
        back=back,
        moves=moves,
        as_of=as_of,
        lag_before=sum(move.lag_before for move in moves),
        lag_after=sum(move.lag_after for move in moves),
        given=[(name, value) for name, value in form.data.items() if name in form.fields],
    )


def _preview(form: SeekForm, topic: str, group: str, using: str) -> list[operating.Move]:
    try:
        moves = form.preview(topic, group, using)
    except PubSubError as error:
        form.add_error(None, str(error))
        return []
    if not moves:
        form.add_error(None, _("There is nothing to move: nothing is that old."))
    return moves


def gone(admin: Any, request: HttpRequest) -> HttpResponse:
    """For who presses something, or looks, after somebody else has removed it."""
    messages.warning(request, _("This subscription has been removed."))
    return HttpResponseRedirect(admin.address("subscription_changelist"))


def _moved(subscription: Subscription) -> QuerySet[OperatorEvent]:
    return (
        OperatorEvent.objects.using(subscription._state.db)
        .filter(topic=subscription.topic.name, group_id=subscription.group_id, action__in=("seek", "force-complete"))
        .order_by("-id")
    )


def _last_moved(subscription: Subscription) -> int:
    """The journal's newest entry about a move: whoever agrees to a preview says up to which one it holds."""
    return _moved(subscription).values_list("id", flat=True).first() or 0


def _move(form: SeekForm, as_of: str, subscription: Subscription, **given: Any) -> list[operating.Move]:
    """Moves the group, unless somebody has done so since the page that asked: "ten back" would be twenty.

    Looked at once the places are locked; the caller's transaction takes back what was too much.
    """
    moves = form.run(subscription.topic.name, subscription.group_id, **given)
    known = int(as_of) if as_of.isascii() and as_of.isdecimal() and len(as_of) < 19 else 0
    since = list(_moved(subscription).filter(id__gt=known)[:2])
    if len(since) > bool(moves):  # the newest is this very move
        raise MovedMeanwhile(
            _("%(actor)s has moved the group meanwhile, and nothing more has been done. This is what it would do now.")
            % {"actor": since[-1].actor}
        )
    return moves


def _run(
    admin: Any, request: HttpRequest, subscription: Subscription, verb: GroupVerb, form: ReasonForm, using: str
) -> tuple[int, str]:
    """Does it, and returns what to say: that it was done, or that there was nothing left to do."""
    topic, group = subscription.topic.name, subscription.group_id
    given: dict[str, Any] = {
        "actor": request.user.get_username(),
        "using": using,
        "reason": form.cleaned_data["reason"],
    }
    values: dict[str, Any] = {"group": group, "topic": topic}
    number_of_row = subscription.pk
    with read_committed(using):
        if isinstance(form, SeekForm):
            moves = _move(form, request.POST.get("as_of", ""), subscription, **given)
            values["lag"] = number(sum(move.lag_after for move in moves))
        else:
            if verb.can_force:
                given |= {"force": form.cleaned_data["force"], "wait_s": WAIT_S}
            became = RUN[verb.name](topic, group, **given)
            if isinstance(became, operating.GroupState) and not became.changed:
                subscription.refresh_from_db(fields=["status", "status_reason"])
                return messages.WARNING, _nothing_to_do(subscription)
        said = str(verb.done) % values
        LogEntry.objects.create(
            user_id=request.user.pk,  # type: ignore[misc]
            content_type_id=ContentType.objects.get_for_model(Subscription).pk,
            object_id=str(number_of_row),
            object_repr=str(subscription)[:200],
            action_flag=DELETION if verb.name == "remove" else CHANGE,
            change_message=f"{said} {given['reason']}".strip(),
        )
    return messages.SUCCESS, said


def _nothing_to_do(subscription: Subscription) -> str:
    return _("Nothing was changed, somebody was faster: %(group)s on %(topic)s is %(status)s already (%(why)s).") % {
        "group": subscription.group_id,
        "topic": subscription.topic.name,
        "status": subscription.get_status_display().partition(":")[0],
        "why": subscription.status_reason or "–",
    }
