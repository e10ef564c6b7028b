"""Renewing leases: a thread renews those that its process holds, and holds a lock that shows that the process lives."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from django.db import connections

from pubsub.conf import conf
from pubsub.db.background import ListeningPart
from pubsub.db.sql import load
from pubsub.errors import PubSubError
from pubsub.subscriptions.task import PartitionKey

from .lease import HeldLease, show_alive

WAIT_TO_BE_SEEN_S = 1
"""How long a worker waits for that lock before it takes a lease. One that dies without it is believed to live on."""

FIRST_RETRY_S = 0.01
"""Practically at once: until there is another connection, other workers believe this one dead."""


class LeaseRenewer(ListeningPart):
    """Renews the leases of one process, once it is started."""

    thread_name = "pubsub-leases"
    when_failing = "leases cannot be renewed"

    def __init__(self, *, using: str, lease_s: float | None = None) -> None:
        self.lease_s = conf().lease_s if lease_s is None else lease_s
        if self.lease_s <= 0:
            raise PubSubError(f"lease_s must be positive, got {self.lease_s}.")
        super().__init__(using, retry_s=FIRST_RETRY_S, longest_retry_s=self.lease_s / 10)
        self.held: dict[PartitionKey, HeldLease] = {}
        self.lock_key: int | None = None
        """Of the lock that shows that this process lives; None where that cannot be shown."""
        self._seen = threading.Event()
        """Others can see that this worker lives, as well as they ever will."""

    def start(self, *, after_s: float = 0.0) -> None:
        """Begin; each delivery mode that needs leases may ask for it."""
        if not self.was_started:
            super().start(after_s=after_s)

    def wait_until_seen(self) -> None:
        if self.is_running:
            self._seen.wait(WAIT_TO_BE_SEEN_S)

    def renew(self, lease: HeldLease) -> None:
        """Renew, in the caller's thread, a lease that this part's own could not renew in time."""
        with connections[lease.task.using].cursor() as db:
            self._renew(db, [lease])

    def on_connect(self, connection: psycopg.Connection[Any]) -> None:
        self.lock_key = show_alive(connection)

    def step(self) -> float:
        self._renew(self.connection(), list(self.held.values()))
        self._seen.set()
        return self.lease_s / 3

    def let_go(self) -> None:
        self.lock_key = None
        self._seen.clear()
        super().let_go()

    def _renew(self, session: Any, held: Sequence[HeldLease]) -> None:
        """On a connection or a cursor, in autocommit."""
        if not held:
            return
        runs_out_at = time.monotonic() + self.lease_s
        groups, topics, partitions, epochs = zip(*((*lease.task.key, lease.epoch) for lease in held), strict=True)
        parameters = {
            "groups": list(groups),
            "topics": list(topics),
            "partitions": list(partitions),
            "epochs": list(epochs),
            "lock_key": self.lock_key,
            "lease_s": self.lease_s,
        }
        renewed = set()
        # One after the other has its lease moved on where the default isolation is strict: then once more.
        for again in (True, True, False):
            try:
                answer = session.execute(load("consuming/renew_leases"), parameters) or session
                renewed = {tuple(row) for row in answer.fetchall()}
                break
            except psycopg.errors.SerializationFailure:
                if not again:
                    raise
        for lease in held:
            if lease.task.key in renewed:
                lease.runs_out_at = runs_out_at
            else:
                lease.lost = True
