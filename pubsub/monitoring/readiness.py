"""Whether this site is ready to serve, for load balancers and orchestrators.

It is ready where the database answers, this app's migrations are applied, and what is published gets numbered. The
answer is yes or no; the reasons are logged, and shown to those who may see them.
"""

import functools
import logging
import pkgutil
import time
from collections.abc import Callable
from typing import Any

from django.db import Error, connections, router, transaction
from django.http import HttpRequest, JsonResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.generic import View

from pubsub import migrations
from pubsub.conf import conf
from pubsub.db.sql import load
from pubsub.errors import PubSubError
from pubsub.models import OutboxMessage

logger = logging.getLogger(__name__)

ANSWER_WITHIN_MS = 2000
"""A database that takes longer does not answer."""


class Watch:
    """Remembers for how long the same work has been left undone. One look cannot tell late from stuck."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: tuple[str, float] | None = None

    def look(self, undone: str | None) -> float:
        """Seconds since this was seen undone first."""
        if undone is None:
            self._seen = None
            return 0
        if self._seen is None or self._seen[0] != undone:
            self._seen = undone, self._clock()
        return self._clock() - self._seen[1]


@functools.cache
def watch(using: str) -> Watch:
    return Watch()


def problems(using: str, watched: Watch | None = None) -> dict[str, str]:
    """What is not as it must be, by what it is; nothing, if this site is ready.

    >>> problems("default")
    {}
    """
    try:
        # In a transaction, so that the settings go with it, also through a pooler.
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {ANSWER_WITHIN_MS}; SET LOCAL enable_seqscan = off")
            missing = _missing_migrations(cursor)
            if missing:
                return {"migrations": f"not applied: {', '.join(missing)}"}
            cursor.execute(load("monitoring/oldest_unnumbered"))
            (undone,) = cursor.fetchone() or ("the sequencer's row is missing",)
    except (Error, OSError) as error:
        return {"database": " ".join(str(error).split()) or type(error).__name__}
    stuck_s = (watched or watch(using)).look(undone)
    if stuck_s >= conf().sequencer_stuck_s:
        return {"numbering": f"what was published has not been numbered for {stuck_s:.0f} s: is any consumer running?"}
    return {}


def _missing_migrations(cursor: Any) -> list[str]:
    cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
    if cursor.fetchone() != (True,):
        return sorted(_known_migrations())
    cursor.execute("SELECT name FROM django_migrations WHERE app = 'pubsub'")
    return sorted(_known_migrations() - {name for (name,) in cursor.fetchall()})


@functools.cache
def _known_migrations() -> frozenset[str]:
    names = (module.name for module in pkgutil.iter_modules(migrations.__path__))
    return frozenset(name for name in names if name[0] not in "_~")


@method_decorator(never_cache, name="dispatch")
class Readiness(View):
    """200 or 503, as JSON. In a urlconf::

        path("ready/", Readiness.as_view(details=lambda request: request.META["REMOTE_ADDR"] == "10.0.0.5"))

    - ``details``: a function of the request that says who may see the reasons; no one, if absent. It is called where
      the database may be out of reach, so it must not need it.
    - ``using``: the database with the outbox's tables, if it is not the one that the router chooses.
    """

    details: Callable[[HttpRequest], Any] | None = None
    using: str | None = None

    http_method_names = ["get", "head", "options"]

    def get(self, request: HttpRequest) -> JsonResponse:
        found = problems(self.using or router.db_for_write(OutboxMessage))
        for name, reason in found.items():
            logger.warning("not ready: %s: %s", name, reason)
        answer: dict[str, Any] = {"ready": not found}
        if found and self._may_see_details(request):
            answer["problems"] = found
        return JsonResponse(answer, status=503 if found else 200)

    def _may_see_details(self, request: HttpRequest) -> bool:
        if self.details is None:
            return False
        try:
            return bool(self.details(request))
        except (Error, PubSubError):
            return False
