"""Subscriptions: declared in code; watched, paused, moved and removed here."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import router
from django.db.models import BigIntegerField, OuterRef, QuerySet, Subquery, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from pubsub.models import ConsumerLag, Member, OperatorEvent, Subscription
from pubsub.monitoring.calls import calls_in_hand
from pubsub.monitoring.facts import CallInHand

from .formats import number, pretty_json
from .group_actions import ACTIONS, action_view, gone, offered
from .hanging import REMEDIES, remedies_for, remedy_view
from .page import Pages

ACTIONS_SHOWN = 20


@admin.register(Subscription)
class SubscriptionAdmin(Pages):
    list_display = ("group_id", "topic", "status_shown", "lag_shown", "delivery")
    list_filter = ("status", "topic")
    list_select_related = ("topic",)
    nothing_yet = _(
        "No group has subscribed yet. Declare a handler with @subscribe in an app’s subscribers.py and start manage.py "
        "run_consumer."
    )
    search_fields = ("group_id", "topic__name")
    show_facets = admin.ShowFacets.NEVER
    fieldsets = (
        (None, {"fields": ("group_id", "topic", "status", "status_changed_at", "status_reason", "created_at")}),
        (_("Progress"), {"fields": ("lag_shown", "cursors", "in_hand_shown", "members_shown", "missed_shown")}),
        (
            _("Configuration"),
            {
                "fields": (
                    "start_position",
                    "start_value",
                    "where_shown",
                    "delivery",
                    "on_failure",
                    "retry_delays_shown",
                    "timeout",
                    "expires_after",
                )
            },
        ),
        (_("Heartbeat"), {"fields": ("heartbeat_interval", "heartbeat_timeout", "last_heartbeat_at", "misses")}),
        (_("Audit log"), {"fields": ("operator_actions",)}),
    )

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.action_view)
        remedies = self.admin_site.admin_view(self.remedy_view)
        return [
            path("<int:pk>/do/<slug:name>/", view, name="pubsub_subscription_do"),
            path("<int:pk>/remedy/<slug:name>/", remedies, name="pubsub_subscription_remedy"),
            *super().get_urls(),
        ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Subscription]:
        lag = (
            ConsumerLag.objects.filter(group_id=OuterRef("group_id"), topic_id=OuterRef("topic_id"))
            .order_by()
            .values("group_id")
            .annotate(total=Sum("lag"))
            .values("total")
        )
        queryset: QuerySet[Subscription] = super().get_queryset(request)
        return queryset.annotate(lag=Subquery(lag, output_field=BigIntegerField()))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        subscription = self.get_object(request, object_id)
        actions: list[tuple[Any, str]] = []
        if subscription is not None:
            actions = [
                (action, self.address("subscription_do", subscription.pk, action.name))
                for action in offered(request, subscription)
            ]
            actions += [
                (remedy, self.address("subscription_remedy", subscription.pk, remedy.name) + query)
                for remedy, query in remedies_for(_calls(subscription), subscription)
                if request.user.has_perm(remedy.permission)
            ]
        return super().change_view(request, object_id, form_url, {"actions": actions, **(extra_context or {})})

    def remedy_view(self, request: HttpRequest, pk: int, name: str) -> HttpResponse:
        remedy = REMEDIES.get(name)
        if remedy is None:
            raise Http404
        subscription = self.get_queryset(request).select_related("topic").filter(pk=pk).first()
        if not (self.has_view_permission(request, subscription) and request.user.has_perm(remedy.permission)):
            raise PermissionDenied
        if subscription is None:
            return gone(self, request)
        return remedy_view(self, request, subscription, remedy)

    def action_view(self, request: HttpRequest, pk: int, name: str) -> HttpResponse:
        action = ACTIONS.get(name)
        if action is None:
            raise Http404
        subscription = self.get_queryset(request).select_related("topic").filter(pk=pk).first()
        if not (self.has_view_permission(request, subscription) and request.user.has_perm(action.permission)):
            raise PermissionDenied
        if subscription is None:
            return gone(self, request)
        return action_view(self, request, subscription, action)

    @admin.display(description=_("status"), ordering="status")
    def status_shown(self, subscription: Subscription) -> str:
        return subscription.get_status_display().partition(":")[0]  # what follows explains it, on the page itself

    @admin.display(description=_("lag"), ordering="lag")
    def lag_shown(self, subscription: Subscription) -> str:
        lag: int | None = getattr(subscription, "lag", None)
        return str(_("not started")) if lag is None else number(lag)

    @admin.display(description=_("cursors"))
    def cursors(self, subscription: Subscription) -> str:
        cursors = ConsumerLag.objects.filter(group_id=subscription.group_id, topic_id=subscription.topic_id)
        return render_to_string("admin/pubsub/subscription/cursors.html", {"cursors": cursors.order_by("partition_id")})

    @admin.display(description=_("in hand"))
    def in_hand_shown(self, subscription: Subscription) -> str:
        return render_to_string("admin/pubsub/subscription/in_hand.html", {"calls": _calls(subscription)})

    @admin.display(description=_("members"))
    def members_shown(self, subscription: Subscription) -> str:
        members = Member.objects.filter(group_id=subscription.group_id, topic_id=subscription.topic_id)
        return render_to_string(
            "admin/pubsub/subscription/members.html", {"members": members.order_by("-last_heartbeat_at")}
        )

    @admin.display(description=_("missed offsets"))
    def missed_shown(self, subscription: Subscription) -> str:
        return pretty_json(subscription.missed) if subscription.missed else str(_("none"))

    @admin.display(description=_("latest actions"))
    def operator_actions(self, subscription: Subscription) -> str:
        events = OperatorEvent.objects.filter(topic=subscription.topic.name, group_id=subscription.group_id)
        return render_to_string(
            "admin/pubsub/subscription/operator_actions.html", {"events": events.order_by("-id")[:ACTIONS_SHOWN]}
        )

    @admin.display(description=_("filter"))
    def where_shown(self, subscription: Subscription) -> str:
        return pretty_json(subscription.where) if subscription.where else str(_("everything"))

    @admin.display(description=_("retry delays"))
    def retry_delays_shown(self, subscription: Subscription) -> str:
        delays = subscription.retry_delays
        if not isinstance(delays, list):
            return pretty_json(delays)
        return ", ".join(f"{delay} s" for delay in delays) or str(_("none"))


def _calls(subscription: Subscription) -> list[CallInHand]:
    here = (subscription.topic.name, subscription.group_id)
    using = router.db_for_read(Subscription)
    return [call for call in calls_in_hand(using) if (call.topic, call.group) == here]
