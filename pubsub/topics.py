"""Topics by name: looked up once, refused with a suggestion, created where that is the policy."""

import difflib
import logging
import re
from collections.abc import Mapping
from typing import Any

from django.db import connections

from .conf import conf
from .errors import InvalidSetting, UnknownTopic

logger = logging.getLogger("pubsub.topics")

DEFAULT_TOPIC = "default"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")
_ids: dict[tuple[str, str], int] = {}


def topic_id(name: str, using: str) -> int:
    """The number of a topic. Numbers are never reused, so a process asks the database once."""
    found = _ids.get((using, name))
    if found is None:
        found, for_good = _look_up(name, using)
        if for_good:
            _ids[using, name] = found
    return found


def forget_ids(**kwargs: Any) -> None:
    _ids.clear()


def check_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UnknownTopic(
            f"{name!r} cannot be the name of a topic: up to 200 letters, digits and the signs . _ : - are allowed, "
            f'such as "orders.events".'
        )
    return name


def _look_up(name: str, using: str) -> tuple[int, bool]:
    """The number, and whether it will stay: a topic made in the open transaction may yet be undone."""
    check_name(name)
    with connections[using].cursor() as cursor:
        # now() is the time at which the open transaction began: what it has made itself is not older.
        cursor.execute("SELECT id, created_at < now() FROM outbox_topics WHERE name = %s", [name])
        row = cursor.fetchone()
        if row:
            return int(row[0]), bool(row[1])
        cursor.execute("SELECT name FROM outbox_topics ORDER BY name")
        known = [known for (known,) in cursor.fetchall()]
    if conf().unknown_topic == "create":
        return _create_beside(name, using), True
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f'Did you mean "{nearest[0]}"?' if nearest else f"There are: {', '.join(known) or 'none'}."
    raise UnknownTopic(
        f'There is no topic "{name}". {hint} New topics are declared in PUBSUB["topics"] and made by `migrate`, or '
        f'added in the admin; PUBSUB["unknown_topic"] = "create" makes them when they are first published to.'
    )


def _create_beside(name: str, using: str) -> int:
    """On a connection of its own: in the caller's transaction others would wait for it, and it might be undone."""
    beside = connections[using].copy()
    try:
        create_topics(beside, {name: {}})
        with beside.cursor() as cursor:
            cursor.execute("SELECT id FROM outbox_topics WHERE name = %s", [name])
            (number,) = cursor.fetchone()
    finally:
        beside.close()
    logger.info("created topic %s", name, extra={"topic": name})
    return int(number)


def create_topics(connection: Any, declared: Mapping[str, Mapping[str, Any]]) -> None:
    """Creates the topics that are missing. Those that exist stay as they are."""
    with connection.cursor() as cursor:
        for name, options in declared.items():
            unknown = set(options) - {"total_partitions", "retention"}
            if unknown:
                raise InvalidSetting(
                    f'PUBSUB["topics"]["{name}"] has no option {", ".join(map(repr, sorted(unknown)))}; it may have '
                    f"total_partitions and retention."
                )
            columns = {
                "name": check_name(name),
                "total_partitions": conf().total_partitions,
                **options,
            }
            names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
            while not _exists(cursor, name):
                # Again where the number is taken by an undeclared topic: the sequence has gone on to the next one.
                cursor.execute(
                    # The names are from the fixed set above.
                    f"INSERT INTO outbox_topics ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING",  # noqa: S608
                    list(columns.values()),
                )


def _exists(cursor: Any, name: str) -> bool:
    cursor.execute("SELECT FROM outbox_topics WHERE name = %s", [name])
    return cursor.fetchone() is not None
