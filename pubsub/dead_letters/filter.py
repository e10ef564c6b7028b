"""Which dead letters an operator means: by id, by transaction, by what they have in common."""

import datetime as dt
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db.models import Q, QuerySet

from pubsub.models import DeadLetter, Topic
from pubsub.topics.registry import topic_id


@dataclass(frozen=True, kw_only=True)
class LetterFilter:
    """All conditions hold for what is meant; one that is None asks for nothing.

    >>> LetterFilter(group="email-service", type="order.paid").described
    {'group': 'email-service', 'type': 'order.paid'}
    """

    ids: tuple[int, ...] | None = None
    group: str | None = None
    topic: str | None = None
    type: str | None = None
    exception: str | None = None
    """The exception's class with its module, as it is shown; a built-in one without, too."""
    key: str | None = None
    host: str | None = None
    state: str | None = None
    transaction: uuid.UUID | None = None
    event: uuid.UUID | None = None
    search: str | None = None
    """An event's id, a transaction, a key or a host: whichever is exactly this."""
    since: dt.datetime | None = None
    """Failed first at this time or later."""
    until: dt.datetime | None = None
    """Failed first before this time."""
    up_to: int | None = None
    """Ids no greater than this: nothing that fails after the operator has looked."""

    def __post_init__(self) -> None:
        if self.exception and "." not in self.exception:
            object.__setattr__(self, "exception", f"builtins.{self.exception}")

    @property
    def described(self) -> dict[str, Any]:
        """What is asked for, as JSON tells it."""
        given = {name.name: getattr(self, name.name) for name in fields(self)}
        return {
            name: list(value) if name == "ids" else value if isinstance(value, int) else str(value)
            for name, value in given.items()
            if value is not None
        }

    @property
    def is_everything(self) -> bool:
        return not (self.described.keys() - {"up_to"})

    def parameters(self, using: str) -> dict[str, Any]:
        """What `chosen_letters.sql` wants. A topic that does not exist is an error, with the nearest one's name."""
        given = {name.name: getattr(self, name.name) for name in fields(self)}
        given["ids"] = None if self.ids is None else list(self.ids)
        given["search_id"] = self._search_id
        given["topic_id"] = None if self.topic is None else topic_id(self.topic, using, make=False)
        return given

    def among(self, letters: QuerySet[DeadLetter]) -> QuerySet[DeadLetter]:
        """The same for reading: in whatever state they are."""
        return letters.filter(self._condition())

    def _condition(self) -> Q:
        lookups = {
            "pk__in": self.ids,
            "group_id": self.group,
            # By its id, so that an index tells which are the newest.
            "topic_id": self.topic and Topic.objects.filter(name=self.topic).values("pk")[:1],
            "type": self.type,
            "exception_class": self.exception,
            "key": self.key,
            "host_id": self.host,
            "state": self.state,
            "transaction_id": self.transaction,
            "event_id": self.event,
            "created_at__gte": self.since,
            "created_at__lt": self.until,
            "pk__lte": self.up_to,
        }
        condition = Q(**{name: value for name, value in lookups.items() if value is not None})
        if self.search is not None:
            found = Q(key=self.search) | Q(host_id=self.search)
            if self._search_id:
                found |= Q(event_id=self._search_id) | Q(transaction_id=self._search_id)
            condition &= found
        return condition

    @property
    def _search_id(self) -> uuid.UUID | None:
        try:
            return uuid.UUID(self.search)
        except (TypeError, ValueError):
            return None

    @classmethod
    def from_described(cls, described: Mapping[str, Any]) -> "LetterFilter":
        """The choice that `described` told.

        >>> LetterFilter.from_described({"ids": [3], "up_to": 9})
        LetterFilter(ids=(3,), ...)
        """
        values = dict(described)
        if "ids" in values:
            values["ids"] = tuple(values["ids"])
        for name, convert in (
            ("transaction", uuid.UUID),
            ("event", uuid.UUID),
            ("since", dt.datetime.fromisoformat),
            ("until", dt.datetime.fromisoformat),
        ):
            if name in values:
                values[name] = convert(values[name])
        return cls(**values)


def condition_of(visible: QuerySet[DeadLetter] | None, using: str) -> tuple[str, dict[str, Any]]:
    """That a letter is one of these, as SQL with its parameters; None, or a queryset without a filter, means all.

    >>> condition_of(DeadLetter.objects.filter(host_id="north"), "default")
    ('id IN (SELECT ..."host_id" = %(visible_0)s)', {'visible_0': 'north'})
    """
    if visible is None or not (visible.query.where or visible.query.combinator or visible.query.is_sliced):
        return "true", {}
    try:
        sql, given = visible.values("pk").query.get_compiler(using).as_sql()
    except EmptyResultSet:
        return "false", {}
    names = iter(parameters := {f"visible_{number}": value for number, value in enumerate(given)})
    named = re.sub("%s|%%", lambda found: f"%({next(names)})s" if found[0] == "%s" else "%%", sql)
    return f"id IN ({named})", parameters
