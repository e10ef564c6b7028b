"""The overview: is anything stuck, since when, and what to press."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import router
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from pubsub.models import DeadLetter, Overview, Subscription
from pubsub.models import Status as GroupState
from pubsub.monitoring.problems import STUCK, Problem, find_problems
from pubsub.monitoring.samples import Point, series
from pubsub.monitoring.status import GroupStatus, SystemStatus, TopicStatus, status

from .courses import lag_chart, rate_chart
from .page import Pages

CHARTED = dt.timedelta(hours=1)
EVERY_MS = 5000


@dataclass(frozen=True, kw_only=True)
class ProblemRow:
    """A problem, and the page that helps."""

    problem: Problem
    address: str
    button: str


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    group: GroupStatus
    status: str
    chart: SafeString
    address: str
    letters: str
    """The address of its dead letters; empty for users who may not see them."""
    is_wrong: bool


@dataclass(frozen=True, kw_only=True)
class TopicRow:
    topic: TopicStatus
    chart: SafeString
    address: str
    events: str


@admin.register(Overview)
class OverviewAdmin(Pages):
    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("pubsub.view_subscription")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", never_cache(view), name="pubsub_overview_changelist")]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        live = "live" in request.GET
        return self.page(
            request,
            "overview/live" if live else "overview/overview",
            _("Overview"),
            every_ms=EVERY_MS,
            **self.context(request),
            **(extra_context or {}),
        )

    def context(self, request: HttpRequest) -> dict[str, Any]:
        using = router.db_for_read(Subscription)
        now = status(using)
        start = now.taken_at - CHARTED
        samples = series(using, start)
        problems = [self.problem_row(request, problem, now) for problem in find_problems(now)]
        topics = {topic.name: topic.id for topic in now.topics}
        in_trouble = {(it.problem.topic, it.problem.group) for it in problems if it.problem.severity == STUCK}
        groups = [
            self.group_row(
                request,
                group,
                samples.get((topics[group.topic], group.group), []),
                start,
                now.taken_at,
                (group.topic, group.group) in in_trouble,
            )
            for group in now.groups
        ]
        return {
            "status": now,
            "problems": problems,
            "stuck": sum(it.problem.severity == STUCK for it in problems),
            # What is in trouble comes first; cancelled ones are over, and come last.
            "groups": sorted(
                groups, key=lambda row: (not row.is_wrong, row.group.status == GroupState.CANCELLED, -row.group.lag)
            ),
            "topics": [
                self.topic_row(request, topic, samples.get((topic.id, ""), []), start, now.taken_at)
                for topic in now.topics
            ],
            "totals": {
                "rate": sum(topic.rate for topic in now.topics),
                "lag": sum(group.lag for group in now.groups if group.status != GroupState.CANCELLED),
                "behind_s": max(
                    (group.behind_s for group in now.groups if group.status != GroupState.CANCELLED), default=0.0
                ),
                "members": sum(group.members for group in now.groups),
                "dead": sum(group.dead for group in now.groups),
                "dead_bounded": any(group.letters_bounded for group in now.groups),
                "bytes": now.sequencer.bytes,
            },
            "letters": self.letters_address(request, state=DeadLetter.State.DEAD),
            "show_queries": request.user.has_perm("pubsub.view_payload_outboxmessage"),
        }

    def group_row(
        self,
        request: HttpRequest,
        group: GroupStatus,
        samples: list[Point],
        start: dt.datetime,
        end: dt.datetime,
        is_wrong: bool,
    ) -> GroupRow:
        return GroupRow(
            group=group,
            status=str(GroupState(group.status).label).partition(":")[0],
            chart=lag_chart(group, samples, start, end),
            address=self.address("subscription_change", group.subscription_id),
            letters=self.letters_address(request, group=group.group, state=DeadLetter.State.DEAD),
            is_wrong=is_wrong,
        )

    def topic_row(
        self, request: HttpRequest, topic: TopicStatus, samples: list[Point], start: dt.datetime, end: dt.datetime
    ) -> TopicRow:
        may_see = request.user.has_perm("pubsub.view_topic")
        return TopicRow(
            topic=topic,
            chart=rate_chart(topic, samples, start, end),
            address=self.address("topic_change", topic.id) if may_see else "",
            events=self.events_address(request, topic=topic.id),
        )

    def problem_row(self, request: HttpRequest, problem: Problem, now: SystemStatus) -> ProblemRow:
        """The problem, with the page that helps, if the user may see it."""
        address, button = "", ""
        match problem.code:
            case "dead-letters" | "stopped":
                address = self.letters_address(request, state=DeadLetter.State.DEAD, group=problem.group)
                button = _("View dead letters")
            case "waits-for-retry":
                address = self.letters_address(request, state=DeadLetter.State.RETRYING, group=problem.group)
                button = _("View dead letters")
            case "failing":
                address = self.letters_address(request, group=problem.group)
                button = _("View failed events")
            case "not-moving" if address := self.events_address(
                request, topic_name=problem.topic, offset=problem.offset
            ):
                button = _("View event")
            case "refused" | "unread" if request.user.has_perm("pubsub.view_topic"):
                address = self.address("topic_change", *(it.id for it in now.topics if it.name == problem.topic))
                button = _("View topic")
            case "refused" | "unread":
                pass
            case "long-transaction" | "slot":
                address, button = "#sessions", _("View open transactions")
            case "delayed" | "foreign":
                address, button = "#sessions", _("View sequencer")
            case code if code.startswith("sequencer"):
                address, button = "#sessions", _("View sequencer")
            case _:
                here = (problem.topic, problem.group)
                (group,) = (it for it in now.groups if (it.topic, it.group) == here)
                address = self.address("subscription_change", group.subscription_id)
                button = _("Resume or move") if problem.code in ("paused", "dead") else _("View group")
        return ProblemRow(problem=problem, address=address, button=button if address else "")

    def letters_address(self, request: HttpRequest, **chosen: str) -> str:
        if not request.user.has_perm("pubsub.view_deadletter"):
            return ""
        return self.address("deadletter_changelist") + "?" + urlencode(chosen)

    def events_address(self, request: HttpRequest, **chosen: Any) -> str:
        if not request.user.has_perm("pubsub.view_outboxmessage"):
            return ""
        return self.address("outboxmessage_changelist") + "?" + urlencode(chosen)
