"""What can be done about a handler that hangs: stop its worker, or skip the event. Previewed, confirmed, recorded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import router
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import Promise
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from pubsub import control
from pubsub.errors import PubSubError, Refused
from pubsub.models import Status, Subscription
from pubsub.monitoring.facts import CallInHand
from pubsub.monitoring.words import duration

from .formats import number
from .group_forms import WAIT_S, ReasonForm


class StopForm(ReasonForm):
    """Which worker to stop."""

    field_order = ("worker", "force", "reason")
    worker = forms.CharField(label=gettext_lazy("Worker"), max_length=500)


class SkipForm(ReasonForm):
    """Which event to skip."""

    field_order = ("partition", "offset", "force", "reason")
    partition = forms.IntegerField(label=gettext_lazy("Partition"), min_value=0, max_value=2**31 - 1)
    offset = forms.IntegerField(label=gettext_lazy("Offset"), min_value=1, max_value=10**18)


@dataclass(frozen=True, kw_only=True)
class Remedy:
    name: str
    permission: str
    label: str | Promise
    what: str | Promise
    """What will happen, for the page that asks."""
    can_force: str | Promise
    form: type[ReasonForm]
    preview: Callable[[Subscription, dict[str, Any], str], list[str]]
    run: Callable[..., str]


def _plan_stop(subscription: Subscription, given: dict[str, Any], using: str) -> control.WorkerStop:
    """One who may see this group alone may not stop the workers of others."""
    plan = control.preview_stop(given["worker"], now=given["force"], using=using)
    of_group = (subscription.topic.name, subscription.group_id)
    if of_group not in plan.worker.groups and of_group not in {(call.topic, call.group) for call in plan.worker.calls}:
        raise Refused(
            _("Worker %(worker)s does not work for group %(group)s on %(topic)s.")
            % {"worker": given["worker"], "group": subscription.group_id, "topic": subscription.topic.name}
        )
    return plan


def _preview_stop(subscription: Subscription, given: dict[str, Any], using: str) -> list[str]:
    plan = _plan_stop(subscription, given, using)
    return [*_described(plan.worker.calls), *_sessions(plan.sessions)]


def _stop(subscription: Subscription, given: dict[str, Any], using: str, **who: Any) -> str:
    _plan_stop(subscription, given, using)
    control.stop_worker(given["worker"], now=given["force"], using=using, **who)
    return _("Worker %(worker)s was asked to stop.") % {"worker": given["worker"]}


def _preview_skip(subscription: Subscription, given: dict[str, Any], using: str) -> list[str]:
    plan = control.preview_skip(using=using, **_event(subscription, given))
    before = ngettext(
        "%(n)s event has to be handled before it.", "%(n)s events have to be handled before it.", plan.before
    ) % {"n": number(plan.before)}
    sessions = [call.session_pid for call in plan.calls if call.session_pid]
    return [before, *_described(plan.calls), *(_sessions(sessions) if given["force"] else [])]


def _skip(subscription: Subscription, given: dict[str, Any], **who: Any) -> str:
    done = control.skip_event(force=given["force"], wait_s=WAIT_S, **_event(subscription, given), **who)
    return ngettext(
        "Group %(group)s has passed offset %(offset)s: %(n)s event is a dead letter now.",
        "Group %(group)s has passed offset %(offset)s: %(n)s events are dead letters now.",
        done.letters,
    ) % {"group": done.group, "offset": number(done.offset), "n": number(done.letters)}


def _event(subscription: Subscription, given: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": subscription.topic.name,
        "group": subscription.group_id,
        "partition": given["partition"],
        "offset": given["offset"],
    }


def _described(calls: Sequence[CallInHand]) -> list[str]:
    return [
        _("%(group)s (%(topic)s) has been handling offset %(at)s for %(age)s in worker %(worker)s.")
        % {
            "group": call.group,
            "topic": call.topic,
            "at": number(call.offset),
            "age": duration(call.seconds),
            "worker": call.worker_id,
        }
        for call in calls
    ]


def _sessions(pids: Sequence[int]) -> list[str]:
    if not pids:
        return [_("No database session would be ended.")]
    return [_("Database sessions that would be ended: %(pids)s.") % {"pids": ", ".join(map(str, pids))}]


REMEDIES = {
    remedy.name: remedy
    for remedy in (
        Remedy(
            name="stop-worker",
            permission="pubsub.stop_worker_subscription",
            label=gettext_lazy("Stop worker"),
            what=gettext_lazy(
                "The worker finishes its batches, of all of its groups, and ends. One that hangs ends when its handler "
                "comes back; without its database sessions it can commit nothing until then, and others go on."
            ),
            can_force=gettext_lazy("Now: end the database sessions of its calls, and its leases"),
            form=StopForm,
            preview=_preview_stop,
            run=_stop,
        ),
        Remedy(
            name="skip-event",
            permission="pubsub.seek_subscription",
            label=gettext_lazy("Skip event"),
            what=gettext_lazy(
                "The group passes the event, and what was published with it in the partition, without handling it. It "
                "becomes a dead letter: nothing is lost, and it can be replayed."
            ),
            can_force=gettext_lazy("Force: end the database session of the worker that has it in hand"),
            form=SkipForm,
            preview=_preview_skip,
            run=_skip,
        ),
    )
}


def remedies_for(calls: Sequence[CallInHand], subscription: Subscription) -> list[tuple[Remedy, str]]:
    """What is offered for a group, with the query that fills the form in: for what has been in hand longest."""
    offered = []
    if calls:
        offered.append((REMEDIES["stop-worker"], "?" + urlencode({"worker": calls[0].worker_id})))
    if subscription.status != Status.CANCELLED:
        event = {"partition": calls[0].partition, "offset": calls[0].offset} if calls else {}
        offered.append((REMEDIES["skip-event"], "?" + urlencode(event) if event else ""))
    return offered


def remedy_view(admin: Any, request: HttpRequest, subscription: Subscription, remedy: Remedy) -> HttpResponse:
    """Asks, with what it would do now; a POST from the page that asked does it."""
    using = router.db_for_write(Subscription)
    back = admin.address("subscription_change", subscription.pk)
    form = remedy.form(request.POST or None, initial=request.GET.dict(), can_force=str(remedy.can_force))
    lines: list[str] = []
    if request.method == "POST" and form.is_valid():
        try:
            if request.POST.get("confirmed"):
                who = {"actor": request.user.get_username(), "using": using, "reason": form.cleaned_data["reason"]}
                done = remedy.run(subscription, form.cleaned_data, **who)
                _log(request, subscription, f"{done} {who['reason']}".strip())
                messages.success(request, done)
                return HttpResponseRedirect(back)
            if not request.POST.get("change"):
                lines = remedy.preview(subscription, form.cleaned_data, using)
        except PubSubError as error:
            form.add_error(None, str(error))
    return admin.page(  # type: ignore[no-any-return]
        request,
        "subscription/remedy",
        f"{remedy.label}: {subscription}",
        crumbs=[admin.home(), (back, str(subscription))],
        remedy=remedy,
        form=form,
        lines=lines,
        back=back,
        given=[(name, value) for name, value in form.data.items() if name in form.fields],
    )


def _log(request: HttpRequest, subscription: Subscription, text: str) -> None:
    LogEntry.objects.create(
        user_id=request.user.pk,  # type: ignore[misc]
        content_type_id=ContentType.objects.get_for_model(Subscription).pk,
        object_id=str(subscription.pk),
        object_repr=str(subscription)[:200],
        action_flag=CHANGE,
        change_message=text,
    )
