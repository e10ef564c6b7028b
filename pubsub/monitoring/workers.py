"""All workers: what they work for, whether they live, and what they have in hand.

>>> read_workers("default")
[]
"""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from pubsub.db.locks import WORKERS
from pubsub.db.sql import load
from pubsub.db.transactions import run_uncompiled

from .calls import calls_in_hand
from .facts import CallInHand


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    worker_id: str
    host: str
    pid: int
    threads: int
    started_at: dt.datetime
    stop_requested_at: dt.datetime | None
    heard_at: dt.datetime | None
    """Its last heartbeat; null where it is a member of no group."""
    groups: tuple[tuple[str, str], ...]
    """What it works for: topic and group."""
    is_alive: bool
    heard_s: float
    """For how long it has lived, or has been silent."""
    calls: tuple[CallInHand, ...] = ()
    """What it has had in hand for longer than a second; nothing where it does not live."""

    @property
    def state(self) -> str:
        if not self.is_alive:
            return "silent"
        return "stopping" if self.stop_requested_at else "alive"

    def as_data(self) -> dict[str, Any]:
        """What `--format json` prints."""
        data = {**vars(self), "state": self.state, "calls": [vars(call) for call in self.calls]}
        data["groups"] = [{"topic": topic, "group": group} for topic, group in self.groups]
        return data


def read_workers(using: str) -> list[WorkerStatus]:
    """Every worker, those that live first."""
    statement = load("monitoring/workers", is_alive=load("monitoring/worker_is_alive"))
    names, rows = run_uncompiled(using, statement, {"family": WORKERS})
    found = [dict(zip(names, row, strict=True)) for row in rows]
    calls = calls_in_hand(using) if found else ()
    return [_worker(row, calls) for row in found]


def _worker(row: dict[str, Any], calls: tuple[CallInHand, ...]) -> WorkerStatus:
    now = row.pop("now")
    since = row["started_at"] if row["is_alive"] else row["heard_at"] or row["started_at"]
    groups = tuple((topic, group) for topic, group in row.pop("groups"))
    return WorkerStatus(
        heard_s=max(0.0, (now - since).total_seconds()),
        groups=groups,
        calls=tuple(call for call in calls if call.worker_id == row["worker_id"]),
        **row,
    )
