"""Publishing by hand: a test event, confirmed first."""

import json
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pubsub.errors import PubSubError
from pubsub.models import OutboxMessage, Subscription, Topic
from pubsub.publishing.publish import check_event, publish

from .page import Pages


class JSONText(forms.CharField):
    """JSON that keeps what was typed, and says where it is wrong."""

    widget = forms.Textarea(attrs={"rows": 8, "spellcheck": "false"})

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        try:
            return json.loads(text) if text else {}
        except ValueError as error:
            raise forms.ValidationError(_("Not valid JSON: %(error)s") % {"error": error}) from error
        except RecursionError:
            raise forms.ValidationError(_("Expected JSON of a reasonable depth.")) from None


class PublishForm(forms.Form):
    topic = forms.ChoiceField(label=gettext_lazy("Topic"))
    type = forms.CharField(
        label=gettext_lazy("Type"), required=False, help_text=gettext_lazy("For example order.created.")
    )
    key = forms.CharField(
        label=gettext_lazy("Key"), required=False, help_text=gettext_lazy("Events with the same key keep their order.")
    )
    host_id = forms.CharField(label=gettext_lazy("Host"), required=False, help_text=gettext_lazy("The tenant."))
    to_group = forms.CharField(
        label=gettext_lazy("Only for group"),
        required=False,
        help_text=gettext_lazy("Empty: every group that subscribes to the topic handles it."),
    )
    payload = JSONText(label=gettext_lazy("Payload"), initial="{}")
    metadata = JSONText(label=gettext_lazy("Metadata"), required=False, initial='{"test": true}')

    def __init__(self, *args: Any, using: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = list(Topic.objects.using(using).order_by("name").values_list("name", flat=True))
        field = self.fields["topic"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101
        field.choices = [(name, name) for name in names]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if not self.errors:
            try:
                check_event(self.event)
            except PubSubError as error:
                raise forms.ValidationError(str(error)) from error
        return cleaned

    @property
    def event(self) -> dict[str, Any]:
        given = {name: value for name, value in self.cleaned_data.items() if name != "topic" and value != ""}
        given["payload"] = self.cleaned_data["payload"]
        return given


def publish_view(admin: Pages, request: HttpRequest) -> HttpResponse:
    """A form; what it will do, to be confirmed; then the event itself."""
    using = router.db_for_write(OutboxMessage)
    listing = admin.address("outboxmessage_changelist")
    form = PublishForm(request.POST or None, using=using, initial={"topic": request.GET.get("topic")})
    asked = request.method == "POST" and form.is_valid() and not request.POST.get("change")
    if asked and request.POST.get("confirmed"):
        try:
            with transaction.atomic(using=using):
                event_id = publish(form.cleaned_data["topic"], using=using, **form.event)
                published = f"{form.cleaned_data['topic']} {form.cleaned_data['type']} {event_id}".replace("  ", " ")
                LogEntry.objects.create(
                    user_id=request.user.pk,  # type: ignore[misc]
                    content_type_id=ContentType.objects.get_for_model(OutboxMessage).pk,
                    object_id=str(event_id),
                    object_repr=published[:200],
                    action_flag=ADDITION,
                    change_message=_("Published by hand."),
                )
        except PubSubError as error:
            form.add_error(None, str(error))
            asked = False
        else:
            admin.message_user(
                request,
                _("Published to %(topic)s, with event id %(id)s.")
                % {"topic": form.cleaned_data["topic"], "id": event_id},
                messages.SUCCESS,
            )
            return HttpResponseRedirect(f"{listing}?topic_name={form.cleaned_data['topic']}")
    groups: list[str] = []
    if asked:
        subscribed = Subscription.objects.using(using).filter(
            topic__name=form.cleaned_data["topic"], status__in=("ACTIVE", "PAUSED")
        )
        if to_group := form.cleaned_data["to_group"]:
            subscribed = subscribed.filter(group_id=to_group)
        groups = list(subscribed.order_by("group_id").values_list("group_id", flat=True))
    return admin.page(
        request,
        "event/publish",
        _("Publish an event"),
        crumbs=[admin.home()],
        form=form,
        asked=asked,
        groups=groups,
        given=[(form[name], form.data[name]) for name in form.fields if name in form.data],
        back=listing,
    )
