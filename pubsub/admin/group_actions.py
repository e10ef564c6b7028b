"""What can be done with a group on a topic: confirmed first, done in one transaction, and recorded."""

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

from pubsub import control
from pubsub.db.transactions import read_committed
from pubsub.errors import PubSubError, Refused, UnknownGroup
from pubsub.models import OperatorEvent, Status, Subscription

from .formats import number
from .group_forms import WAIT_S, ReasonForm, SeekForm


@dataclass(frozen=True, kw_only=True)
class GroupAction:
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

ACTIONS = {
    action.name: action
    for action in (
        GroupAction(
            name="pause",
            permission="pubsub.pause_subscription",
            states=(Status.ACTIVE, Status.DEAD),
            label=gettext_lazy("Pause"),
            what=gettext_lazy(
                "Its workers finish their current batches and start no new ones. Until it is resumed, the group keeps "
                "its cursors, and retention drops nothing that it has not read."
            ),
            done=gettext_lazy("Group %(group)s on %(topic)s is paused."),
        ),
        GroupAction(
            name="resume",
            permission="pubsub.pause_subscription",
            states=(Status.PAUSED, Status.DEAD),
            label=gettext_lazy("Resume"),
            what=gettext_lazy("Its workers continue from its cursors at their next poll."),
            done=gettext_lazy("Group %(group)s on %(topic)s is resumed."),
        ),
        GroupAction(
            name="seek",
            permission="pubsub.seek_subscription",
            states=_LIVING,
            label=gettext_lazy("Move"),
            what=gettext_lazy("Moving back makes the group handle events again; moving forward makes it skip events."),
            done=gettext_lazy("Group %(group)s on %(topic)s was moved; it is now %(lag)s events behind."),
            can_force=gettext_lazy("Force: wait for running batches and revoke leases"),
        ),
        GroupAction(
            name="cancel",
            permission="pubsub.delete_subscription",
            states=_LIVING,
            label=gettext_lazy("Cancel"),
            what=gettext_lazy(
                "The subscription ends for good: the group handles nothing more and holds no events back. This can’t "
                "be undone; a cancelled subscription can only be removed."
            ),
            done=gettext_lazy("Group %(group)s on %(topic)s is cancelled."),
            is_danger=True,
        ),
        GroupAction(
            name="remove",
            permission="pubsub.delete_subscription",
            states=_ANY,
            label=gettext_lazy("Remove"),
            what=gettext_lazy(
                "The subscription is removed with its cursors and members, and its open dead letters are discarded. A "
                "consumer that is still running would subscribe it again, starting from then."
            ),
            done=gettext_lazy("Group %(group)s on %(topic)s is removed."),
            is_danger=True,
            can_force=gettext_lazy("Force: remove it even if it is active, has unread events or has open dead letters"),
        ),
    )
}

RUN: dict[str, Callable[..., Any]] = {
    "pause": control.pause,
    "resume": control.resume,
    "cancel": control.cancel,
    "remove": control.remove_group,
}


def offered(request: HttpRequest, subscription: Subscription) -> list[GroupAction]:
    """What the user may do with it now."""
    return [
        action
        for action in ACTIONS.values()
        if subscription.status in action.states and request.user.has_perm(action.permission)
    ]


class MovedMeanwhile(Refused):
    """Someone else has moved the group since the page that asked was shown."""


def action_view(admin: Any, request: HttpRequest, subscription: Subscription, action: GroupAction) -> HttpResponse:
    """GET asks; a POST from the page that asked does it. Moving shows first what it would do, by a POST as well."""
    form_class = SeekForm if action.name == "seek" else ReasonForm
    form = form_class(request.POST or None, can_force=str(action.can_force))
    as_of = 0
    topic, group = subscription.topic.name, subscription.group_id
    using = router.db_for_write(Subscription)
    back = admin.address("subscription_change", subscription.pk)
    moves: list[control.CursorMove] = []
    if request.method == "POST" and form.is_valid():
        is_previewed = not request.POST.get("change")
        try:
            if not isinstance(form, SeekForm) or request.POST.get("confirmed"):
                messages.add_message(request, *_run(admin, request, subscription, action, form, using))
                return HttpResponseRedirect(
                    admin.address("subscription_changelist") if action.name == "remove" else back
                )
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
        "subscription/action",
        f"{action.label}: {group} ← {topic}",
        crumbs=[admin.home(), (back, str(subscription))],
        subscription=subscription,
        action=action,
        form=form,
        back=back,
        moves=moves,
        as_of=as_of,
        lag_before=sum(move.lag_before for move in moves),
        lag_after=sum(move.lag_after for move in moves),
        given=[(name, value) for name, value in form.data.items() if name in form.fields],
    )


def _preview(form: SeekForm, topic: str, group: str, using: str) -> list[control.CursorMove]:
    try:
        moves = form.preview(topic, group, using)
    except PubSubError as error:
        form.add_error(None, str(error))
        return []
    if not moves:
        form.add_error(None, _("Nothing to move: no event is that old."))
    return moves


def gone(admin: Any, request: HttpRequest) -> HttpResponse:
    """The answer if someone else has removed the subscription meanwhile."""
    messages.warning(request, _("This subscription has been removed."))
    return HttpResponseRedirect(admin.address("subscription_changelist"))


def _moved(subscription: Subscription) -> QuerySet[OperatorEvent]:
    return (
        OperatorEvent.objects.using(subscription._state.db)
        .filter(topic=subscription.topic.name, group_id=subscription.group_id, action__in=("seek", "force-complete"))
        .order_by("-id")
    )


def _last_moved(subscription: Subscription) -> int:
    """The audit log's newest move: a preview holds as long as no newer one is there."""
    return _moved(subscription).values_list("id", flat=True).first() or 0


def _move(form: SeekForm, as_of: str, subscription: Subscription, **given: Any) -> list[control.CursorMove]:
    """Moves the group, unless someone else has done so since the page that asked: "ten back" would be twenty.

    Checked once the cursors are locked; the caller's transaction is rolled back if it was too much.
    """
    moves = form.run(subscription.topic.name, subscription.group_id, **given)
    known = int(as_of) if as_of.isascii() and as_of.isdecimal() and len(as_of) < 19 else 0
    since = list(_moved(subscription).filter(id__gt=known)[:2])
    if len(since) > bool(moves):  # the newest is this very move
        raise MovedMeanwhile(
            _(
                "%(actor)s has moved the group meanwhile, and nothing else has changed. This is what your move would "
                "do now."
            )
            % {"actor": since[-1].actor}
        )
    return moves


def _run(
    admin: Any, request: HttpRequest, subscription: Subscription, action: GroupAction, form: ReasonForm, using: str
) -> tuple[int, str]:
    """Does it, and returns the message: that it was done, or that nothing was left to do."""
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
            if action.can_force:
                given |= {"force": form.cleaned_data["force"], "wait_s": WAIT_S}
            became = RUN[action.name](topic, group, **given)
            if isinstance(became, control.GroupState) and not became.changed:
                subscription.refresh_from_db(fields=["status", "status_reason"])
                return messages.WARNING, _nothing_to_do(subscription)
        done = str(action.done) % values
        LogEntry.objects.create(
            user_id=request.user.pk,  # type: ignore[misc]
            content_type_id=ContentType.objects.get_for_model(Subscription).pk,
            object_id=str(number_of_row),
            object_repr=str(subscription)[:200],
            action_flag=DELETION if action.name == "remove" else CHANGE,
            change_message=f"{done} {given['reason']}".strip(),
        )
    return messages.SUCCESS, done


def _nothing_to_do(subscription: Subscription) -> str:
    return _(
        "Nothing changed, already done by someone else: %(group)s on %(topic)s is %(status)s already (%(why)s)."
    ) % {
        "group": subscription.group_id,
        "topic": subscription.topic.name,
        "status": subscription.get_status_display().partition(":")[0],
        "why": subscription.status_reason or "–",
    }
