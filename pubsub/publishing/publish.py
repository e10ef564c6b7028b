"""Publishing: rows of the caller's own transaction. No shared lock is taken, so no publisher waits for another.

What follows – numbering, delivery – happens after the commit, elsewhere.
"""

import datetime as dt
import difflib
import functools
import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import connections, router, transaction
from django.utils.translation import gettext as _

from pubsub.conf import conf
from pubsub.errors import InvalidEvent, NotInTransaction, WrongDatabase
from pubsub.events import LONGEST_TEXT
from pubsub.payloads.encoding import check_text, to_json
from pubsub.sequencing import wakeup
from pubsub.signals import Publishing, around_publishing
from pubsub.sql import load
from pubsub.statements import ask
from pubsub.topics.finding import topic_to_publish_to

_COLUMNS = ("topic_id", "type", "key", "host_id", "user_id", "to_group", "payload", "metadata")

_INSERT_DELAYED = (
    f"INSERT INTO outbox_delayed_message (deliver_at, event_id, {', '.join(_COLUMNS)}) "  # noqa: S608
    f"VALUES (%s, %s{', %s' * len(_COLUMNS)})"
)
# PostgreSQL stores many copied rows at once, unless a default could be another one for each.
_COPY = f"COPY outbox_message_t (event_id, created_at, {', '.join(_COLUMNS)}) FROM STDIN"
_NOW = "SELECT to_json(clock_timestamp()) #>> '{}'"
"""In a form that can be read again whatever the session's DateStyle is."""

_OPTIONS = ("payload", "type", "key", "host_id", "user_id", "metadata", "deliver_at", "dedup_key", "to_group")
_KNOWN_OPTIONS = frozenset(_OPTIONS)

COPIED_EVENTS, COPIED_CHARACTERS = 1000, 1024 * 1024
"""How much of a generator publish_many() holds in memory, in events or in characters of JSON: what is reached first."""

LONGEST_DEDUP_KEY = 1000
"""In bytes, as an index holds them."""

_NO_TEXT = (float, bytes, bool, dict, list, tuple, set)
"""What nobody means as a key or an id."""


def publish(
    topic: str,
    payload: Any,
    *,
    type: str = "",
    key: Any = None,
    host_id: Any = None,
    user_id: Any = None,
    metadata: Mapping[str, Any] | None = None,
    deliver_at: dt.datetime | None = None,
    dedup_key: str | None = None,
    to_group: str | None = None,
    using: str | None = None,
) -> uuid.UUID:
    """Publishes an event as part of the open transaction: both become visible together, or neither does.

    - ``payload``, ``metadata``: anything that Django's JSON encoder takes, UUIDs, dates and decimals included.
    - ``key``: events of one key are handled in order; where it is absent, ``host_id`` (the tenant) takes its place.
    - ``deliver_at``: no group sees the event before this time.
    - ``dedup_key``: a second event of the same key on the same topic, within ``PUBSUB["dedup_window_s"]``, is not
      published; the first one's id is returned. Publishers of one and the same key wait for each other.
    - ``to_group``: only this consumer group handles the event.

    Returns the event's id, the same that every handler sees as ``event.id``.

    >>> with transaction.atomic():
    ...     event_id = publish("default", {"id": 1}, type="order.created", key=1)
    """
    connection = _connection_in_transaction(using)
    if not around_publishing:
        number = topic_to_publish_to(topic, connection.alias)
        event = _checked(number, payload, type, key, host_id, user_id, metadata, deliver_at, dedup_key, to_group)
        return _write(connection, event)
    act = Publishing(topic=topic, using=connection.alias, type=type)
    with around_publishing(act):
        number = topic_to_publish_to(topic, connection.alias)
        metadata = _with(act.metadata, metadata)
        event = _checked(number, payload, type, key, host_id, user_id, metadata, deliver_at, dedup_key, to_group)
        act.event_id = _write(connection, event)
    return act.event_id


def publish_many(topic: str, events: Iterable[Mapping[str, Any]], *, using: str | None = None) -> int:
    """Publishes any number of events as part of the open transaction, at the speed of COPY. Returns how many.

    Each event is a mapping of what :func:`publish` takes: ``payload``, and if wanted ``type``, ``key`` and so on. They
    may come from a generator, which may use the database, and publish events itself: they are written as they come,
    some hundred at a time, in their order. A list is written faster.

    >>> with transaction.atomic():
    ...     publish_many("default", ({"payload": {"n": n}, "key": n} for n in range(3)))
    3
    """
    connection = _connection_in_transaction(using)
    topic_number = topic_to_publish_to(topic, connection.alias)
    act = Publishing(topic=topic, using=connection.alias, many=True)
    # What is there already is encoded while PostgreSQL stores what came before; that is twice as fast.
    batches = (lambda run: [run]) if isinstance(events, list | tuple) else _batches

    def checked() -> Iterator[_Checked]:
        for number, event in enumerate(events, start=1):
            try:
                _check_options(event)
                if act.metadata:
                    event = {**event, "metadata": _with(act.metadata, event.get("metadata"))}
                yield _checked(topic_number, **event)
            except InvalidEvent as error:
                raise InvalidEvent(_("Event %(n)s: %(error)s") % {"n": number, "error": error}) from error
            act.count = number

    # In a savepoint, so that an invalid event among many leaves none of them even where the error is caught.
    with around_publishing(act), transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        for plain, run in itertools.groupby(checked(), key=_is_plain):
            if plain:
                for batch in batches(run):
                    _copy(connection, cursor, batch)
                wakeup.after_commit(connection)
            else:
                for event in run:
                    _write(connection, event)
    return act.count


def check_event(event: Any) -> None:
    """Raises what :func:`publish_many` would for this event, without a database.

    >>> check_event({"payload": 1, "type": 5})
    Traceback (most recent call last):
    pubsub.errors.InvalidEvent: type must be a string such as 'order.created', not 5.
    """
    _check_options(event)
    _checked(0, **event)


def publish_on_commit(topic: str, payload: Any, *, using: str | None = None, **options: Any) -> None:
    """Publishes after the open transaction has committed, in a transaction of its own.

    This cannot promise what :func:`publish` does: if the process dies, or the database goes away, between the commit
    and the publishing, the change is there and its event is lost. Use it for events that nobody must rely on, or where
    the caller's transaction must not fail because of an event. It takes what :func:`publish` takes; what is invalid is
    refused at once. Outside a transaction it publishes at once.

    >>> publish_on_commit("default", {"id": 1}, type="page.viewed")
    """
    connection = connections[_alias(using)]
    _check_options({"payload": payload, **options})
    if not around_publishing:
        event = _checked(topic_to_publish_to(topic, connection.alias), payload, **options)
    else:  # now: by the time of the commit, what leads to this call is over
        act = Publishing(topic=topic, using=connection.alias, type=options.get("type", ""))
        with around_publishing(act):
            options["metadata"] = _with(act.metadata, options.get("metadata"))
            event = _checked(topic_to_publish_to(topic, connection.alias), payload, **options)
    if connection.get_autocommit():
        _write_alone(connection, event)
    else:
        # After the caller's commit nothing may fail any more; outside a transaction the caller wants to know.
        connection.on_commit(lambda: _write_alone(connection, event), robust=True)


async def apublish(topic: str, payload: Any, *, using: str | None = None, **options: Any) -> uuid.UUID:
    """Publishes from asynchronous code, in a transaction of its own, and returns when that has committed.

    Django's transactions belong to a thread. To publish together with a change, write a synchronous function that does
    both in one ``transaction.atomic()``, and await it by ``sync_to_async``.

    >>> from asgiref.sync import async_to_sync
    >>> event_id = async_to_sync(apublish)("default", {"id": 1})
    """

    def publish_alone() -> uuid.UUID:
        alias = _alias(using)
        with transaction.atomic(using=alias):
            return publish(topic, payload, using=alias, **options)

    return await sync_to_async(publish_alone)()


@functools.cache
def _message_model() -> Any:
    return apps.get_model("pubsub", "OutboxMessage")


def _alias(using: str | None) -> str:
    return using or router.db_for_write(_message_model())


def _connection_in_transaction(using: str | None) -> Any:
    alias = _alias(using)
    connection = connections[alias]
    if connection.in_atomic_block or not connection.get_autocommit():
        return connection
    elsewhere = [other.alias for other in connections.all(initialized_only=True) if other.in_atomic_block]
    if elsewhere:
        raise WrongDatabase(
            f'The open transaction is on database "{elsewhere[0]}", the event would go to "{alias}": they could not '
            f'commit together. Publish with using="{elsewhere[0]}" if the outbox\'s tables are there, or open a '
            f'transaction on "{alias}".'
        )
    raise NotInTransaction(
        "publish() was called outside a transaction, so that the event could not be tied to the change it reports. "
        "Wrap both in `with transaction.atomic():`; for an event that stands alone use publish_on_commit()."
    )


def _with(added: dict[str, Any], metadata: Any) -> Any:
    """An event's metadata, with what observers have to add."""
    if not added or not isinstance(metadata, Mapping | None):
        return metadata
    return {**added, **(metadata or {})}


class _Checked(NamedTuple):
    """An event in which everything can be stored."""

    row: tuple[Any, ...]
    """The values of _COLUMNS."""
    deliver_at: dt.datetime | None
    dedup_key: str | None


def _checked(
    topic_number: int,
    payload: Any,
    type: str = "",
    key: Any = None,
    host_id: Any = None,
    user_id: Any = None,
    metadata: Mapping[str, Any] | None = None,
    deliver_at: dt.datetime | None = None,
    dedup_key: Any = None,
    to_group: Any = None,
) -> _Checked:
    if not isinstance(type, str):
        raise InvalidEvent(_("type must be a string such as 'order.created', not %(value)r.") % {"value": type})
    if metadata is not None and not isinstance(metadata, dict):
        if not isinstance(metadata, Mapping):
            raise InvalidEvent(_("metadata must be a mapping, not %(value)r.") % {"value": metadata})
        metadata = dict(metadata)
    if deliver_at is not None and (not isinstance(deliver_at, dt.datetime) or deliver_at.tzinfo is None):
        raise InvalidEvent(
            _(
                "deliver_at must be a datetime with a time zone, such as timezone.now() + timedelta(hours=1), "
                "not %(value)r."
            )
            % {"value": deliver_at}
        )
    to_group = _text("to_group", to_group)
    if to_group == "":
        raise InvalidEvent(_("to_group must be the name of a group, not '': nobody would get the event."))
    row = (
        topic_number,
        _short("type", type) if type else "",
        _text("key", key),
        _text("host_id", host_id),
        _text("user_id", user_id),
        to_group,
        to_json("payload", payload),
        to_json("metadata", metadata) if metadata else "{}",
    )
    return _Checked(row, deliver_at, _text("dedup_key", dedup_key, LONGEST_DEDUP_KEY) or None)


def _text(field: str, value: Any, limit: int = LONGEST_TEXT) -> str | None:
    """Keys and ids are kept as text: one system's are numbers, another's UUIDs."""
    if value is None:
        return None
    if isinstance(value, _NO_TEXT):
        raise InvalidEvent(
            _("%(field)s must be a string, a whole number or a UUID, not %(value)r.") % {"field": field, "value": value}
        )
    return _short(field, str(value), limit)


def _short(field: str, text: str, limit: int = LONGEST_TEXT) -> str:
    if text.isascii() and "\x00" not in text and len(text) <= limit:
        return text  # nearly always, and the cheapest way to know
    check_text(field, text)
    if len(text) * 4 > limit and len(text.encode()) > limit:
        raise InvalidEvent(
            _("%(field)s has %(size)s bytes; at most %(limit)s are allowed. Use a digest of it, such as its SHA-256.")
            % {"field": field, "size": f"{len(text.encode()):,}", "limit": f"{limit:,}"}
        )
    return text


def _write(connection: Any, event: _Checked) -> uuid.UUID:
    event_id = uuid.uuid4()
    if event.dedup_key:
        first_id = _first_of_key(connection, event.row[0], event.dedup_key, event_id)
        if first_id != event_id:
            return first_id
    if event.deliver_at is None:
        somebody_waits = ask(connection, "SELECT pubsub_publish_v1(%b)", (str(event_id), *event.row))
        wakeup.after_commit(connection, somebody_waits)
    else:
        with connection.cursor() as cursor:
            cursor.execute(_INSERT_DELAYED, (event.deliver_at, event_id, *event.row))
        wakeup.after_commit(connection)
    return event_id


def _copy(connection: Any, cursor: Any, events: Iterable[_Checked]) -> None:
    cursor.execute(_NOW)
    (now,) = cursor.fetchone()
    with connection.wrap_database_errors, cursor.copy(_COPY) as copy:
        for event_id, event in zip(_random_ids(), events, strict=False):
            copy.write_row((event_id, now, *event.row))


def _write_alone(connection: Any, event: _Checked) -> None:
    """In a transaction of its own. A statement is one, in one round trip."""
    if _is_plain(event) and connection.get_autocommit():
        _write(connection, event)
    else:
        with transaction.atomic(using=connection.alias):
            _write(connection, event)


def _first_of_key(connection: Any, topic_number: int, dedup_key: str, event_id: uuid.UUID) -> uuid.UUID:
    """Takes the key for this event, or tells which one has it. Waits for an open transaction that took it first."""
    parameters = {
        "topic_id": topic_number,
        "dedup_key": dedup_key,
        "event_id": event_id,
        "window": conf().dedup_window_s,
    }
    with connection.cursor() as cursor:
        while True:
            for statement in (load("find_dedup_key"), load("take_dedup_key")):
                cursor.execute(statement, parameters)
                found = cursor.fetchone()
                if found:
                    return uuid.UUID(str(found[0]))
            # Somebody took the key between the two statements: the first one finds it now.


def _random_ids() -> Iterator[str]:
    """UUIDs of version 4, as many as are wanted, as PostgreSQL reads them. Takes a quarter of uuid4()'s time.

    >>> uuid.UUID(next(_random_ids())).version
    4
    """
    while True:
        digits = os.urandom(16 * 512).hex()
        for begin in range(0, len(digits), 32):
            one = digits[begin : begin + 32]
            yield f"{one[:12]}4{one[13:16]}{'89ab'[int(one[16], 16) & 3]}{one[17:]}"


def _is_plain(event: _Checked) -> bool:
    return event.deliver_at is None and event.dedup_key is None


def _batches(events: Iterable[_Checked]) -> Iterator[list[_Checked]]:
    """Events that are copied at once. A generator may use the connection itself, which it cannot during a COPY."""
    batch: list[_Checked] = []
    size = 0
    for event in events:
        batch.append(event)
        size += sum(map(len, event.row[-2:]))
        if len(batch) == COPIED_EVENTS or size >= COPIED_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _check_options(event: Any) -> None:
    if type(event) is dict and "payload" in event and event.keys() <= _KNOWN_OPTIONS:
        return  # nearly always, and the cheapest way to know
    if not isinstance(event, Mapping):
        raise InvalidEvent(
            _("expected a mapping such as {'payload': …, 'type': …}, not %(event).200r.") % {"event": event}
        )
    if "payload" not in event:
        raise InvalidEvent(_("payload is missing."))
    if not event.keys() <= _KNOWN_OPTIONS:
        unknown = min(map(str, event.keys() - _KNOWN_OPTIONS))
        nearest = difflib.get_close_matches(unknown, _OPTIONS, n=1)
        if nearest:
            hint = _('did you mean "%(nearest)s"?') % {"nearest": nearest[0]}
        else:
            hint = _("known are %(options)s.") % {"options": ", ".join(_OPTIONS)}
        raise InvalidEvent(_('there is no option "%(option)s"; %(hint)s') % {"option": unknown, "hint": hint})
