"""Streams that are open, closed, short, and limited to what a user may see."""

from typing import Any

from django.http import HttpRequest
from django.urls import path

from pubsub.streams.sse import EventStream


def everybody(request: HttpRequest) -> bool:
    return True


def of_no_tenant(request: HttpRequest) -> dict[str, Any]:
    return {}


async def own_events(request: HttpRequest) -> Any:
    user = request.GET.get("user")
    return {"user_id": user} if user else None


class OneTopic(EventStream):
    topics = "default"

    def permission(self, request: HttpRequest) -> bool:
        return "secret" in request.GET


class OfUsers(EventStream):
    topics = "default"

    def permission(self, request: HttpRequest) -> bool:
        return True

    async def user_of(self, request: HttpRequest) -> str | None:
        return request.GET.get("user")


urlpatterns = [
    path("closed/", EventStream.as_view(topics=["default"])),
    path("all/", EventStream.as_view(topics=["*"], permission=everybody, heartbeat_s=0.1)),
    path("default/", EventStream.as_view(topics=["default"], permission=everybody, heartbeat_s=0.1)),
    path("raw/", EventStream.as_view(topics=["default"], permission=everybody, raw=True)),
    path("short/", EventStream.as_view(topics=["default"], permission=everybody, max_events=3)),
    path("brief/", EventStream.as_view(topics=["default"], permission=everybody, max_age_s=0.3)),
    path("unread/", EventStream.as_view(topics=["default"], permission=everybody, max_age_s=2, heartbeat_s=1)),
    path("no-tenant/", EventStream.as_view(topics=["default"], permission=of_no_tenant)),
    path("own/", EventStream.as_view(topics=["default"], permission=own_events)),
    path("users/", OfUsers.as_view()),
    path("method/", OneTopic.as_view()),
    path("of/<str:topic>/", EventStream.as_view(permission=everybody)),
    path("orders/<str:topic>/", EventStream.as_view(topics=["orders.*"], permission=everybody)),
]
