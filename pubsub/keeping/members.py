"""Members: the processes that work for a group say so now and then, and a group that nobody works for is given up.

Each process is a row for each topic and group. A member that stops in good order takes its rows away; one that crashes
leaves them behind, silent. A group is DEAD when its last member, too, has missed so many heartbeats in a row; it then
holds nothing back any more. The first member that comes back brings it to life, and is told what it has missed.
"""

import datetime as dt
import json
import logging
import os
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import connections

from pubsub.conf import conf
from pubsub.observing.journal import record
from pubsub.sql import load
from pubsub.transactions import read_committed

from .retention import describe_missed

logger = logging.getLogger("pubsub.members")

ACTOR = "heartbeats"

DEFAULT_INTERVAL_S = 60.0

SHORTEST_INTERVAL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What watching has changed about a group."""

    topic: str
    group: str
    misses: int
    status: str


class Membership:
    """A process's membership of its groups: from `start()` to `stop()`, with a heartbeat in a thread of its own.

    The thread is apart from the handlers, so that a long one is not taken for a crash. A heartbeat that fails is
    reported, and the next one tried.

    >>> membership = Membership("default", "doctest-1", [("default", "nobody")])
    >>> membership.start()
    >>> membership.stop()
    """

    def __init__(self, using: str, worker_id: str, subscriptions: Iterable[tuple[str, str]]) -> None:
        """`subscriptions` are pairs of topic and group, as declared; those that are not enrolled yet join later."""
        self.using = using
        self.worker_id = worker_id
        self.interval_s = DEFAULT_INTERVAL_S
        self.beats = 0
        self._subscriptions = sorted(set(subscriptions))
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Joins, and begins to beat. A database that is away is waited for."""
        self._thread = threading.Thread(target=self._run, name="pubsub-heartbeat", daemon=True)
        self._step()
        self._thread.start()

    def stop(self) -> None:
        """Leaves in good order: the group misses nothing."""
        self._stopping.set()
        self._wake.set()
        if self._thread is None:
            return
        if self._thread.ident:
            self._thread.join()
        try:
            with connections[self.using].cursor() as cursor:
                cursor.execute(load("leave_groups"), {"worker_id": self.worker_id})
        except Exception as error:
            logger.warning("could not leave the groups, so they seem silent for a while: %s", error)

    def reads(self, subscriptions: Iterable[tuple[str, str]]) -> None:
        """Changes what the process works for, say because a topic has been made that a pattern matches."""
        wanted = sorted(set(subscriptions))
        if wanted != self._subscriptions:
            self._subscriptions = wanted
            self._wake.set()

    def beat(self) -> None:
        """One step: says that the process lives, joins where it is no member yet, and revives what is dead."""
        with connections[self.using].cursor() as cursor:
            cursor.execute(load("beat"), self._parameters)
            count, interval_s, dead = cursor.fetchone()
        if count < len(self._subscriptions) or dead:
            self._join()
        if interval_s is not None:
            self.interval_s = max(float(interval_s), SHORTEST_INTERVAL_S)
        self.beats += 1

    @property
    def _parameters(self) -> dict[str, Any]:
        return {
            "worker_id": self.worker_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "topics": [topic for topic, _ in self._subscriptions],
            "groups": [group for _, group in self._subscriptions],
        }

    def _join(self) -> None:
        with read_committed(self.using) as cursor:
            cursor.execute(load("join_group"), self._parameters)
            cursor.execute(load("revive"), self._parameters)
            revived = cursor.fetchall()
            for topic, group, missed in revived:
                ranges = json.loads(missed) if missed else {}
                told = f"it has missed {describe_missed(ranges)}" if ranges else "it continues where it was"
                record(
                    "revive",
                    actor=ACTOR,
                    using=self.using,
                    topic=topic,
                    group=group,
                    reason=f"member {self.worker_id} is back",
                    before={"status": "DEAD", "missed": ranges or None},
                    after={"status": "ACTIVE"},
                )
                logger.warning(
                    "group %s was dead on topic %s and is back: %s",
                    group,
                    topic,
                    told,
                    extra={"group": group, "topic": topic, "missed": ranges},
                )
            # How often to beat, from the rows that are there now.
            cursor.execute(load("beat"), self._parameters)
            _, interval_s, _ = cursor.fetchone()
            if interval_s is not None:
                self.interval_s = max(float(interval_s), SHORTEST_INTERVAL_S)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._wake.wait(self.interval_s)
                self._wake.clear()
                if not self._stopping.is_set():
                    self._step()
        finally:
            connections[self.using].close()

    def _step(self) -> None:
        try:
            connections[self.using].close_if_unusable_or_obsolete()
            self.beat()
        except Exception as error:
            logger.warning("no heartbeat (%s); the next one in %.0f s", error, self.interval_s)
            connections[self.using].close()


def watch_groups(using: str) -> list[Verdict]:
    """Counts the heartbeats that groups have missed, and declares those dead that have missed too many in a row.

    >>> watch_groups("default")
    []
    """
    verdicts = []
    with read_committed(using) as cursor:
        cursor.execute(
            load("watch_groups"),
            {"dead_after": conf().dead_after_misses, "silence_s": conf().dead_after_silence_s},
        )
        for topic, group, misses, status, members, heard_at in cursor.fetchall():
            verdicts.append(Verdict(topic=topic, group=group, misses=misses, status=status))
            if status == "DEAD":
                _tell_death(using, topic, group, members, heard_at)
            elif misses:
                logger.warning("group %s on topic %s has missed its heartbeats %d times in a row", group, topic, misses)
    return verdicts


def _tell_death(using: str, topic: str, group: str, members: int, heard_at: dt.datetime) -> None:
    who = f"none of its {members} members has been heard of" if members else "it has no members, and was not heard of"
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
        "group %s on topic %s is dead and holds nothing back any more: %s",
        group,
        topic,
        reason,
        extra={"group": group, "topic": topic},
    )


def forget_members(using: str) -> int:
    """Removes members that crashed long ago. Returns how many."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            load("forget_members"),
            {"older_s": conf().member_retention_s, "dead_after": conf().dead_after_misses},
        )
        return int(cursor.rowcount)
