"""Publishing: rows of the caller's own transaction. No shared lock is taken, so no publisher waits for another.

There is one exception, a `dedup_key` that both give.

What follows – numbering, delivery – happens after the commit, elsewhere.
"""

import datetime as dt
import functools
import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import connections, models, router, transaction
from django.utils.translation import gettext as _

from pubsub.db.pipeline import ask
from pubsub.db.transactions import errors_as_djangos, in_atomic_block, is_in_transaction
from pubsub.errors import InvalidEvent, NotInTransaction, WrongDatabase
from pubsub.events import EARLIEST, LATEST, LONGEST_TEXT
from pubsub.signals import Publishing, around_publishing
from pubsub.suggest import hint, shown
from pubsub.topics.registry import topic_to_publish_to

from .dedup import first_of_key
from .encode import check_text, to_json
from .notify import after_commit

COLUMNS = ("topic_id", "type", "key", "host_id", "user_id", "to_group", "payload", "metadata")

_PUBLISH = "SELECT pubsub_publish_v1(%b)"
_INSERT_DELAYED = (
    f"INSERT INTO outbox_delayed_message (deliver_at, event_id, {', '.join(COLUMNS)}) "  # noqa: S608
    f"VALUES (%s, %s{', %s' * len(COLUMNS)})"
)
# PostgreSQL stores many copied rows at once, unless a default could be another one for each.
_COPY = f"COPY outbox_message_t (event_id, created_at, {', '.join(COLUMNS)}) FROM STDIN"
_NOW = "SELECT to_json(clock_timestamp()) #>> '{}'"
"""In a form that PostgreSQL reads back whatever the session's DateStyle is."""

_OPTIONS = ("payload", "type", "key", "host_id", "user_id", "metadata", "deliver_at", "dedup_key", "to_group")
_KNOWN_OPTIONS = frozenset(_OPTIONS)

COPIED_EVENTS, COPIED_CHARACTERS = 1000, 1024 * 1024
"""How much of a generator publish_many() holds in memory, in events or in characters of JSON, whichever comes first."""

LONGEST_DEDUP_KEY = 1000
"""In bytes, as an index holds them."""

WIDEST_ZONE = dt.timedelta(hours=16)
"""From here on PostgreSQL knows no time zone."""


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
    - ``key``: events of one key are handled in order, unless one fails (``on_failure`` of the group decides about later
      ones); without a key, ``host_id`` (the tenant) is used. Publish after the row was changed or locked: events of
      transactions that overlap have the order in which they were published.
    - ``deliver_at``: no group sees the event before this time.
    - ``dedup_key``: a second event with the same key on the same topic, within ``PUBSUB["dedup_window_s"]``, is not
      published; the first one's id is returned. Publishers of the same key wait for each other; take several keys
      in the same order everywhere.
    - ``to_group``: only this consumer group handles the event.

    Returns the event's id, the same that every handler sees as ``event.id``.

    >>> with transaction.atomic():
    ...     event_id = publish("default", {"id": 1}, type="order.created", key=1)
    """
    connection = _connection_in_transaction(using)
    if not around_publishing.observers:
        number = topic_to_publish_to(topic, connection.alias)
        event = _checked(number, payload, type, key, host_id, user_id, metadata, deliver_at, dedup_key, to_group)
        if deliver_at is not None or dedup_key is not None:
            return _write(connection, event)
        # As _write() does it, without another call: this is the way of nearly all events.
        event_id = uuid.uuid4()
        after_commit(connection, ask(connection, _PUBLISH, (str(event_id), *event.row)))
        return event_id
    publishing = Publishing(topic=topic, using=connection.alias, type=type)
    with around_publishing(publishing):
        number = topic_to_publish_to(topic, connection.alias)
        metadata = _with(publishing.metadata, metadata)
        event = _checked(number, payload, type, key, host_id, user_id, metadata, deliver_at, dedup_key, to_group)
        publishing.event_id = _write(connection, event)
    return publishing.event_id


def publish_many(topic: str, events: Iterable[Mapping[str, Any]], *, using: str | None = None) -> int:
    """Publishes any number of events as part of the open transaction, at the speed of COPY. Returns how many.

    Each event is a mapping of what :func:`publish` takes: ``payload``, and optionally ``type``, ``key`` and so on. If
    one event is invalid, the error gives its number and nothing is published. Events from a generator are written as
    they come, some hundred at a time, in order; the generator may use the database, and publish events itself. A list
    is written faster.

    >>> with transaction.atomic():
    ...     publish_many("default", ({"payload": {"n": n}, "key": n} for n in range(3)))
    3
    """
    connection = _connection_in_transaction(using)
    topic_number = topic_to_publish_to(topic, connection.alias)
    publishing = Publishing(topic=topic, using=connection.alias, many=True)
    # A list is encoded while PostgreSQL stores what came before, which is twice as fast.
    batches = (lambda run: [run]) if isinstance(events, list | tuple) else _batches

    def checked() -> Iterator[_Checked]:
        for number, event in enumerate(events, start=1):
            try:
                _check_options(event)
                if publishing.metadata:
                    event = {**event, "metadata": _with(publishing.metadata, event.get("metadata"))}
                yield _checked(topic_number, **event)
            except InvalidEvent as error:
                raise InvalidEvent(_("Event %(n)s: %(error)s") % {"n": number, "error": error}) from error
            publishing.count = number

    # In a savepoint: if one event is invalid, none remains, even where the error is caught.
    with around_publishing(publishing), transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        for plain, run in itertools.groupby(checked(), key=_is_plain):
            if plain:
                for batch in batches(run):
                    _copy(connection, cursor, batch)
                after_commit(connection)
            else:
                for event in run:
                    _write(connection, event)
    return publishing.count


def check_event(event: Any) -> None:
    """Raises what :func:`publish_many` would raise for this event, without a database.

    >>> check_event({"payload": 1, "type": 5})
    Traceback (most recent call last):
    pubsub.errors.InvalidEvent: type must be a string such as 'order.created', not 5.
    """
    _check_options(event)
    _checked(0, **event)


def publish_on_commit(topic: str, payload: Any, *, using: str | None = None, **options: Any) -> None:
    """Publishes after the open transaction has committed, in a transaction of its own.

    This cannot promise what :func:`publish` does: if the process dies, or the database goes away, between the commit
    and the publishing, the change is there and its event is lost. Use it for events that nothing relies on, or where
    the caller's transaction must not fail because of an event. It takes what :func:`publish` takes, and rejects what is
    invalid at once. Outside a transaction it publishes at once.

    >>> publish_on_commit("default", {"id": 1}, type="page.viewed")
    """
    connection = connections[_alias(using)]
    _check_options({"payload": payload, **options})
    if not around_publishing.observers:
        event = _checked(topic_to_publish_to(topic, connection.alias), payload, **options)
    else:  # now: by the time of the commit, the surrounding span has ended
        publishing = Publishing(topic=topic, using=connection.alias, type=options.get("type", ""))
        with around_publishing(publishing):
            options["metadata"] = _with(publishing.metadata, options.get("metadata"))
            event = _checked(topic_to_publish_to(topic, connection.alias), payload, **options)
    if is_in_transaction(connection):
        # After the caller's commit nothing may fail any more; outside a transaction the caller gets the error.
        connection.on_commit(lambda: _write_alone(connection, event), robust=True)
    else:
        _write_alone(connection, event)


async def apublish(topic: str, payload: Any, *, using: str | None = None, **options: Any) -> uuid.UUID:
    """:func:`publish`, awaited: as part of the transaction that the surrounding synchronous code has open.

    Like all of Django's asynchronous methods it runs in the thread of the synchronous code that called the coroutine.
    Django's transactions belong to a thread, and a coroutine cannot open one. So it publishes where synchronous code
    within ``transaction.atomic()`` has called the coroutine by ``async_to_sync``, and raises ``NotInTransaction``
    everywhere else. In an asynchronous view, put the change and :func:`publish` into one synchronous function, and
    await that by ``sync_to_async``; for an event that stands alone await :func:`apublish_on_commit`.

    >>> from asgiref.sync import async_to_sync
    >>> with transaction.atomic():
    ...     event_id = async_to_sync(apublish)("default", {"id": 1})
    """
    try:
        return await sync_to_async(publish)(topic, payload, using=using, **options)
    except NotInTransaction as error:
        raise NotInTransaction(
            "apublish() found no open transaction to tie the event to, and a coroutine cannot open one. Put the change "
            "and publish() into one synchronous function under `transaction.atomic()`, and await it by "
            "sync_to_async(); for an event that stands alone await apublish_on_commit()."
        ) from error


async def apublish_on_commit(topic: str, payload: Any, *, using: str | None = None, **options: Any) -> None:
    """:func:`publish_on_commit`, awaited. Where no transaction is open, the event has been committed when it returns.

    >>> from asgiref.sync import async_to_sync
    >>> async_to_sync(apublish_on_commit)("default", {"id": 1}, type="page.viewed")
    """
    await sync_to_async(publish_on_commit)(topic, payload, using=using, **options)


@functools.cache
def _message_model() -> Any:
    return apps.get_model("pubsub", "OutboxMessage")


def _alias(using: str | None) -> str:
    return using or router.db_for_write(_message_model())


def _connection_in_transaction(using: str | None) -> Any:
    alias = _alias(using)
    connection = connections[alias]
    if is_in_transaction(connection):
        return connection
    others = connections.all(initialized_only=True)
    elsewhere = [other.alias for other in others if in_atomic_block(other) and is_in_transaction(other)]
    if elsewhere:
        raise WrongDatabase(
            f'The open transaction is on database "{elsewhere[0]}", the event would go to "{alias}": they could not '
            f'commit together. Publish with using="{elsewhere[0]}" if the outbox\'s tables are there, or open a '
            f'transaction on "{alias}".'
        )
    raise NotInTransaction(
        "publish() was called outside a transaction, so the event could not be tied to the change it reports. "
        "Wrap both in `with transaction.atomic():`; for an event that stands alone use publish_on_commit()."
    )


def _with(added: dict[str, Any], metadata: Any) -> Any:
    """An event's metadata, with what observers add to it."""
    if not added or not isinstance(metadata, Mapping | None):
        return metadata
    return {**added, **(metadata or {})}


class _Checked(NamedTuple):
    """A valid event, as it will be stored."""

    row: tuple[Any, ...]
    """The values of COLUMNS."""
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
        raise InvalidEvent(_("type must be a string such as 'order.created', not %(value)s.") % {"value": shown(type)})
    if metadata is not None and not isinstance(metadata, dict):
        if not isinstance(metadata, Mapping):
            raise InvalidEvent(_("metadata must be a mapping, not %(value)s.") % {"value": shown(metadata)})
        metadata = dict(metadata)
    if deliver_at is not None:
        deliver_at = _in_utc(deliver_at)
    to_group = _text("to_group", to_group)
    if to_group == "":
        raise InvalidEvent(_("to_group must be the name of a group, not '': no group would get the event."))
    dedup_key = _text("dedup_key", dedup_key, LONGEST_DEDUP_KEY) or None
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
    return _Checked(row, deliver_at, dedup_key)


def _text(field: str, value: Any, limit: int = LONGEST_TEXT) -> str | None:
    """Keys and ids are stored as text: in one system they are numbers, in another UUIDs."""
    if value is None:
        return None
    match value:
        case str():
            return _short(field, str.__str__(value), limit)
        case uuid.UUID():
            return str(value)
        case int() if not isinstance(value, bool):
            try:
                return _short(field, int.__repr__(value), limit)
            except ValueError as error:  # Python writes no number of more than 4,300 digits
                raise InvalidEvent(
                    _("%(field)s is too long a number: %(error)s. Use a digest, such as its SHA-256.")
                    % {"field": field, "error": error}
                ) from error
        case models.Model():
            raise InvalidEvent(
                _("%(field)s must be a string, a whole number or a UUID, not an object of %(model)s: give its id.")
                % {"field": field, "model": type(value).__name__}
            )
    raise InvalidEvent(
        _("%(field)s must be a string, a whole number or a UUID, not %(value)s.")
        % {"field": field, "value": shown(value)}
    )


def _in_utc(value: Any) -> dt.datetime:
    """PostgreSQL does not read every zone that Python has, such as one that is off by a microsecond."""
    zone = value.utcoffset() if isinstance(value, dt.datetime) else None
    if zone is None:
        raise InvalidEvent(
            _(
                "deliver_at must be a datetime with a time zone, such as timezone.now() + timedelta(hours=1), "
                "not %(value)s."
            )
            % {"value": shown(value)}
        )
    if abs(zone) >= WIDEST_ZONE:
        raise InvalidEvent(
            _("deliver_at is %(value)s, whose time zone is %(zone)s from UTC; less than 16 hours are possible.")
            % {"value": value.isoformat(), "zone": zone}
        )
    if not EARLIEST <= value < LATEST:
        raise InvalidEvent(
            _("deliver_at is %(value)s; it must lie in the years 1 to 9999.") % {"value": value.isoformat()}
        )
    in_utc: dt.datetime = value.astimezone(dt.UTC)
    return in_utc


def _short(field: str, text: str, limit: int = LONGEST_TEXT) -> str:
    if text.isascii() and "\x00" not in text and len(text) <= limit:
        return text  # nearly always, and the cheapest way to know
    check_text(field, text)
    if len(text) * 4 > limit and len(text.encode()) > limit:
        raise InvalidEvent(
            _("%(field)s has %(size)s bytes; at most %(limit)s are allowed. Use a digest, such as its SHA-256.")
            % {"field": field, "size": f"{len(text.encode()):,}", "limit": f"{limit:,}"}
        )
    return text


def _write(connection: Any, event: _Checked) -> uuid.UUID:
    event_id = uuid.uuid4()
    if event.dedup_key:
        first_id = first_of_key(connection, event.row[0], event.dedup_key, event_id)
        if first_id != event_id:
            return first_id
    if event.deliver_at is None:
        after_commit(connection, ask(connection, _PUBLISH, (str(event_id), *event.row)))
    else:
        with connection.cursor() as cursor:
            cursor.execute(_INSERT_DELAYED, (event.deliver_at, event_id, *event.row))
        after_commit(connection)
    return event_id


def _copy(connection: Any, cursor: Any, events: Iterable[_Checked]) -> None:
    cursor.execute(_NOW)
    (now,) = cursor.fetchone()
    with errors_as_djangos(connection), cursor.copy(_COPY) as copy:
        for event_id, event in zip(_random_ids(), events, strict=False):
            copy.write_row((event_id, now, *event.row))


def _write_alone(connection: Any, event: _Checked) -> None:
    """In a transaction of its own. A single statement is one already, in one round trip."""
    if _is_plain(event) and connection.get_autocommit():
        _write(connection, event)
    else:
        with transaction.atomic(using=connection.alias):
            _write(connection, event)


def _random_ids() -> Iterator[str]:
    """Any number of version 4 UUIDs, as PostgreSQL reads them. Takes a quarter of uuid4()'s time.

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
    """Events in batches for COPY. A generator may use the connection itself, which is impossible during a COPY."""
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
            _("expected a mapping such as {'payload': …, 'type': …}, not %(event)s.") % {"event": shown(event)}
        )
    if "payload" not in event:
        raise InvalidEvent(_("payload is missing."))
    if not event.keys() <= _KNOWN_OPTIONS:
        unknown = min(map(str, event.keys() - _KNOWN_OPTIONS))
        raise InvalidEvent(
            _('there is no option "%(option)s". %(hint)s') % {"option": unknown, "hint": hint(unknown, _OPTIONS)}
        )
