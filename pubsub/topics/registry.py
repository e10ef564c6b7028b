"""Topics by name: looked up once, rejected with a suggestion, created where that is the policy."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db import ProgrammingError, connections
from django.utils.translation import gettext as _

from pubsub.conf import conf
from pubsub.db.audit import record
from pubsub.db.connections import dedicated_connection
from pubsub.db.errors import INSUFFICIENT_PRIVILEGE, sqlstate
from pubsub.db.sql import load
from pubsub.db.transactions import errors_as_djangos
from pubsub.errors import InvalidSetting, InvalidTopic, NoSubscribers, UnknownTopic, WrongDatabase
from pubsub.suggest import hint
from pubsub.topic_options import check_partitions, checked, column_of

from .names import DEFAULT_TOPIC, DEFAULT_TOPIC_ID, check_name

_open: dict[tuple[str, str], tuple[int, float]] = {}
"""Topics that accept events, and until when this process relies on that."""

LOOK_AGAIN_S = 30
"""How soon a publishing process notices that a topic has another policy, or was replaced by one of the same name."""

SUBSCRIBED_FOR_S = 1
"""How soon it notices that a topic has lost its last group, where the topic refuses events without one."""


def topic_id(name: str, using: str, *, make: bool = True) -> int:
    """The number of a topic. It is not remembered: a topic may be removed, and another one get its name.

    A topic that does not exist is created where the settings declare it, or where that is the policy, unless the caller
    only reads (`make=False`).
    """
    check_name(name)
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT id FROM outbox_topics WHERE name = %s", [name])
        row = cursor.fetchone()
    if row:
        return int(row[0])
    if make and (name in _declared() or conf().unknown_topic == "create"):
        try:
            return _create_beside(name, using)
        except ProgrammingError as error:
            if sqlstate(error) != INSUFFICIENT_PRIVILEGE:
                raise
            raise no_such_topic(name, using) from error
    raise no_such_topic(name, using)


def topic_ids(names: Collection[str], using: str) -> dict[str, int]:
    """The numbers of those of these topics that exist."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT name, id FROM outbox_topics WHERE name = ANY (%s)", [list(names)])
        return dict(cursor.fetchall())


def topic_to_publish_to(name: str, using: str) -> int:
    """The number of a topic, or an error while it refuses events because no group would get them.

    The number is remembered for a while, so that publishing costs no query; a refusal is not. So a process refuses
    SUBSCRIBED_FOR_S seconds after the last group has gone, at the latest, and publishes at once when there is one
    again. Topics without that policy are looked up every LOOK_AGAIN_S seconds.
    """
    found = _open.get((using, name)) if isinstance(name, str) else None
    if found is not None and time.monotonic() < found[1]:
        return found[0]
    if not _can_be_asked_for(name):
        check_name(name)
    if connections[using].vendor != "postgresql":
        raise WrongDatabase(f'Events are rows in PostgreSQL, and database "{using}" is {connections[using].vendor}.')
    with connections[using].cursor() as cursor:
        cursor.execute(load("topics/find_topic_to_publish_to"), {"name": name})
        row = cursor.fetchone()
    if row is None:
        return topic_id(name, using)  # creates it, or raises with the names that exist
    number, for_good, guarded, refuses = row
    if refuses:
        raise NoSubscribers(
            _(
                'Topic "%(topic)s" refuses events while no group is subscribed to it, and none is. Start a consumer '
                'for it, resume a dead group, or set its zero_subscribers to "keep".'
            )
            % {"topic": name}
        )
    if for_good:
        _open[using, name] = int(number), time.monotonic() + (SUBSCRIBED_FOR_S if guarded else LOOK_AGAIN_S)
    return int(number)


def forget_ids(**kwargs: Any) -> None:
    _open.clear()


def _can_be_asked_for(name: Any) -> bool:
    """Whether PostgreSQL could read the name: topics that were created elsewhere may have nearly any."""
    try:
        return isinstance(name, str) and "\x00" not in name and bool(name.encode())
    except UnicodeEncodeError:
        return False


def _declared() -> dict[str, Mapping[str, Any]]:
    """Topics that `migrate` creates behind its migrations. What needs one earlier, such as a migration, gets it."""
    return {DEFAULT_TOPIC: {}, **conf().topics}


def no_such_topic(name: str, using: str) -> UnknownTopic:
    """The error that names the topics that exist."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT name FROM outbox_topics ORDER BY name")
        known = [known for (known,) in cursor.fetchall()]
    return unknown_topic(name, known)


def unknown_topic(name: str, known: Sequence[str]) -> UnknownTopic:
    return UnknownTopic(
        _(
            'There is no topic "%(topic)s". %(hint)s New topics are declared in PUBSUB["topics"] and created by '
            '`migrate`, or added in the admin; PUBSUB["unknown_topic"] = "create" creates them when they are first '
            "published to."
        )
        % {"topic": name, "hint": hint(name, known)},
        name=name,
        known=known,
    )


def _create_beside(name: str, using: str) -> int:
    """On a connection of its own: in the caller's transaction others would wait for it, and it might be undone."""
    with (
        errors_as_djangos(connections[using]),
        dedicated_connection(using) as beside,
        beside.transaction(),
        beside.cursor() as cursor,
    ):
        cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        options = _declared().get(name)
        if create_topics(beside, {name: options or {}}):
            record(
                "create",
                actor="first use",
                using=using,
                topic=name,
                reason='PUBSUB["unknown_topic"] = "create"' if options is None else 'PUBSUB["topics"]',
                after={"partitions": conf().partitions, **(options or {})},
                beside=beside,
            )
        cursor.execute("SELECT id FROM outbox_topics WHERE name = %s", [name])
        row = cursor.fetchone()
    assert row is not None  # noqa: S101 - it was there, or has just been made
    return int(row[0])


def create_topics(connection: Any, declared: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Creates the topics that are missing, and returns their names. Existing topics stay as they are."""
    made = []
    with connection.cursor() as cursor:
        for name, options in declared.items():
            check_name(name)
            try:
                given = checked(name, options)
            except InvalidTopic as error:
                raise InvalidSetting(f'PUBSUB["topics"]: {error}') from error
            options = {"partitions": conf().partitions, **given}
            check_partitions(name, options["partitions"], conf().max_partitions)
            columns = {"name": name, **{column_of(option): value for option, value in options.items()}}
            if name == DEFAULT_TOPIC:
                columns["id"] = DEFAULT_TOPIC_ID
            names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
            while not _exists(cursor, name):
                # Again where the number is taken by an undeclared topic: the sequence has gone on to the next one.
                cursor.execute(
                    # The names are those of a topic's options, which have been checked.
                    f"INSERT INTO outbox_topics ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING",  # noqa: S608
                    list(columns.values()),
                )
                if cursor.rowcount:
                    made.append(name)
                elif name == DEFAULT_TOPIC:
                    break
    return made


def _exists(cursor: Any, name: str) -> bool:
    cursor.execute("SELECT FROM outbox_topics WHERE name = %s", [name])
    return cursor.fetchone() is not None
