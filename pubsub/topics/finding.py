"""Topics by name: looked up once, refused with a suggestion, created where that is the policy."""

import difflib
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connections
from django.utils.translation import gettext as _

from pubsub.conf import conf
from pubsub.errors import InvalidSetting, InvalidTopic, NoSubscribers, UnknownTopic
from pubsub.observing.journal import record
from pubsub.sql import load

from .options import checked

DEFAULT_TOPIC = "default"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")
_ids: dict[tuple[str, str], int] = {}
_open: dict[tuple[str, str], tuple[int, float]] = {}
"""Topics that may be published to, and until when this process believes so."""

LOOK_AGAIN_S = 30
"""How soon a process that publishes notices that a topic has got another policy, or is another one of the same name."""

SUBSCRIBED_FOR_S = 1
"""How soon it notices that the last group of a topic is gone, where the topic refuses events without one."""

_MADE_WITH = ("name", "total_partitions", "retention", "semantics")
"""What the first migration knows. The rest is set when all have been applied."""


def topic_id(name: str, using: str, *, make: bool = True) -> int:
    """The number of a topic. Numbers are never reused, so a process asks the database once.

    One that does not exist is made where that is the policy, unless somebody only wants to look (`make=False`).
    """
    found = _ids.get((using, name))
    if found is None:
        found, for_good = _look_up(name, using, make)
        if for_good:
            _ids[using, name] = found
    return found


def topic_to_publish_to(name: str, using: str) -> int:
    """The number of a topic, or an error while it refuses events because no group would get them.

    What it answers is believed for a while, so that publishing costs no question; a refusal never is. So a process
    refuses SUBSCRIBED_FOR_S seconds after the last group has gone, at the latest, and publishes at once when there is
    one again. Topics without that policy are asked about every LOOK_AGAIN_S seconds.
    """
    found = _open.get((using, name))
    if found is not None and time.monotonic() < found[1]:
        return found[0]
    if not _can_be_asked_for(name):
        check_name(name)
    with connections[using].cursor() as cursor:
        cursor.execute(load("find_topic_to_publish_to"), {"name": name})
        row = cursor.fetchone()
    if row is None:
        _ids.pop((using, name), None)  # somebody has removed it
        return topic_id(name, using)  # makes it, or says what there is
    number, for_good, guarded, refuses = row
    if refuses:
        raise NoSubscribers(
            _(
                'Topic "%(topic)s" refuses events while no group is subscribed to it, and none is. Start a consumer '
                'for it, resume one that is dead, or set its zero_subscribers to "keep".'
            )
            % {"topic": name}
        )
    if for_good:
        _open[using, name] = int(number), time.monotonic() + (SUBSCRIBED_FOR_S if guarded else LOOK_AGAIN_S)
    return int(number)


def forget_ids(**kwargs: Any) -> None:
    _ids.clear()
    _open.clear()


def _can_be_asked_for(name: Any) -> bool:
    """Whether PostgreSQL could read the name: a topic that was not made here may have nearly any."""
    try:
        return isinstance(name, str) and "\x00" not in name and bool(name.encode())
    except UnicodeEncodeError:
        return False


def check_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UnknownTopic(
            _(
                "%(name)r cannot be the name of a topic: up to 200 letters, digits and the signs . _ : - are allowed, "
                'such as "orders.events".'
            )
            % {"name": name}
        )
    return name


def _look_up(name: str, using: str, make: bool) -> tuple[int, bool]:
    """The number, and whether it will stay: a topic made in the open transaction may yet be undone."""
    check_name(name)
    with connections[using].cursor() as cursor:
        # now() is the time at which the open transaction began: what it has made itself is not older.
        cursor.execute("SELECT id, created_at < now() FROM outbox_topics WHERE name = %s", [name])
        row = cursor.fetchone()
        if row:
            return int(row[0]), bool(row[1])
    if make and conf().unknown_topic == "create":
        return _create_beside(name, using), True
    raise no_such_topic(name, using)


def no_such_topic(name: str, using: str) -> UnknownTopic:
    """The error that says which topics there are."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT name FROM outbox_topics ORDER BY name")
        known = [known for (known,) in cursor.fetchall()]
    return unknown_topic(name, known)


def unknown_topic(name: str, known: Sequence[str]) -> UnknownTopic:
    nearest = difflib.get_close_matches(name, known, n=1)
    if nearest:
        hint = _('Did you mean "%(nearest)s"?') % {"nearest": nearest[0]}
    else:
        hint = _("There are: %(known)s.") % {"known": ", ".join(known) or _("none")}
    return UnknownTopic(
        _(
            'There is no topic "%(topic)s". %(hint)s New topics are declared in PUBSUB["topics"] and made by '
            '`migrate`, or added in the admin; PUBSUB["unknown_topic"] = "create" makes them when they are first '
            "published to."
        )
        % {"topic": name, "hint": hint}
    )


def _create_beside(name: str, using: str) -> int:
    """On a connection of its own: in the caller's transaction others would wait for it, and it might be undone."""
    beside = connections[using].copy()
    try:
        beside.ensure_connection()
        with beside.connection.transaction(), beside.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            if create_topics(beside, {name: {}}):
                _write_down(beside, name, using)
            cursor.execute("SELECT id FROM outbox_topics WHERE name = %s", [name])
            (number,) = cursor.fetchone()
    finally:
        beside.close()
    return int(number)


def _write_down(beside: Any, name: str, using: str) -> None:
    with beside.cursor() as cursor:
        cursor.execute("SELECT to_regclass('operator_events') IS NOT NULL")
        if cursor.fetchone() != (True,):
            return  # migrated to the first migration only
    record(
        "create",
        actor="first use",
        using=using,
        topic=name,
        reason='PUBSUB["unknown_topic"] = "create"',
        after={"total_partitions": conf().total_partitions},
        beside=beside,
    )


def create_topics(connection: Any, declared: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Creates the topics that are missing, and says which those were. Those that exist stay as they are."""
    made = []
    with connection.cursor() as cursor:
        for name, options in declared.items():
            check_name(name)
            try:
                given = checked(name, options)
            except InvalidTopic as error:
                raise InvalidSetting(f'PUBSUB["topics"]: {error}') from error
            columns = {"name": name, "total_partitions": conf().total_partitions, **given}
            columns = {column: value for column, value in columns.items() if column in _MADE_WITH}
            names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
            while not _exists(cursor, name):
                # Again where the number is taken by an undeclared topic: the sequence has gone on to the next one.
                cursor.execute(
                    # The names are from the fixed set above.
                    f"INSERT INTO outbox_topics ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING",  # noqa: S608
                    list(columns.values()),
                )
                if cursor.rowcount:
                    made.append(name)
    return made


def _exists(cursor: Any, name: str) -> bool:
    cursor.execute("SELECT FROM outbox_topics WHERE name = %s", [name])
    return cursor.fetchone() is not None
