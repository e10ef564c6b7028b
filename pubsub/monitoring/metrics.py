"""Prometheus: how everything stands, and what this process does. Needs the `metrics` extra.

Gauges are read from the database when they are scraped, out of the same few statements as the admin and
`pubsub_status`; every process shows the same ones. Counters and the histogram belong to the consumer that counts.

>>> names = {family.name for family in DatabaseMetrics("default").collect()}
>>> "pubsub_lag_events" in names
True
"""

import logging
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from typing import Any

from django.db import Error, connections, router
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.generic import View

from pubsub.errors import MissingExtra
from pubsub.models import OutboxMessage, Status
from pubsub.signals import batch_handled, event_failed, handler_overdue, sequenced

from .problems import CODES, find_problems
from .recent import recent_status
from .status import SystemStatus

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, start_http_server
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra("prometheus-client", "metrics") from error

logger = logging.getLogger(__name__)

_GROUP = ("group", "topic")
HANDLED = Counter("pubsub_events_handled", "Events that a group has passed without a failure", _GROUP)
FAILED = Counter("pubsub_events_failed", "Events that a handler could not handle, each attempt counted", _GROUP)
OVERDUE = Counter("pubsub_handlers_overdue", "Calls of handlers that did not end though their timeout was over", _GROUP)
BATCHES = Counter("pubsub_batches", "Batches that were done and committed", _GROUP)
SECONDS = Histogram(
    "pubsub_batch_seconds",
    "How long a batch took, the commit included",
    _GROUP,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
SEQUENCED = Counter("pubsub_events_sequenced", "Events that this process has numbered")


def instrument() -> None:
    """Counts from now on, once, however often it is called. `serve()` does it.

    >>> instrument()
    """
    for signal, receiver in (
        (batch_handled, _count_batch),
        (event_failed, _count_failure),
        (handler_overdue, _count_overdue),
        (sequenced, _count_pass),
    ):
        signal.connect(receiver, dispatch_uid="pubsub.monitoring.metrics")


def _count_batch(*, group: str, topic: str, passed: int, failed: int, seconds: float, **facts: Any) -> None:
    HANDLED.labels(group, topic).inc(max(passed - failed, 0))
    BATCHES.labels(group, topic).inc()
    SECONDS.labels(group, topic).observe(seconds)


def _count_failure(*, group: str, topic: str, count: int = 1, **facts: Any) -> None:
    FAILED.labels(group, topic).inc(count)


def _count_overdue(*, group: str, topic: str, **facts: Any) -> None:
    OVERDUE.labels(group, topic).inc()


def _count_pass(*, messages: int, **facts: Any) -> None:
    SEQUENCED.inc(messages)


class DatabaseMetrics(Collector):
    """The gauges. To have them in an exporter of your own: ``REGISTRY.register(DatabaseMetrics())``."""

    def __init__(self, using: str | None = None, *, close: bool = False) -> None:
        self._using = using
        self._close = close
        """Whether this is called by threads that come and go, and would leave their connections behind."""

    def describe(self) -> list[Metric]:
        return []  # registering asks, and needs no database

    def collect(self) -> Iterator[Metric]:
        using = self._using or router.db_for_write(OutboxMessage)
        up = GaugeMetricFamily("pubsub_database_up", "Whether the database could be asked for the other gauges")
        try:
            found = list(_gauges(recent_status(using)))
            up.add_metric([], 1)
        except Error as error:
            logger.warning("the database could not be asked for metrics: %s", error)
            found = []
            up.add_metric([], 0)
        finally:
            if self._close:
                connections[using].close()
        yield up
        yield from found


def _gauges(now: SystemStatus) -> Iterator[Metric]:
    tip = GaugeMetricFamily("pubsub_topic_tip_offset", "The last offset of a topic", labels=["topic"])
    kept = GaugeMetricFamily("pubsub_topic_kept_events", "Events that retention has not dropped", labels=["topic"])
    for topic in now.topics:
        tip.add_metric([topic.name], topic.tip)
        kept.add_metric([topic.name], topic.kept)
    yield tip
    yield kept

    place = [*_GROUP, "partition"]
    lag = GaugeMetricFamily("pubsub_lag_events", "Events that a group has not passed", labels=place)
    behind = GaugeMetricFamily("pubsub_lag_seconds", "Age of the oldest event not passed; 0 if none", labels=place)
    members = GaugeMetricFamily("pubsub_members", "Processes that work for a group", labels=_GROUP)
    state = GaugeMetricFamily(
        "pubsub_group_status", "1 for the status that a group has, 0 for any other", labels=[*_GROUP, "status"]
    )
    dead = GaugeMetricFamily(
        "pubsub_dead_letters", "Open dead letters; counted up to 1,001 of a group", labels=[*_GROUP, "state"]
    )
    in_hand = GaugeMetricFamily(
        "pubsub_in_hand_seconds",
        "How long the longest call of a handler has taken that is in hand; 0 while none takes longer than a second",
        labels=_GROUP,
    )
    for group in now.groups:
        who = [group.group, group.topic]
        in_hand.add_metric(who, max((call.seconds for call in group.calls), default=0))
        for partition in group.partitions:
            lag.add_metric([*who, str(partition.partition)], partition.lag)
            behind.add_metric([*who, str(partition.partition)], partition.behind_s)
        members.add_metric(who, group.members)
        for each in Status.values:
            state.add_metric([*who, each], each == group.status)
        for kind in ("dead", "retrying", "parked"):
            dead.add_metric([*who, kind], getattr(group, kind))
    yield from (lag, behind, members, in_hand, state, dead)
    yield _problems(now)

    for name, help_text, value in (
        (
            "pubsub_oldest_transaction_seconds",
            "Age of the oldest open transaction of this database; 0 while none is older than 30 s",
            max((blocker.age_s or 0 for blocker in now.blockers if blocker.kind == "transaction"), default=0),
        ),
        (
            "pubsub_unnumbered_seconds",
            "Age of the oldest committed event without an offset; 0 if there is none",
            now.seconds_since(now.sequencer.waiting_since),
        ),
        (
            "pubsub_overdue_seconds",
            "For how long a delayed event should have been delivered; 0 if there is none",
            now.seconds_since(now.sequencer.overdue_since),
        ),
        ("pubsub_log_bytes", "What the log and its messages take on disk", now.sequencer.bytes),
    ):
        yield GaugeMetricFamily(name, help_text, value=value)


def _problems(now: SystemStatus) -> Metric:
    """Every kind of problem, also those that there are none of: an alert never loses its series."""
    family = GaugeMetricFamily(
        "pubsub_problems", "Problems, as the overview and `pubsub_status` show them", labels=["severity", "code"]
    )
    found = Counts(problem.code for problem in find_problems(now))
    for code, severity in CODES.items():
        family.add_metric([severity, code], found[code])
    return family


class _ProcessMetrics(Collector):
    """What this process counts, with what Prometheus's client knows of every process."""

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from REGISTRY.collect()


def everything(using: str | None = None, *, close: bool = False) -> CollectorRegistry:
    """All metrics there are, as an exporter of Prometheus's client takes them."""
    registry = CollectorRegistry()
    registry.register(_ProcessMetrics())
    registry.register(DatabaseMetrics(using, close=close))
    return registry


class Server:
    """Serves metrics until it is closed, or the process ends."""

    def __init__(self, port: int, address: str, using: str | None) -> None:
        self._server, self._thread = start_http_server(port, address, everything(using, close=True))
        self.port = int(self._server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(port: int, *, address: str = "127.0.0.1", using: str | None = None) -> Server:
    """Serves this process's metrics at ``http://address:port/metrics``, and counts from now on. Port 0: any free one.

    Everyone who reaches the port sees them, so it is this machine alone unless an address is given.

    >>> server = serve(0)
    >>> server.close()
    """
    instrument()
    return Server(port, address, using)


@method_decorator(never_cache, name="dispatch")
class Metrics(View):
    """The metrics as a page of this site, closed unless you open it. In a urlconf::

        path("metrics/", Metrics.as_view(permission=lambda request: request.user.is_staff))

    - ``permission``: a function of the request that says who may see them. Without one the answer is 403.
    - ``using``: the database with the outbox's tables, if it is not the one that the router chooses.
    """

    permission: Callable[[HttpRequest], Any] | None = None
    using: str | None = None

    http_method_names = ["get", "head", "options"]

    def get(self, request: HttpRequest) -> HttpResponse:
        if self.permission is None or not self.permission(request):
            return HttpResponseForbidden("You may not see the metrics of this site.\n", content_type="text/plain")
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return HttpResponse(encode(everything(self.using)), content_type=content_type)
