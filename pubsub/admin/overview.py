"""The overview: is anything stuck, since when, and what to press."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.paginator import Page, Paginator
from django.db import router
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from pubsub.models import DeadLetter, Overview, Subscription
from pubsub.models import Status as GroupState
from pubsub.monitoring.problems import SEVERITIES, STUCK, Cause, Problem, by_cause, find_problems
from pubsub.monitoring.recent import recent_status
from pubsub.monitoring.samples import series
from pubsub.monitoring.status import GroupStatus, SystemStatus, TopicStatus

from .courses import lag_chart, rate_chart
from .page import Pages

CHARTED = dt.timedelta(hours=1)
EVERY_MS = 5000
PER_PAGE = 25
ALIKE_SHOWN = 100

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ProblemRow:
    """A problem, and the page that helps."""

    problem: Problem
    address: str
    button: str


@dataclass(frozen=True, kw_only=True)
class CauseRow:
    row: ProblemRow
    alike: list[str]
    """The first of the other problems of its kind."""
    more: int


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
        now = recent_status(router.db_for_read(Subscription))
        problems = find_problems(now)
        page_of_groups = self.groups_shown(request, now, problems)
        page_of_topics = Paginator(self.found(request, now.topics), PER_PAGE).get_page(request.GET.get("topics"))
        start, end = now.taken_at - CHARTED, now.taken_at
        ids = {topic.name: topic.id for topic in now.topics}
        samples = series(
            router.db_for_read(Subscription),
            start,
            [*((ids[it.topic], it.group) for it in page_of_groups), *((it.id, "") for it in page_of_topics)],
        )
        in_trouble = {(it.topic, it.group) for it in problems if it.severity == STUCK}
        living = [group for group in now.groups if group.status != GroupState.CANCELLED]
        return {
            "status": now,
            "causes": [self.cause_row(request, cause, now) for cause in by_cause(problems)],
            "stuck": sum(it.severity == STUCK for it in problems),
            "groups": [
                self.group_row(
                    request,
                    group,
                    lag_chart(group, samples.get((ids[group.topic], group.group), []), start, end),
                    (group.topic, group.group) in in_trouble,
                )
                for group in page_of_groups
            ],
            "topics": [
                self.topic_row(request, topic, rate_chart(topic, samples.get((topic.id, ""), []), start, end))
                for topic in page_of_topics
            ],
            "pages": {
                "groups": self.page_links(request, "page", page_of_groups),
                "topics": self.page_links(request, "topics", page_of_topics),
            },
            "query": request.GET.get("q", ""),
            "has_many": max(len(now.groups), len(now.topics)) > PER_PAGE,
            "totals": {
                "rate": sum(topic.rate for topic in now.topics),
                "lag": sum(group.lag for group in living),
                "behind_s": max((group.behind_s for group in living), default=0.0),
                "members": sum(group.members for group in now.groups),
                "dead": sum(group.dead for group in now.groups),
                "dead_bounded": any(group.letters_bounded for group in now.groups),
                "bytes": now.sequencer.bytes,
            },
            "letters": self.letters_address(request, state=DeadLetter.State.DEAD),
            "show_queries": request.user.has_perm("pubsub.view_payload_outboxmessage"),
        }

    def found(self, request: HttpRequest, rows: Sequence[T]) -> list[T]:
        """Those groups or topics in whose names the searched text is."""
        wanted = request.GET.get("q", "").strip().lower()
        return [it for it in rows if wanted in _names(it)]

    def groups_shown(self, request: HttpRequest, now: SystemStatus, problems: Sequence[Problem]) -> Page[GroupStatus]:
        """What is in trouble comes first; cancelled ones are over, and come last."""
        worst: dict[tuple[str, str], int] = {}
        for problem in problems:
            worst.setdefault((problem.topic, problem.group), SEVERITIES.index(problem.severity))
        groups = sorted(
            self.found(request, now.groups),
            key=lambda it: (worst.get((it.topic, it.group), 99), it.status == GroupState.CANCELLED, -it.lag),
        )
        return Paginator(groups, PER_PAGE).get_page(request.GET.get("page"))

    def page_links(self, request: HttpRequest, name: str, page: Page[Any]) -> dict[str, Any]:
        """Where the pages before and behind this one are; empty where there is none."""

        def link(number: int) -> str:
            query = request.GET.copy()
            query.pop("live", None)
            query[name] = str(number)
            return "?" + query.urlencode()

        return {
            "number": page.number,
            "of": page.paginator.num_pages,
            "all": page.paginator.count,
            "before": link(page.number - 1) if page.has_previous() else "",
            "behind": link(page.number + 1) if page.has_next() else "",
        }

    def group_row(self, request: HttpRequest, group: GroupStatus, chart: SafeString, is_wrong: bool) -> GroupRow:
        return GroupRow(
            group=group,
            status=str(GroupState(group.status).label).partition(":")[0],
            chart=chart,
            address=self.address("subscription_change", group.subscription_id),
            letters=self.letters_address(request, group=group.group, state=DeadLetter.State.DEAD),
            is_wrong=is_wrong,
        )

    def topic_row(self, request: HttpRequest, topic: TopicStatus, chart: SafeString) -> TopicRow:
        return TopicRow(
            topic=topic,
            chart=chart,
            address=self.address("topic_change", topic.id) if request.user.has_perm("pubsub.view_topic") else "",
            events=self.events_address(request, topic=topic.id),
        )

    def cause_row(self, request: HttpRequest, cause: Cause, now: SystemStatus) -> CauseRow:
        return CauseRow(
            row=self.problem_row(request, cause.problem, now),
            alike=[problem.text for problem in cause.alike[:ALIKE_SHOWN]],
            more=len(cause.alike),
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
            case "delayed" | "foreign" | "xids-to-come" | "default-segment":
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


def _names(row: object) -> str:
    """What a group or a topic is searched by."""
    return " ".join(str(getattr(row, name, "")) for name in ("name", "group", "topic")).lower()
