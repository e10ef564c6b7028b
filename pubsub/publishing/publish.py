"""Publishing: rows of the caller's own transaction. No shared lock is taken, so no publisher waits for another.

There is one exception, a `dedup_key` that both give.

What follows – numbering, delivery – happens after the commit, elsewhere.
"""

import datetime as dt
import functools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import connections, router
from django.utils.translation import gettext as _

from pubsub.db.pipeline import keeping
from pubsub.db.transactions import in_atomic_block, is_in_transaction
from pubsub.errors import InvalidEvent, NotInTransaction, WrongDatabase
from pubsub.signals import Publishing, around_publishing
from pubsub.topics.registry import topic_to_publish_to

from .checked import Checked, check_options, checked
from .encode import as_json
from .notify import HINT
from .write import TAKE, leave, write, write_alone, write_many


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

    >>> from django.db import transaction
    >>> with transaction.atomic():
    ...     event_id = publish("default", {"id": 1}, type="order.created", key=1)
    """
    connection = _connection_in_transaction(using)
    if not around_publishing.observers:
        number = topic_to_publish_to(topic, connection.alias)
        event = checked(number, payload, type, key, host_id, user_id, metadata, deliver_at, dedup_key, to_group)
        if event.deliver_at is not None or event.dedup_key is not None:
            return write(connection, event)
        # As write() does it, without another call: this is the way of nearly all events.
        event_id = uuid.uuid4()
        text = as_json(event_id, event.row)
        if session := keeping(connection):
            session.keep([text], TAKE, HINT)
        else:
            leave(connection, [text])
        return event_id
    publishing = Publishing(topic=topic, using=connection.alias, type=type)
    with around_publishing(publishing):
        number = topic_to_publish_to(topic, connection.alias)
        metadata = _with(publishing.metadata, metadata)
        event = checked(number, payload, type, key, host_id, user_id, metadata, deliver_at, dedup_key, to_group)
        publishing.event_id = write(connection, event)
    return publishing.event_id


def publish_many(topic: str, events: Iterable[Mapping[str, Any]], *, using: str | None = None) -> int:
    """Publishes any number of events as part of the open transaction, at the speed of COPY. Returns how many.

    Each event is a mapping of what :func:`publish` takes: ``payload``, and optionally ``type``, ``key`` and so on. If
    one event is invalid, the error gives its number and nothing is published. Events from a generator are written as
    they come, some hundred at a time, in order; the generator may use the database, and publish events itself. A list
    is written faster.

    >>> from django.db import transaction
    >>> with transaction.atomic():
    ...     publish_many("default", ({"payload": {"n": n}, "key": n} for n in range(3)))
    3
    """
    connection = _connection_in_transaction(using)
    topic_number = topic_to_publish_to(topic, connection.alias)
    publishing = Publishing(topic=topic, using=connection.alias, many=True)

    def each() -> Iterator[Checked]:
        for number, event in enumerate(events, start=1):
            try:
                check_options(event)
                if publishing.metadata:
                    event = {**event, "metadata": _with(publishing.metadata, event.get("metadata"))}
                yield checked(topic_number, **event)
            except InvalidEvent as error:
                raise InvalidEvent(_("Event %(n)s: %(error)s") % {"n": number, "error": error}) from error
            publishing.count = number

    with around_publishing(publishing):
        write_many(connection, each(), at_hand=isinstance(events, list | tuple))
    return publishing.count


def check_event(event: Any) -> None:
    """Raises what :func:`publish_many` would raise for this event, without a database.

    >>> check_event({"payload": 1, "type": 5})
    Traceback (most recent call last):
    pubsub.errors.InvalidEvent: type must be a string such as 'order.created', not 5.
    """
    check_options(event)
    checked(0, **event)


def publish_on_commit(topic: str, payload: Any, *, using: str | None = None, **options: Any) -> None:
    """Publishes after the open transaction has committed, in a transaction of its own.

    This cannot promise what :func:`publish` does: if the process dies, or the database goes away, between the commit
    and the publishing, the change is there and its event is lost. Use it for events that nothing relies on, or where
    the caller's transaction must not fail because of an event. It takes what :func:`publish` takes, and rejects what is
    invalid at once. Outside a transaction it publishes at once.

    >>> publish_on_commit("default", {"id": 1}, type="page.viewed")
    """
    connection = connections[_alias(using)]
    check_options({"payload": payload, **options})
    if not around_publishing.observers:
        event = checked(topic_to_publish_to(topic, connection.alias), payload, **options)
    else:  # now: by the time of the commit, the surrounding span has ended
        publishing = Publishing(topic=topic, using=connection.alias, type=options.get("type", ""))
        with around_publishing(publishing):
            options["metadata"] = _with(publishing.metadata, options.get("metadata"))
            event = checked(topic_to_publish_to(topic, connection.alias), payload, **options)
    if is_in_transaction(connection):
        # After the caller's commit nothing may fail any more; outside a transaction the caller gets the error.
        connection.on_commit(lambda: write_alone(connection, event), robust=True)
    else:
        write_alone(connection, event)


async def apublish(topic: str, payload: Any, *, using: str | None = None, **options: Any) -> uuid.UUID:
    """:func:`publish`, awaited: as part of the transaction that the surrounding synchronous code has open.

    Like all of Django's asynchronous methods it runs in the thread of the synchronous code that called the coroutine.
    Django's transactions belong to a thread, and a coroutine cannot open one. So it publishes where synchronous code
    within ``transaction.atomic()`` has called the coroutine by ``async_to_sync``, and raises ``NotInTransaction``
    everywhere else. In an asynchronous view, put the change and :func:`publish` into one synchronous function, and
    await that by ``sync_to_async``; for an event that stands alone await :func:`apublish_on_commit`.

    >>> from asgiref.sync import async_to_sync
    >>> from django.db import transaction
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
