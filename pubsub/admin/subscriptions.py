"""Subscriptions: declared in code, watched here."""

from django.contrib import admin
from django.db.models import BigIntegerField, OuterRef, QuerySet, Subquery, Sum
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.translation import gettext_lazy as _

from ..models import ConsumerLag, Subscription
from .showing import number, pretty_json


@admin.register(Subscription)
class SubscriptionAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("group_id", "topic", "status_shown", "lag_shown", "delivery")
    list_filter = ("status", "topic")
    list_select_related = ("topic",)
    search_fields = ("group_id",)
    show_facets = admin.ShowFacets.NEVER
    fieldsets = (
        (None, {"fields": ("group_id", "topic", "status", "created_at")}),
        (_("Progress"), {"fields": ("lag_shown", "places")}),
        (
            _("What it reads, and how"),
            {
                "fields": (
                    "start_position",
                    "start_value",
                    "where_shown",
                    "delivery",
                    "on_failure",
                    "retry_delays_shown",
                )
            },
        ),
        (_("Heartbeat"), {"fields": ("heartbeat_interval", "heartbeat_timeout", "last_heartbeat_at")}),
    )

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

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Subscription | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Subscription | None = None) -> bool:
        return False

    @admin.display(description=_("status"), ordering="status")
    def status_shown(self, subscription: Subscription) -> str:
        return subscription.get_status_display().partition(":")[0]  # what follows explains it, on the page itself

    @admin.display(description=_("events behind"), ordering="lag")
    def lag_shown(self, subscription: Subscription) -> str:
        lag: int | None = getattr(subscription, "lag", None)
        return str(_("not started")) if lag is None else number(lag)

    @admin.display(description=_("partitions"))
    def places(self, subscription: Subscription) -> str:
        places = ConsumerLag.objects.filter(group_id=subscription.group_id, topic_id=subscription.topic_id)
        return render_to_string("admin/pubsub/subscription/places.html", {"places": places.order_by("partition_id")})

    @admin.display(description=_("filter"))
    def where_shown(self, subscription: Subscription) -> str:
        return pretty_json(subscription.where) if subscription.where else str(_("everything"))

    @admin.display(description=_("retry delays"))
    def retry_delays_shown(self, subscription: Subscription) -> str:
        return ", ".join(f"{delay} s" for delay in subscription.retry_delays) or str(_("none"))
