"""Moving a group's cursors: back, to handle events again; forward, to skip some. Never beyond the tip."""

import dataclasses
import datetime as dt
from collections.abc import Sequence
from typing import Any

from django.db import connections
from django.utils.translation import gettext as _

from pubsub.consuming.lease import leases_in_hand
from pubsub.db.audit import record
from pubsub.db.locks import lock_sequencer
from pubsub.db.sql import load
from pubsub.db.transactions import read_committed
from pubsub.delivery import Start
from pubsub.errors import Refused
from pubsub.models import ConsumerOffset, LogCounter, Status, Subscription

from .cursors import lock_cursors
from .groups import find

To = Start | str | int | dt.datetime
"""The oldest event still stored, or after all numbered events; an offset; the first event at or after a time."""

BEYOND_ANY_TIP = 2**63 - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class CursorMove:
    """What a seek does, or would do, to a group's cursor in one partition."""

    partition: int
    offset_before: int
    offset_after: int
    lag_before: int
    lag_after: int
    position_after: int
    passed_after: int
    in_use: str = ""
    """The worker that holds the partition by a lease. Only known in a preview."""

    @property
    def events(self) -> int:
        """How many events it moves forward, or back if negative. Events that the filter leaves out count too."""
        return self.lag_before - self.lag_after


def seek(
    topic: str,
    group: str,
    *,
    to: To | None = None,
    by: int | None = None,
    partitions: Sequence[int] | None = None,
    force: bool = False,
    wait_s: float = 30,
    actor: str,
    using: str,
    reason: str = "",
) -> list[CursorMove]:
    """Moves a group's cursors, in all partitions or in some, to a position or by a number of events in each.

    "latest" is exact: the group gets the events numbered after the move commits. An offset beyond the tip is refused;
    ``by`` stops at the tip and at the oldest event still stored. Nothing moves while a worker holds one of the
    partitions, unless ``force`` is given: then it waits for the worker's transaction, for at most ``wait_s`` seconds,
    and ends leases. Events that the group meets again are handled again.

    A seek also acknowledges the events that the group has missed, so they are no longer reported; ``by=0`` does only
    that.

    >>> seek("default", "missing", to="latest", actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    target = _Target.of(to, by)
    with read_committed(using) as cursor:
        subscription = _movable(topic, group, using)
        _check_partitions(subscription, partitions, using)
        target = target.resolved(cursor, subscription)
        lock_cursors(topic, subscription.topic_id, group, partitions, using=using, force=force, wait_s=wait_s)
        if target.to == "latest":
            # Nothing is numbered until this has committed.
            lock_sequencer(cursor)
        moves = target.moves(cursor, subscription, partitions)
        _apply(cursor, subscription, moves, "seek", target.described(), actor=actor, using=using, reason=reason)
    return moves


def preview_seek(
    topic: str,
    group: str,
    *,
    to: To | None = None,
    by: int | None = None,
    partitions: Sequence[int] | None = None,
    using: str,
) -> list[CursorMove]:
    """What :func:`seek` would do now. Takes no lock, and holds up no worker.

    >>> preview_seek("default", "missing", by=-10, using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    target = _Target.of(to, by)
    subscription = _movable(topic, group, using)
    _check_partitions(subscription, partitions, using)
    with connections[using].cursor() as cursor:
        moves = target.resolved(cursor, subscription).moves(cursor, subscription, partitions)
    return _with_leases(subscription, moves, using)


def force_complete(
    topic: str,
    group: str,
    *,
    older_than: dt.timedelta,
    force: bool = False,
    wait_s: float = 30,
    actor: str,
    using: str,
    reason: str = "",
) -> list[CursorMove]:
    """Skips a group's unread events that are older than this, by the database's clock. Never moves back.

    It stops before the first younger event. Dead letters stay.

    >>> force_complete("default", "missing", older_than=dt.timedelta(days=3), actor="doctest", using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    with read_committed(using) as cursor:
        subscription = _movable(topic, group, using)
        target = _Target.of(_ago(cursor, older_than), None).resolved(cursor, subscription)
        lock_cursors(topic, subscription.topic_id, group, using=using, force=force, wait_s=wait_s)
        moves = [move for move in target.moves(cursor, subscription, None) if move.events > 0]
        described = {**target.described(), "older_than": older_than}
        _apply(cursor, subscription, moves, "force-complete", described, actor=actor, using=using, reason=reason)
    return moves


def preview_force_complete(topic: str, group: str, *, older_than: dt.timedelta, using: str) -> list[CursorMove]:
    """What :func:`force_complete` would do now, without any lock.

    >>> preview_force_complete("default", "missing", older_than=dt.timedelta(days=3), using="default")
    Traceback (most recent call last):
    pubsub.errors.UnknownGroup: ...
    """
    subscription = _movable(topic, group, using)
    with connections[using].cursor() as cursor:
        target = _Target.of(_ago(cursor, older_than), None).resolved(cursor, subscription)
        moves = [move for move in target.moves(cursor, subscription, None) if move.events > 0]
    return _with_leases(subscription, moves, using)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Target:
    """Where to move: as given, and as an offset."""

    to: To | None
    by: int | None
    offset: int | None = None

    @classmethod
    def of(cls, to: To | None, by: int | None) -> "_Target":
        if (to is None) == (by is None):
            raise Refused(_("Give either where to move, or by how many events."))
        if isinstance(to, dt.datetime):
            if to.tzinfo is None:
                raise Refused(
                    _("A time to move to needs a time zone, such as 2030-01-31T12:00:00+00:00, not %(time)s.")
                    % {"time": to}
                )
        elif to is not None and to not in ("earliest", "latest") and (not _is_whole(to) or to < 1):  # type: ignore[operator]
            raise Refused(
                _('Move to "earliest", "latest", a time or an offset of at least 1, not %(to)r.') % {"to": to}
            )
        if by is not None and not _is_whole(by):
            raise Refused(_("The number of events to move by must be a whole number, not %(by)r.") % {"by": by})
        return cls(to=to, by=by)

    def resolved(self, cursor: Any, subscription: Subscription) -> "_Target":
        if self.by is not None:
            return self
        if isinstance(self.to, dt.datetime):
            # Before any lock is taken: later events cannot change which one is the first.
            cursor.execute("SELECT pubsub_offset_at_v1(%s, %s)", [subscription.topic_id, self.to])
            (offset,) = cursor.fetchone()
            return dataclasses.replace(self, offset=BEYOND_ANY_TIP if offset is None else offset)
        if isinstance(self.to, str):
            return dataclasses.replace(self, offset=1 if self.to == "earliest" else BEYOND_ANY_TIP)
        assert self.to is not None  # noqa: S101
        counter = LogCounter.objects.using(subscription._state.db).filter(topic=subscription.topic_id).first()
        tip = counter.next_offset - 1 if counter else 0
        if self.to > tip + 1:
            raise Refused(
                _(
                    'Offset %(offset)s is beyond the tip of topic "%(topic)s", which is %(tip)s. To skip everything, '
                    'use "latest".'
                )
                % {"offset": self.to, "topic": subscription.topic, "tip": tip}
            )
        return dataclasses.replace(self, offset=self.to)

    def moves(self, cursor: Any, subscription: Subscription, partitions: Sequence[int] | None) -> list[CursorMove]:
        statement = "find_cursors_at_offset" if self.by is None else "find_cursors_by_steps"
        cursor.execute(
            load(f"control/{statement}"),
            {
                "topic_id": subscription.topic_id,
                "group_id": subscription.group_id,
                "partitions": None if partitions is None else list(partitions),
                "offset": self.offset,
                "by": None if self.by is None else max(-BEYOND_ANY_TIP, min(self.by, BEYOND_ANY_TIP)),
            },
        )
        return [
            CursorMove(
                partition=partition,
                offset_before=offset,
                offset_after=to_offset,
                lag_before=max(0, entries - passed),
                lag_after=max(0, entries - to_passed),
                position_after=to_position,
                passed_after=to_passed,
            )
            for partition, offset, passed, entries, to_offset, to_position, to_passed in cursor.fetchall()
        ]

    def described(self) -> dict[str, Any]:
        return {"by": self.by} if self.by is not None else {"to": self.to}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _ago(cursor: Any, older_than: dt.timedelta) -> dt.datetime:
    if not isinstance(older_than, dt.timedelta) or older_than < dt.timedelta(0):
        raise Refused(
            _("older_than must be a timedelta that is not negative, such as timedelta(days=3), not %(given)r.")
            % {"given": older_than}
        )
    # Nothing is older than a thousand years, and timestamps do not reach back much further.
    cursor.execute("SELECT clock_timestamp() - least(%s::interval, '1000 years')", [older_than])
    moment: dt.datetime = cursor.fetchone()[0]
    return moment


def _movable(topic: str, group: str, using: str) -> Subscription:
    subscription = find(topic, group, using)
    if subscription.status == Status.CANCELLED:
        raise Refused(
            _('Group "%(group)s" on topic "%(topic)s" is cancelled for good: it has no cursors to move.')
            % {"group": group, "topic": topic}
        )
    return subscription


def _check_partitions(subscription: Subscription, partitions: Sequence[int] | None, using: str) -> None:
    if partitions is None:
        return
    cursors = ConsumerOffset.objects.using(using).filter(topic_id=subscription.topic_id, group_id=subscription.group_id)
    known = sorted(cursors.values_list("partition_id", flat=True))
    if unknown := sorted(set(partitions) - set(known)):
        raise Refused(
            _('Group "%(group)s" has no partition %(unknown)s of topic "%(topic)s"; it has %(known)s.')
            % {
                "group": subscription.group_id,
                "unknown": ", ".join(map(str, unknown)),
                "topic": subscription.topic,
                "known": ", ".join(map(str, known)) or _("none"),
            }
        )
    if not partitions:
        raise Refused(_("Give at least one partition, or omit them to mean all."))


def _with_leases(subscription: Subscription, moves: list[CursorMove], using: str) -> list[CursorMove]:
    leases = leases_in_hand(using, topic_id=subscription.topic_id, group=subscription.group_id)
    return [dataclasses.replace(move, in_use=leases.get(move.partition, "")) for move in moves]


def _apply(
    cursor: Any,
    subscription: Subscription,
    moves: list[CursorMove],
    action: str,
    target: dict[str, Any],
    *,
    actor: str,
    using: str,
    reason: str,
) -> None:
    if not moves:
        return
    here = {"topic_id": subscription.topic_id, "group_id": subscription.group_id}
    cursor.execute(
        load("control/move_cursors"),
        {
            **here,
            "partitions": [move.partition for move in moves],
            "offsets": [move.offset_after for move in moves],
            "positions": [move.position_after for move in moves],
            "passed": [move.passed_after for move in moves],
        },
    )
    cursor.execute(load("control/reopen_resizes"), here)
    # An operator who moves a group knows what it missed. The audit log keeps it.
    Subscription.objects.using(using).filter(pk=subscription.pk, missed__isnull=False).update(missed=None)
    record(
        action,
        actor=actor,
        using=using,
        topic=subscription.topic.name,
        group=subscription.group_id,
        reason=reason,
        before={
            "next_offsets": {str(move.partition): move.offset_before for move in moves},
            "lag": sum(move.lag_before for move in moves),
            **({"missed": subscription.missed} if subscription.missed else {}),
        },
        after={
            "next_offsets": {str(move.partition): move.offset_after for move in moves},
            "lag": sum(move.lag_after for move in moves),
            **target,
        },
    )
