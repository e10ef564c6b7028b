"""Changing the payload of an event that cannot be handled as it was published."""

import json
from typing import Any

from django.db import DataError, connections, transaction
from django.utils.translation import gettext as _

from pubsub.conf import conf
from pubsub.db.sql import load
from pubsub.errors import InvalidEvent, LetterChanged
from pubsub.models import OperatorEvent

from .actions import REPLAY, Letter, apply, topic_names
from .filter import LetterFilter


def edit_payload(
    letter_id: int, payload: str, *, using: str, seen: str | None = None, actor: str = "", reason: str = ""
) -> None:
    """Gives a dead letter another payload, as JSON text; the one that was published is kept beside it.

    `seen` is the MD5 of the payload that was looked at, as PostgreSQL writes it: if it has been changed since,
    nothing happens and LetterChanged is raised, as where the letter no longer waits for an operator.
    """
    check_payload(payload)
    try:
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute(load("dead_letters/edit_payload"), {"id": letter_id, "payload": payload, "seen": seen})
            row = cursor.fetchone()
            if row is None:
                raise LetterChanged(
                    _(
                        "Dead letter %(id)s was not changed: it no longer waits for an operator, or its "
                        "payload has been edited by someone else since. Look at it again."
                    )
                    % {"id": letter_id}
                )
            group, topic_id, is_edited = row
            OperatorEvent.objects.using(using).create(
                actor=actor,
                action="edit-dead-letter-payload",
                topic=topic_names([topic_id], using=using)[topic_id],
                group_id=group,
                reason=reason,
                # Not the payloads: who may read what operators did need not be allowed to see those.
                after={"ids": [letter_id], "edited": is_edited},
            )
    except DataError as error:
        raise _not_storable(error) from error


def _not_storable(error: DataError) -> InvalidEvent:
    return InvalidEvent(_("PostgreSQL cannot store this payload: %(error)s.") % {"error": str(error).splitlines()[0]})


def as_stored(payload: str, *, using: str) -> str:
    """The JSON text as PostgreSQL will tell it: keys in its order, without spaces that mean nothing."""
    check_payload(payload)
    try:
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute("SELECT %s::jsonb::text", [payload])
            return str(cursor.fetchone()[0])
    except DataError as error:
        raise _not_storable(error) from error


def edit_and_replay(
    letter_id: int, payload: str, *, using: str, seen: str | None = None, actor: str = "", reason: str = ""
) -> list[Letter]:
    """Both in one transaction. The rest of the letter's transaction is replayed with it, as it was published."""
    with transaction.atomic(using=using):
        edit_payload(letter_id, payload, using=using, seen=seen, actor=actor, reason=reason)
        return apply(REPLAY, LetterFilter(ids=(letter_id,)), using=using, actor=actor, reason=reason)


def check_payload(text: str) -> None:
    """Raises InvalidEvent, which says where and what, unless the text is JSON that says what it means.

    >>> check_payload('{"total": 1, "total": 2}')
    Traceback (most recent call last):
    pubsub.errors.InvalidEvent: The key "total" stands twice in one object; remove one.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > 2 * conf().max_payload_bytes:
        raise InvalidEvent(
            _('The payload has %(size)s bytes; PUBSUB["max_payload_bytes"] allows %(limit)s.')
            % {"size": f"{size:,}", "limit": f"{conf().max_payload_bytes:,}"}
        )
    try:
        json.loads(text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_int=str)
    except json.JSONDecodeError as error:
        raise InvalidEvent(
            _("Expected JSON, but in line %(line)s, column %(column)s: %(error)s.")
            % {"line": error.lineno, "column": error.colno, "error": error.msg}
        ) from None
    except RecursionError:
        raise InvalidEvent(_("Expected JSON of a reasonable depth.")) from None


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidEvent(_('The key "%(key)s" stands twice in one object; remove one.') % {"key": key})
        found[key] = value
    return found


def _no_constant(name: str) -> None:
    raise InvalidEvent(
        _("%(name)s stands in the payload, which JSON does not know; write null or a string.") % {"name": name}
    )
