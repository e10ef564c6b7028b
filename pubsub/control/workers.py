"""Stopping a worker: politely, as SIGTERM does, or at once, by ending its database sessions.

A process that hangs cannot be ended from the database. But without its sessions it holds no partition, and can commit
nothing; it ends when its handler comes back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import ProgrammingError, connections, transaction
from django.utils.translation import gettext as _

from pubsub.db.audit import record
from pubsub.db.errors import INSUFFICIENT_PRIVILEGE, sqlstate
from pubsub.db.sql import load
from pubsub.db.transactions import read_committed
from pubsub.errors import Refused, UnknownWorker
from pubsub.monitoring.facts import CallInHand
from pubsub.monitoring.workers import WorkerStatus, read_workers
from pubsub.suggest import hint


@dataclass(frozen=True, kw_only=True)
class WorkerStop:
    """What stopping a worker means, or has meant."""

    worker: WorkerStatus
    now: bool
    """Whether its sessions are ended, too."""
    leases: int = 0
    """How many of its leases were ended."""
    was_asked: bool = False
    """Whether it had been asked before."""

    @property
    def sessions(self) -> tuple[int, ...]:
        """The database sessions in which it has calls in hand."""
        return tuple(call.session_pid for call in self.worker.calls if call.session_pid) if self.now else ()


def preview_stop(worker_id: str, *, now: bool = False, using: str) -> WorkerStop:
    """What stopping it would mean. Refused where it does not live any more.

    >>> preview_stop("missing", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownWorker: There is no worker "missing". There are: none.
    """
    workers = read_workers(using)
    found = next((it for it in workers if it.worker_id == worker_id), None)
    if found is None:
        known = hint(worker_id, [it.worker_id for it in workers])
        raise UnknownWorker(_('There is no worker "%(worker)s". %(known)s') % {"worker": worker_id, "known": known})
    if not found.is_alive:
        raise Refused(
            _('Worker "%(worker)s" is not connected any more: it holds no partition, and there is nothing to stop.')
            % {"worker": worker_id}
        )
    return WorkerStop(worker=found, now=now)


def stop_worker(worker_id: str, *, now: bool = False, actor: str, using: str, reason: str = "") -> WorkerStop:
    """Asks a worker to stop: it finishes its batches, and begins no others. With ``now``, the database sessions of the
    calls that it has in hand are ended, and its leases: other workers go on there, and count that as its death.

    >>> stop_worker("missing", actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownWorker: There is no worker "missing". There are: none.
    """
    plan = preview_stop(worker_id, now=now, using=using)
    with read_committed(using) as cursor:
        cursor.execute(load("control/ask_worker_to_stop"), {"worker_id": worker_id})
        was_asked = bool((cursor.fetchone() or (False,))[0])
        leases = 0
        if now:
            cursor.execute(load("control/end_leases"), {"worker_id": worker_id})
            (leases,) = cursor.fetchone()
        after: dict[str, Any] = {"worker": worker_id, "now": now, "sessions": plan.sessions, "leases": leases}
        record("stop-worker", actor=actor, using=using, reason=reason, after=after)
        end_sessions(plan.worker.calls if now else (), using)
    return WorkerStop(worker=plan.worker, now=now, leases=leases, was_asked=was_asked)


def end_sessions(calls: Sequence[CallInHand], using: str) -> None:
    """Ends the database sessions of these calls, and waits for each to be gone."""
    for call in calls:
        if call.session_pid is None:
            continue
        asked: dict[str, Any] = {"pid": call.session_pid, "since": call.since}
        is_shown = True
        try:
            with transaction.atomic(using=using), connections[using].cursor() as cursor:
                cursor.execute(load("control/end_session"), asked)
                is_shown, _ended = cursor.fetchone() or (True, True)
        except ProgrammingError as error:
            if sqlstate(error) != INSUFFICIENT_PRIVILEGE:
                raise
            raise Refused(_may_not_end(call)) from error
        if not is_shown:
            raise Refused(_may_not_end(call))


def _may_not_end(call: CallInHand) -> str:
    return _(
        "This database role may not end session %(pid)s of worker %(worker)s: use the worker's own role, or GRANT "
        "pg_signal_backend, pg_read_all_stats to this one. Nothing was changed."
    ) % {"pid": call.session_pid, "worker": call.worker_id}
