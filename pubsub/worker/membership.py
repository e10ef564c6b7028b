"""Members: the processes that work for a group. They send heartbeats, and a group without any is given up.

Each process has a row for each topic and group. A member that stops in good order removes its rows; one that crashes
leaves them behind, silent. A group is DEAD once its last member, too, has missed so many heartbeats in a row; retention
then no longer waits for it. The first member that rejoins makes it ACTIVE again, and logs what it has missed.
"""

import datetime as dt
import json
import logging
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import connections

from pubsub.conf import conf
from pubsub.db.audit import record
from pubsub.db.background import BackgroundPart
from pubsub.db.locks import WORKERS
from pubsub.db.sql import load
from pubsub.db.transactions import read_committed
from pubsub.errors import PubSubError
from pubsub.retention.missed import describe_missed

logger = logging.getLogger(__name__)

ACTOR = "heartbeats"

DEFAULT_INTERVAL_S = 60.0

SHORTEST_INTERVAL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class MissedHeartbeats:
    """A change in how many heartbeats a group has missed in a row, and its status after it."""

    topic: str
    group: str
    misses: int
    status: str


class Membership(BackgroundPart):
    """A process's membership of its groups, from `start()` to `stop()`.

    Its thread is apart from the handlers, so that a long one is not taken for a crash.

    >>> membership = Membership("default", "doctest-1", [("default", "doctest")])
    >>> membership.start()
    >>> membership.stop()
    """

    thread_name = "pubsub-heartbeat"
    when_failing = "no heartbeat"

    def __init__(self, using: str, worker_id: str, subscriptions: Iterable[tuple[str, str]]) -> None:
        """`subscriptions` are pairs of topic and group, as declared; those not registered yet are joined later."""
        super().__init__(using)
        if not worker_id:
            raise PubSubError(f"worker_id must be a name, got {worker_id!r}.")
        self.worker_id = worker_id
        self.interval_s = DEFAULT_INTERVAL_S
        self.heartbeats = 0
        """How many have succeeded."""
        self._subscriptions = sorted(set(subscriptions))

    def start(self, *, after_s: float = 0.0) -> None:
        """Join, and then go on in the background. If the database is away, it joins as soon as it is back."""
        super().start(after_s=self.attempt() or after_s)

    def stop(self, *, wait: bool = True) -> None:
        """Leave in good order: the group misses nothing."""
        super().stop(wait=wait)
        if not self.was_started:
            return
        try:
            with connections[self.using].cursor() as cursor:
                cursor.execute(load("worker/leave_groups"), {"worker_id": self.worker_id})
        except Exception as error:
            logger.warning("could not leave the groups (%s); they count as silent for a while", error)

    def reads(self, subscriptions: Iterable[tuple[str, str]]) -> None:
        """Change what the process works for, say because a topic was created that a pattern matches."""
        wanted = sorted(set(subscriptions))
        if wanted != self._subscriptions:
            self._subscriptions = wanted
            self.wake()

    def step(self) -> float:
        """Send a heartbeat; join where the process is no member yet, and rejoin groups that are dead."""
        connections[self.using].close_if_unusable_or_obsolete()
        with connections[self.using].cursor() as cursor:
            count, has_dead = self._send_heartbeat(cursor)
        if count < len(self._subscriptions) or has_dead:
            self._join()
        self.heartbeats += 1
        return self.interval_s

    def _send_heartbeat(self, cursor: Any) -> tuple[int, bool]:
        """Returns for how many groups it counts, and whether one of them is dead."""
        cursor.execute(load("worker/heartbeat"), self._parameters)
        count, interval_s, has_dead = cursor.fetchone()
        if interval_s is not None:
            self.interval_s = max(float(interval_s), SHORTEST_INTERVAL_S)
        return count, has_dead

    def _join(self) -> None:
        with read_committed(self.using) as cursor:
            cursor.execute(load("worker/join_groups"), self._parameters)
            cursor.execute(load("worker/rejoin_dead_groups"), self._parameters)
            for topic, group, missed in cursor.fetchall():
                self._note_rejoined(topic, group, json.loads(missed) if missed else {})
            self._send_heartbeat(cursor)  # for the interval of the rows that are there now

    def _note_rejoined(self, topic: str, group: str, missed: dict[str, list[int]]) -> None:
        record(
            "rejoin",
            actor=ACTOR,
            using=self.using,
            topic=topic,
            group=group,
            reason=f"member {self.worker_id} is back",
            before={"status": "DEAD", "missed": missed or None},
            after={"status": "ACTIVE"},
        )
        logger.warning(
            "group %s was dead on topic %s and is back: %s",
            group,
            topic,
            f"it has missed {describe_missed(missed)}" if missed else "it continues where it was",
            extra={"group": group, "topic": topic, "missed": missed},
        )

    @property
    def _parameters(self) -> dict[str, Any]:
        return {
            "worker_id": self.worker_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "topics": [topic for topic, _ in self._subscriptions],
            "groups": [group for _, group in self._subscriptions],
        }


def watch_groups(using: str) -> list[MissedHeartbeats]:
    """Count the heartbeats that groups have missed, and declare those dead that have missed too many in a row.

    >>> watch_groups("default")
    []
    """
    changes = []
    with read_committed(using) as cursor:
        cursor.execute(
            load("worker/watch_groups"),
            {"dead_after": conf().dead_after_misses, "silence_s": conf().dead_after_silence_s},
        )
        for topic, group, misses, status, members, heard_at in cursor.fetchall():
            changes.append(MissedHeartbeats(topic=topic, group=group, misses=misses, status=status))
            if status == "DEAD":
                _note_death(using, topic, group, members, heard_at)
            elif misses:
                logger.warning("group %s on topic %s is missing heartbeats: %d in a row", group, topic, misses)
    return changes


def _note_death(using: str, topic: str, group: str, members: int, heard_at: dt.datetime) -> None:
    who = f"none of its {members} members has sent a heartbeat" if members else "it has no members, and has not moved"
    reason = f"{who} since {heard_at:%Y-%m-%d %H:%M:%S %Z}"
    record(
        "dead",
        actor=ACTOR,
        using=using,
        topic=topic,
        group=group,
        reason=reason,
        before={"status": "ACTIVE"},
        after={"status": "DEAD"},
    )
    logger.error(
        "group %s on topic %s is dead, and retention no longer waits for it: %s",
        group,
        topic,
        reason,
        extra={"group": group, "topic": topic},
    )


def forget_members(using: str) -> int:
    """Remove members, and workers, that crashed long ago. Returns how many members."""
    older_s = conf().member_retention_s
    with connections[using].cursor() as cursor:
        cursor.execute(load("worker/forget_members"), {"older_s": older_s, "dead_after": conf().dead_after_misses})
        count = int(cursor.rowcount)
        cursor.execute(load("worker/forget_workers"), {"older_s": older_s, "family": WORKERS})
    return count
