"""Filters: which events of a topic a subscriber gets, written as lookups, evaluated by the database.

A filter becomes one SQL expression over the alias ``message`` (a row of outbox_message_t). It is true or false for
every event, never null and never an error, whatever is in the payload: each comparison looks at the stored value's
type first. Everything a user wrote is a parameter; the text of the expression is made of the pieces below.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pubsub.db.sql import fill
from pubsub.errors import InvalidSubscription
from pubsub.suggest import hint, nearest

from .filter_values import (
    AS_WRITTEN,
    INSTANT,
    NUMERIC,
    TIME,
    as_json,
    as_time,
    canonical_text,
    is_number,
    storable,
    tag_of,
)

TEXT_FIELDS = ("type", "key", "host_id", "user_id")
TIME_FIELDS = ("created_at",)
JSON_FIELDS = ("payload", "metadata")
FIELDS = (*TEXT_FIELDS, *TIME_FIELDS, *JSON_FIELDS)

ORDERINGS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
LOOKUPS = ("exact", "in", "contains", "startswith", "isnull", *ORDERINGS)
_NOT_OF_TIMES = ("contains", "startswith", "isnull")

FOREIGN_LOOKUPS = (
    *("iexact", "icontains", "istartswith", "endswith", "iendswith", "range", "regex", "iregex", "has_key", "has_keys"),
    *("has_any_keys", "contained_by", "eq", "ne", "neq", "nin", "not_in", "like", "ilike"),
)
"""Lookups of other libraries: taken for keys of the payload they would silently match nothing."""

LONGEST = 100_000
"""Characters of a filter as JSON."""

DEEPEST = 10
"""How deep `not`, `any` and `all` may be nested."""

CONNECTIVES = ("not", "any", "all")


@dataclass(frozen=True)
class Filter:
    """A filter that the database can evaluate.

    >>> wanted = compile({"type": "order.created", "payload__total__gte": 100})
    >>> wanted.text
    '{"payload__total__gte":100,"type":"order.created"}'
    >>> compile({"key__in": [1, 2], "type__startswith": "order."}).sql
    '((message.key = ANY (%(where_0)s::text[])) IS TRUE) AND (starts_with(message.type, %(where_1)s::text)) IS TRUE'
    """

    text: str
    """The filter as JSON, the same for all that have the same conditions; ``compile(json.loads(text))`` is equal."""
    sql: str = field(compare=False)
    """An expression over ``message``, with named parameters."""
    parameters: Mapping[str, Any] = field(compare=False)

    def named(self, prefix: str) -> "Filter":
        """The same with other names of parameters, so that several fit into one statement.

        >>> compile({"key": 1}).named("second").parameters
        {'second_0': '1'}
        """
        if not re.fullmatch(r"[a-z][a-z0-9_]*", prefix):
            raise ValueError(f"prefix must be lower-case letters, digits and underscores, not {prefix!r}.")
        return replace(
            self,
            sql=self.sql.replace("%(where_", f"%({prefix}_"),
            parameters={f"{prefix}_{name.removeprefix('where_')}": value for name, value in self.parameters.items()},
        )

    @property
    def is_trivial(self) -> bool:
        """Whether every event passes."""
        return self.text == "{}"


def compile(where: Mapping[str, Any] | None) -> Filter:
    """A filter from lookups, all of which must hold; without any, every event passes.

    A lookup is a field, ``type``, ``key``, ``host_id``, ``user_id``, ``created_at``, ``payload`` or ``metadata``, for
    the last two a path into them, and how to compare: ``exact`` (the default), ``in``, ``contains``,
    ``startswith``, ``gt``, ``gte``, ``lt``, ``lte``, ``isnull``. The key ``not`` takes lookups that must not all hold;
    ``any`` takes a list of such mappings, one of which must hold, ``all`` one of which each must.

    >>> compile({"payload__total__gte": 100, "not": {"type__in": ["order.cancelled", "order.refunded"]}}).text
    '{"not":{"type__in":["order.cancelled","order.refunded"]},"payload__total__gte":100}'
    >>> compile({"pyload__total": 100})
    Traceback (most recent call last):
    pubsub.errors.InvalidSubscription: where has no field "pyload". Did you mean "payload"?
    """
    parameters: dict[str, Any] = {}

    def add(value: Any) -> str:
        name = f"where_{len(parameters)}"
        parameters[name] = value
        return f"%({name})s"

    canonical, sql = _all(where or {}, add, 0)
    text = canonical_text(canonical)
    if len(text) > LONGEST:
        raise InvalidSubscription(
            f"where has {len(text):,} characters as JSON; at most {LONGEST:,} are allowed. Publish what events have "
            f"in common as a field, and filter by that."
        )
    return Filter(text=text, sql=sql, parameters=parameters)


Add = Callable[[Any], str]
"""Takes a parameter and returns its mark."""


def _all(where: Any, add: Add, depth: int) -> tuple[dict[str, Any], str]:
    if not isinstance(where, Mapping):
        raise InvalidSubscription(
            f'where must be a mapping of lookups, such as {{"type": "order.created"}}, not {where!r}.'
        )
    if depth > DEEPEST:
        raise InvalidSubscription(f'where has more than {DEEPEST} levels of "not", "any" and "all".')
    canonical: dict[str, Any] = {}
    conditions: dict[str, str] = {}
    for name, value in sorted(where.items(), key=lambda item: str(item[0])):
        if name == "not":
            canonical[name], sql = _not_empty(name, value, add, depth)
            conditions[name] = f"NOT ({sql})"
        elif name in CONNECTIVES:
            canonical[name], conditions[name] = _several(name, value, add, depth)
        else:
            lookup = Lookup(name)
            if lookup.name in canonical:
                raise InvalidSubscription(f'where has "{lookup.name}" twice, once as "{name}".')
            canonical[lookup.name], conditions[lookup.name] = lookup.compile(value, add)
    return canonical, " AND ".join(conditions.values()) or "true"


def _not_empty(name: str, where: Any, add: Add, depth: int) -> tuple[dict[str, Any], str]:
    canonical, sql = _all(where, add, depth + 1)
    if not canonical:
        raise InvalidSubscription(f'where has an empty mapping in "{name}", which matches every event; leave it out.')
    return canonical, sql


def _several(name: str, wheres: Any, add: Add, depth: int) -> tuple[list[Any], str]:
    if isinstance(wheres, str | Mapping) or not isinstance(wheres, Iterable):
        raise InvalidSubscription(f'"{name}" must be a list of mappings of lookups, not {wheres!r}.')
    alternatives = [_not_empty(name, where, add, depth) for where in wheres]
    if not alternatives:
        raise InvalidSubscription(f'where has an empty list in "{name}"; leave it out.')
    joined = (" OR " if name == "any" else " AND ").join(f"({sql})" for _, sql in alternatives)
    return [canonical for canonical, _ in alternatives], f"({joined})"


class Lookup:
    """The left side of a condition, such as `payload__total__gte`."""

    def __init__(self, name: Any) -> None:
        if not isinstance(name, str):
            raise InvalidSubscription(f"where has the key {name!r}; keys must be strings such as 'type'.")
        self.given = name
        self.field, *path = name.split("__")
        if self.field not in FIELDS:
            raise InvalidSubscription(f'where has no field "{self.field}". {hint(self.field, (*FIELDS, *CONNECTIVES))}')
        self.lookup = "exact"
        if path and path[-1] in LOOKUPS:
            self.lookup = path.pop()
        self._check_path(path)
        self.path = path
        # Without a redundant "exact": it is needed only behind a key with the name of a lookup.
        explicit = [self.lookup] if self.lookup != "exact" or (path and _looks_like_lookup(path[-1])) else []
        self.name = "__".join([self.field, *path, *explicit])

    def _check_path(self, path: list[str]) -> None:
        if not path:
            return
        last = path[-1]
        if self.field not in JSON_FIELDS:
            raise InvalidSubscription(f'"{self.given}": {self.field} has no lookup "{last}". {hint(last, LOOKUPS)}')
        if "" in path:
            raise InvalidSubscription(f'"{self.given}" has an empty key between its double underscores.')
        if _looks_like_lookup(last) and not self.given.endswith(f"__{last}__{self.lookup}"):
            raise InvalidSubscription(
                f'"{self.given}": there is no lookup "{last}". {hint(last, LOOKUPS)} For a key of that name write '
                f'"{self.given}__exact".'
            )
        for key in path:
            storable(self.given, key)

    def compile(self, value: Any, add: Add) -> tuple[Any, str]:
        """The value as in the canonical text, and the condition, which is never null."""
        if self.lookup == "isnull":
            if not isinstance(value, bool):
                raise InvalidSubscription(f'"{self.given}" must be True or False, not {value!r}.')
            if self.field in TIME_FIELDS:
                raise InvalidSubscription(f'"{self.given}": {self.field} is never null.')
            return value, self._is_null(add) if value else f"NOT {self._is_null(add)}"
        if self.lookup == "in":
            return self._compile_in(value, add)
        if value is None:
            if self.lookup != "exact" or self.field in TIME_FIELDS:
                raise InvalidSubscription(f'"{self.given}" must be given a value, not None.')
            return None, self._is_null(add)
        canonical = self._checked(value)
        return canonical, f"({self._compare(canonical, add)}) IS TRUE"

    def _compile_in(self, values: Any, add: Add) -> tuple[Any, str]:
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise InvalidSubscription(f'"{self.given}" must be a list of values, not {values!r}.')
        items = list(values)
        if not items:
            raise InvalidSubscription(f'"{self.given}" is an empty list, which no event would match.')
        if None in items and self.field in TIME_FIELDS:
            raise InvalidSubscription(f'"{self.given}": {self.field} is never null.')
        checked = {
            canonical_text(item): item for item in (None if item is None else self._checked(item) for item in items)
        }
        canonical = [checked[text] for text in sorted(checked)]
        conditions = [self._is_null(add)] if None in canonical else []
        given = [item for item in canonical if item is not None]
        tagged = [item for item in given if tag_of(item) and self.field in JSON_FIELDS]
        plain = [item for item in given if item not in tagged]
        conditions += [f"({self._compare(item, add)}) IS TRUE" for item in tagged]
        if plain:
            conditions.append(f"({self._equals_any(plain, add)}) IS TRUE")
        return canonical, f"({' OR '.join(conditions)})"

    def _checked(self, value: Any) -> Any:
        """The value in JSON's form, if it can be compared like this."""
        if self.field in TIME_FIELDS:
            if self.lookup in _NOT_OF_TIMES:
                raise InvalidSubscription(f'"{self.given}": a time cannot be compared by "{self.lookup}".')
            return as_time(self.given, value).isoformat()
        if self.field in TEXT_FIELDS:
            return self._checked_text(value)
        canonical = as_json(self.given, value)
        kind = tag_of(canonical)
        if self.lookup in ORDERINGS and not kind and not is_number(canonical) and not isinstance(canonical, str):
            raise InvalidSubscription(f'"{self.given}" must be a number, a string or a time, not {value!r}.')
        if self.lookup == "startswith" and not isinstance(canonical, str):
            raise InvalidSubscription(f'"{self.given}" must be a string, not {value!r}.')
        if self.lookup == "contains" and kind:
            raise InvalidSubscription(f'"{self.given}" must be a string, a number, a list or a mapping, not {value!r}.')
        return canonical

    def _checked_text(self, value: Any) -> str:
        if isinstance(value, str):
            return storable(self.given, str(value))
        # Ids are stored as text, and publish() accepts these. Numbers are not ordered like their texts.
        if isinstance(value, int | uuid.UUID) and not isinstance(value, bool) and self.lookup in ("exact", "in"):
            return str(value)
        raise InvalidSubscription(f'"{self.given}" must be a string, as {self.field} is text, not {value!r}.')

    def _is_null(self, add: Add) -> str:
        if self.field in JSON_FIELDS:
            # Absent and null mean the same: there is no value.
            return f"(coalesce(jsonb_typeof({self._stored(add)}), 'null') = 'null')"
        return f"(message.{self.field} IS NULL)"

    def _stored(self, add: Add) -> str:
        if self.field in JSON_FIELDS and self.path:
            return f"(message.{self.field} #> {add(self.path)}::text[])"
        return f"message.{self.field}"

    def _equals_any(self, values: list[Any], add: Add) -> str:
        if self.field in TIME_FIELDS:
            return f"{self._stored(add)} = ANY ({add(values)}::text[]::timestamptz[])"
        if self.field in TEXT_FIELDS:
            return f"{self._stored(add)} = ANY ({add(values)}::text[])"
        return f"{self._stored(add)} = ANY ({add([canonical_text(value) for value in values])}::text[]::jsonb[])"

    def _compare(self, value: Any, add: Add) -> str:
        stored = self._stored(add)
        if self.field in TIME_FIELDS:
            return f"{stored} {ORDERINGS.get(self.lookup, '=')} {add(value)}::timestamptz"
        if self.field in TEXT_FIELDS:
            return _compare_text(stored, self.lookup, add(value))
        text = f"({stored} #>> '{{}}')"
        tag = tag_of(value)
        if tag:
            if tag == TIME:
                found, wanted = INSTANT, fill(AS_WRITTEN, t=text, v=f"{add(value[tag])}::timestamptz")
            else:
                found, wanted = NUMERIC, f"{add(value[tag])}::numeric"
            return f"{fill(found, x=stored, t=text)} {ORDERINGS.get(self.lookup, '=')} {wanted}"
        if self.lookup == "exact":
            return f"{stored} = {add(canonical_text(value))}::jsonb"
        if self.lookup == "contains":
            contained = f"{stored} @> {add(canonical_text(value))}::jsonb"
            if not isinstance(value, str):
                return contained
            part = f"strpos({text}, {add(value)}::text) > 0"
            return f"CASE jsonb_typeof({stored}) WHEN 'string' THEN {part} ELSE {contained} END"
        if isinstance(value, str):
            return f"jsonb_typeof({stored}) = 'string' AND {_compare_text(text, self.lookup, add(value))}"
        comparison = f"{stored} {ORDERINGS[self.lookup]} {add(canonical_text(value))}::jsonb"
        return f"jsonb_typeof({stored}) = 'number' AND {comparison}"


def _looks_like_lookup(key: str) -> bool:
    long = [name for name in LOOKUPS if len(name) > 4]
    return key in LOOKUPS or key in FOREIGN_LOOKUPS or nearest(key, long, cutoff=0.85) is not None


def _compare_text(stored: str, lookup: str, mark: str) -> str:
    if lookup == "startswith":
        return f"starts_with({stored}, {mark}::text)"
    if lookup == "contains":
        return f"strpos({stored}, {mark}::text) > 0"
    # By code points: the same everywhere, and right for dates and times of one format.
    return f'{stored} {ORDERINGS.get(lookup, "=")} {mark}::text COLLATE "C"'
