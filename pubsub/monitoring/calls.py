"""What workers have in hand for long, and who waits for them.

Nothing here outlives a worker: only those count that are connected at this moment.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pubsub.db.locks import WORKERS
from pubsub.db.sql import load
from pubsub.db.transactions import run_uncompiled

from .facts import CallInHand


def calls_in_hand(using: str) -> tuple[CallInHand, ...]:
    """Calls of handlers that have taken longer than a second, the oldest first."""
    is_alive = load("monitoring/worker_is_alive")
    names, rows = run_uncompiled(using, load("monitoring/status_calls", is_alive=is_alive), {"family": WORKERS})
    return tuple(CallInHand(**dict(zip(names, row, strict=True))) for row in rows)


def waiting_for(using: str, calls: Sequence[CallInHand]) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The groups, by topic and group, all of whose workers hang in these calls, and which workers those are."""
    hanging = [call for call in calls if call.hangs]
    threads = {call.worker_id: call.threads for call in hanging}
    full = [worker for worker, count in Counter(call.worker_id for call in hanging).items() if count >= threads[worker]]
    if not full:
        return {}
    parameters: dict[str, Any] = {"workers": full, "family": WORKERS}
    is_alive = load("monitoring/worker_is_alive")
    _, rows = run_uncompiled(using, load("monitoring/status_waiting", is_alive=is_alive), parameters)
    return {(topic, group): tuple(workers) for topic, group, workers in rows}
