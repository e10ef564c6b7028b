"""The project's addresses: the admin, and the events as they come for those who may see them."""

from django.contrib import admin
from django.http import HttpRequest
from django.urls import path
from django.views.generic import RedirectView

from pubsub.streams.sse import EventStream


def may_follow(request: HttpRequest) -> bool:
    return request.user.has_perm("pubsub.view_outboxmessage")


urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("events/", EventStream.as_view(topics="*", permission=may_follow), name="events"),
]
