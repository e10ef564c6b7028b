"""The project's addresses: the admin, and the events as they come for those who may see them."""

from django.contrib import admin
from django.http import HttpRequest
from django.urls import path
from django.views.generic import RedirectView

from pubsub.streams.sse import EventStream


def may_follow(request: HttpRequest) -> bool:
    """As in the admin: a stream is made of payloads."""
    return request.user.has_perms(["pubsub.view_outboxmessage", "pubsub.view_payload_outboxmessage"])


urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("events/", EventStream.as_view(topics="*", permission=may_follow), name="events"),
]
