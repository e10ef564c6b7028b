"""Filters mean what the documents say, for every payload, and carry nothing but parameters."""

import datetime as dt
import json
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import JSONField, Value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pubsub.errors import InvalidSubscription
from pubsub.models import OutboxMessage
from pubsub.subscriptions import filters

pytestmark = pytest.mark.django_db


def stored(**content: Any) -> OutboxMessage:
    content.setdefault("payload", {})
    if content["payload"] is None:
        content["payload"] = Value(None, JSONField())  # JSON's null, not SQL's
    message = OutboxMessage(topic_id=1, **content)
    message.save()
    return message


def passes(message: OutboxMessage, where: Mapping[str, Any]) -> bool:
    chosen = filters.compile(where)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {chosen.sql} FROM outbox_message_t AS message WHERE id = %(id)s",
            {**chosen.parameters, "id": message.pk},
        )
        (answer,) = cursor.fetchone()
    assert answer in (True, False)
    return bool(answer)


TIME = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
PRECISE = TIME.replace(microsecond=123_456)
EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))

CASES: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    # type, key, host_id and user_id are text
    ({"type": "order.created"}, {"type": "order.created"}, True),
    ({"type": "order.created"}, {"type": "order.paid"}, False),
    ({"type": "order.created"}, {"type__startswith": "order."}, True),
    ({"type": "order.created"}, {"type__startswith": "created"}, False),
    ({"type": "order.created"}, {"type__contains": "created"}, True),
    ({"type": "order.created"}, {"type__in": ["order.paid", "order.created"]}, True),
    ({"type": "100%_a"}, {"type__startswith": "100%_"}, True),
    ({"type": "100 xa"}, {"type__startswith": "100%_"}, False),
    ({"key": "7"}, {"key": 7}, True),
    ({"key": "7"}, {"key__in": [7, uuid.UUID(int=7)]}, True),
    ({"key": None}, {"key": "7"}, False),
    ({"key": None}, {"not": {"key": "7"}}, True),
    ({"key": None}, {"key": None}, True),
    ({"key": None}, {"key__isnull": True}, True),
    ({"key": "7"}, {"key__isnull": False}, True),
    ({"key": None}, {"key__in": ["7", None]}, True),
    ({"key": "b"}, {"key__gt": "a", "key__lt": "c"}, True),
    ({"key": "B"}, {"key__lt": "a"}, True),
    ({"host_id": "é"}, {"host_id__gt": "z"}, True),
    ({"host_id": "1", "user_id": "2"}, {"host_id": "1", "user_id": "3"}, False),
    # created_at is a time
    ({"created_at": TIME}, {"created_at": TIME}, True),
    ({"created_at": TIME}, {"created_at__gte": TIME.astimezone(EAST), "created_at__lte": TIME}, True),
    ({"created_at": TIME}, {"created_at__gt": "2026-03-01T12:00:00Z"}, False),
    ({"created_at": TIME}, {"created_at__in": [TIME, TIME + dt.timedelta(1)]}, True),
    # numbers compare as numbers
    ({"payload": {"total": 9}}, {"payload__total__lt": 10}, True),
    ({"payload": {"total": 100.0}}, {"payload__total": 100}, True),
    ({"payload": {"total": 100.5}}, {"payload__total__gte": 100.5}, True),
    ({"payload": {"total": 10**30}}, {"payload__total__gt": 10**30 - 1}, True),
    ({"payload": {"total": "100"}}, {"payload__total__gte": 1}, False),
    ({"payload": {"total": True}}, {"payload__total__gte": 0}, False),
    ({"payload": {"total": True}}, {"payload__total": 1}, False),
    ({"payload": {"total": None}}, {"payload__total__gte": 0}, False),
    ({"payload": {"total": [100]}}, {"payload__total__gte": 0}, False),
    # a decimal also compares with what Django makes of a decimal
    ({"payload": {"total": "99.90"}}, {"payload__total__lt": Decimal(100)}, True),
    ({"payload": {"total": "99.90"}}, {"payload__total": Decimal("99.9")}, True),
    ({"payload": {"total": 99.9}}, {"payload__total__in": [Decimal("99.9"), "x"]}, True),
    ({"payload": {"total": "much"}}, {"payload__total__lt": Decimal(100)}, False),
    ({"payload": {"total": "1E+3"}}, {"payload__total": Decimal(1000)}, True),
    ({"payload": {"total": "1e9999999"}}, {"payload__total__gt": Decimal(0)}, False),
    ({"payload": {"total": "9" * 2000}}, {"payload__total__gt": Decimal(0)}, False),
    ({"payload": {"total": "0." + "1" * 40}}, {"payload__total": Decimal("0." + "1" * 40)}, True),
    # a time compares as a time, in whichever zone it was written
    ({"payload": {"at": TIME}}, {"payload__at": TIME}, True),
    ({"payload": {"at": "2026-03-01T17:30:00+05:30"}}, {"payload__at": TIME}, True),
    ({"payload": {"at": "2026-03-01T12:00:00.123Z"}}, {"payload__at__gt": TIME}, True),
    ({"payload": {"at": PRECISE}}, {"payload__at": PRECISE}, True),
    ({"payload": {"at": PRECISE}}, {"payload__at__in": [PRECISE]}, True),
    ({"payload": {"at": PRECISE}}, {"payload__at__gte": PRECISE, "payload__at__lte": PRECISE}, True),
    ({"payload": {"at": PRECISE}}, {"payload__at__lt": PRECISE}, False),
    ({"payload": {"at": PRECISE}}, {"payload__at__gt": PRECISE}, False),
    ({"payload": {"at": PRECISE}}, {"payload__at__lt": PRECISE + dt.timedelta(milliseconds=1)}, True),
    ({"payload": {"at": PRECISE.isoformat()}}, {"payload__at": PRECISE}, True),
    ({"payload": {"at": PRECISE.isoformat()}}, {"payload__at__gt": PRECISE - dt.timedelta(microseconds=1)}, True),
    ({"payload": {"at": PRECISE.isoformat()}}, {"payload__at": PRECISE - dt.timedelta(microseconds=1)}, False),
    ({"payload": {"at": "2026-02-31T00:00:00Z"}}, {"payload__at__gt": TIME}, True),
    ({"payload": {"at": "0000-01-01T00:00:00Z"}}, {"payload__at__lt": TIME}, False),
    ({"payload": {"at": "2026-13-01T00:00:00Z"}}, {"payload__at__gt": TIME}, False),
    ({"payload": {"at": "soon"}}, {"payload__at__gt": TIME}, False),
    ({"payload": {"at": 1}}, {"payload__at__gt": TIME}, False),
    ({"payload": {"day": "2026-03-02"}}, {"payload__day__gt": dt.date(2026, 3, 1)}, True),
    # strings compare as strings, by code points
    ({"payload": {"name": "b"}}, {"payload__name__gt": "B"}, True),
    ({"payload": {"name": 5}}, {"payload__name__gt": ""}, False),
    ({"payload": {"name": "Ada Lovelace"}}, {"payload__name__startswith": "Ada"}, True),
    ({"payload": {"name": ["Ada"]}}, {"payload__name__startswith": "Ada"}, False),
    # contains: part of a string, element of a list, part of an object
    ({"payload": {"name": "Ada Lovelace"}}, {"payload__name__contains": "Love"}, True),
    ({"payload": {"tags": ["new", "vip"]}}, {"payload__tags__contains": "vip"}, True),
    ({"payload": {"tags": ["new", "vip"]}}, {"payload__tags__contains": "vi"}, False),
    ({"payload": {"tags": ["new", "vip"]}}, {"payload__tags__contains": ["vip", "new"]}, True),
    ({"payload": {"to": {"city": "Bern", "zip": 1}}}, {"payload__to__contains": {"city": "Bern"}}, True),
    ({"payload": {"to": {"city": "Bern"}}}, {"payload__contains": {"to": {"city": "Basel"}}}, False),
    ({"payload": [1, 2]}, {"payload__contains": 2}, True),
    ({"payload": {"n": 5}}, {"payload__n__contains": 5}, True),
    # paths
    ({"payload": {"items": [{"n": 1}, {"n": 2}]}}, {"payload__items__1__n": 2}, True),
    ({"payload": {"items": [{"n": 1}, {"n": 2}]}}, {"payload__items__-1__n": 2}, True),
    ({"payload": {"1": "one"}}, {"payload__1": "one"}, True),
    ({"payload": {"in": "x"}}, {"payload__in__exact": "x"}, True),
    ({"payload": {"range": "x"}}, {"payload__range__exact": "x"}, True),
    ({"payload": {"lt": {"gt": 3}}}, {"payload__lt__gt__gt": 2}, True),
    ({"payload": {"first_name": "Ada"}}, {"payload__first_name": "Ada"}, True),
    ({"payload": "text"}, {"payload": "text"}, True),
    ({"payload": "text"}, {"payload__a__b": "text"}, False),
    ({"payload": {"a": {"b": [1, {"c": None}]}}}, {"payload__a": {"b": [1.0, {"c": None}]}}, True),
    ({"payload": {"n": 2}}, {"payload__n__in": [1, 2.0, "3", None, [4]]}, True),
    ({"payload": {"n": "2"}}, {"payload__n__in": [1, 2, 3]}, False),
    ({"metadata": {"trace": "x"}}, {"metadata__trace": "x"}, True),
    # null and absent are the same
    ({"payload": {"a": None}}, {"payload__a__isnull": True}, True),
    ({"payload": {}}, {"payload__a__isnull": True}, True),
    ({"payload": {}}, {"payload__a": None}, True),
    ({"payload": {"a": 0}}, {"payload__a__isnull": False}, True),
    ({"payload": {}}, {"payload__a__in": [1, None]}, True),
    # not: exactly the others
    ({"payload": {}}, {"not": {"payload__total__gte": 100}}, True),
    ({"type": "a", "payload": {"n": 1}}, {"type": "a", "not": {"payload__n": 1}}, False),
    ({"type": "a"}, {"not": {"not": {"type": "a"}}}, True),
    ({"type": "a"}, {"not": {"type": "a", "key": "b"}}, True),
    ({"type": "a"}, {}, True),
    ({"type": "a"}, {"any": [{"type": "b"}, {"type": "a"}]}, True),
    ({"type": "a"}, {"any": [{"type": "b"}, {"type": "a", "key": "x"}]}, False),
    ({"type": "a", "key": "k"}, {"all": [{"type": "a"}, {"not": {"key": "k"}}]}, False),
    ({"type": "a", "key": "k"}, {"all": [{"type": "a"}, {"type__gt": "A"}], "key": "k"}, True),
]


@pytest.mark.parametrize(("content", "where", "expected"), CASES, ids=lambda value: str(value)[:60])
def test_what_matches(content: dict[str, Any], where: dict[str, Any], expected: bool) -> None:
    assert passes(stored(**content), where) is expected
    # As it is kept in a row, and as an operator may write it: JSON means the same.
    text = filters.compile(where).text
    assert passes(stored(**content), json.loads(text)) is expected
    assert filters.compile(json.loads(text)) == filters.compile(where)


REFUSED: list[tuple[Any, str]] = [
    ("type", "must be a mapping"),
    ([1], "must be a mapping"),
    ({1: 2}, "keys must be strings"),
    ({"pyload__total": 1}, 'no field "pyload". Did you mean "payload"?'),
    ({"payload.total": 1}, 'no field "payload.total". Did you mean "payload"?'),
    ({"xyz": 1}, "There are: type, key"),
    ({"type__startwith": "a"}, 'Did you mean "startswith"?'),
    ({"type__name": "a"}, 'type has no lookup "name"'),
    ({"payload__name__startwith": "a"}, 'Did you mean "startswith"?'),
    ({"payload__name__icontains": "a"}, 'write "payload__name__icontains__exact"'),
    ({"payload____a": 1}, "empty key"),
    ({"payload__a__": 1}, "empty key"),
    ({"payload__\x00": 1}, r"\u0000"),
    ({"type": None}, None),
    ({"type": 1.5}, "must be a string"),
    ({"type": ["a"]}, "must be a string"),
    ({"type": "a\x00"}, r"\u0000"),
    ({"key": "\ud800"}, "surrogate"),
    ({"key": True}, "must be a string"),
    ({"key__gt": 5}, "must be a string"),
    ({"key__gt": None}, "not None"),
    ({"key__isnull": "yes"}, "True or False"),
    ({"key__in": "abc"}, "must be a list"),
    ({"key__in": []}, "empty list"),
    ({"created_at": dt.datetime(2026, 1, 1)}, "with its zone"),
    ({"created_at": "yesterday"}, "with its zone"),
    ({"created_at": None}, "not None"),
    ({"created_at__in": [TIME, None]}, "never null"),
    ({"created_at__isnull": True}, "never null"),
    ({"created_at__startswith": "2026"}, 'cannot be compared by "startswith"'),
    ({"payload__at": dt.datetime(2026, 1, 1)}, "with its zone"),
    ({"payload__n__gt": True}, "must be a number, a string or a time"),
    ({"payload__n__gt": [1]}, "must be a number, a string or a time"),
    ({"payload__n": float("nan")}, "nan"),
    ({"payload__n": Decimal("NaN")}, "finite"),
    ({"payload__n": Decimal("1e5000")}, "1,000 digits"),
    ({"payload__n": Ellipsis}, "cannot be written as JSON"),
    ({"payload__n": "a\x00"}, r"\u0000"),
    ({"payload__n__startswith": 5}, "must be a string"),
    ({"payload__n__contains": None}, "not None"),
    ({"payload__n__contains": TIME}, "must be"),
    ({"payload__n__isnull": None}, "True or False"),
    ({"payload__n": 1, "payload__n__exact": 2}, "twice"),
    ({"not": "type"}, "must be a mapping"),
    ({"not": {}}, "empty"),
    ({"any": {"type": "a"}}, "must be a list of mappings"),
    ({"any": []}, "empty list"),
    ({"all": [{"type": "a"}, {}]}, "empty mapping"),
    ({"any": ["type"]}, "must be a mapping"),
    (
        {"not": {"not": {"not": {"not": {"not": {"not": {"not": {"not": {"not": {"not": {"not": {}}}}}}}}}}}},
        "10 levels",
    ),
    ({"not": {"tpye": "a"}}, 'Did you mean "type"?'),
    ({"type": "x" * 200_000}, "at most 100,000"),
]


@pytest.mark.parametrize(("where", "message"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_is_refused(where: Any, message: str | None) -> None:
    if message is None:
        filters.compile(where)
        return
    with pytest.raises(InvalidSubscription) as refused:
        filters.compile(where)
    assert message in str(refused.value)


def test_equal_filters_have_equal_texts() -> None:
    same: list[dict[str, Any]] = [
        {"type": "a", "key__in": ["2", "1", "1"]},
        {"key__in": (1, 2), "type__exact": "a"},
        {"key__in": {"2", "1"}, "type": "a"},
    ]
    assert len({filters.compile(where) for where in same}) == 1
    assert filters.compile({"payload__n": 1}) != filters.compile({"payload__n": "1"})


def test_filters_in_one_statement_have_names_of_their_own() -> None:
    message = stored(type="a", key="b")
    first = filters.compile({"type": "a", "key": "b"}).named("first")
    second = filters.compile({"type": "b", "key__in": ["a"]}).named("second")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {first.sql}, {second.sql} FROM outbox_message_t AS message WHERE id = %(id)s",
            {**first.parameters, **second.parameters, "id": message.pk},
        )
        assert cursor.fetchone() == (True, False)
    with pytest.raises(ValueError, match="prefix"):
        first.named("x) OR (1=1")


# What the documents say, in Python: what is absent is null, and nothing else compares with a value of another kind.

ABSENT = object()


def walk(value: Any, path: list[str]) -> Any:
    for key in path:
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.lstrip("-").isdigit() and -len(value) <= int(key) < len(value):
            value = value[int(key)]
        else:
            return ABSENT
    return value


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__


def equal(one: Any, other: Any) -> bool:
    if kind(one) != kind(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if kind(one) == "number":
        return Decimal(repr(one)) == Decimal(repr(other))
    return bool(one == other)


def holds(whole: Any, part: Any) -> bool:
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(key in whole and holds(whole[key], part[key]) for key in part)
    if isinstance(whole, list) and isinstance(part, list):
        return all(any(holds(item, wanted) for item in whole) for wanted in part)
    return equal(whole, part)


def expected_of(value: Any, lookup: str, wanted: Any) -> bool:
    is_null = value is ABSENT or value is None
    match lookup:
        case "isnull":
            return is_null is wanted
        case "in":
            return any(expected_of(value, "exact", item) for item in wanted)
        case "exact":
            return is_null if wanted is None else not is_null and equal(value, wanted)
        case _ if is_null and not (lookup == "contains" and value is None):
            return False
        case "contains":
            if isinstance(value, str) and isinstance(wanted, str):
                return wanted in value
            if isinstance(value, list) and not isinstance(wanted, list | dict):
                return any(equal(item, wanted) for item in value)
            return holds(value, wanted)
        case "startswith":
            return isinstance(value, str) and value.startswith(wanted)
    if kind(value) != kind(wanted):
        return False
    one, other = (value, wanted) if isinstance(value, str) else (Decimal(repr(value)), Decimal(repr(wanted)))
    return {"gt": one > other, "gte": one >= other, "lt": one < other, "lte": one <= other}[lookup]


# Few keys and values, so that they meet; among them all that has ever broken out of a quoted string.
nasty = st.sampled_from(
    ["", "a", "b", "ab", "1", "'", "''", '"', "\\", "%", "%s", "%(where_0)s", "{}", "{t}", ";--", "$1", "é", "null"]
)
texts = nasty | st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5)
keys = st.sampled_from(["a", "b", "0", "-1", "'", "%", '"', "{", ",", "x y", "in "]) | texts.filter(
    lambda key: (
        key
        and "_" not in key
        and not filters._looks_like_lookup(key)
        and key.strip(" +-\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f") == key
    )
)
numbers = st.integers(-3, 3) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
)
contents = st.fixed_dictionaries(
    {
        "type": texts,
        "key": st.none() | texts,
        "payload": documents,
        "metadata": st.dictionaries(keys, documents, max_size=2),
    }
)


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, list[str], str, Any]:
    field = draw(st.sampled_from(["type", "key", "payload", "payload", "metadata"]))
    lookup = draw(st.sampled_from(filters.LOOKUPS))
    path = draw(st.lists(keys, max_size=2)) if field in filters.JSON_FIELDS else []
    if lookup == "isnull":
        return field, path, lookup, draw(st.booleans())
    if field in filters.TEXT_FIELDS or lookup == "startswith":
        values: st.SearchStrategy[Any] = texts
    elif lookup in filters.ORDERINGS:
        values = numbers | texts
    else:
        values = documents.filter(lambda value: value is not None)
    if lookup == "in":
        return field, path, lookup, draw(st.lists(values | st.none(), min_size=1, max_size=3))
    return field, path, lookup, draw(values)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(content=contents, chosen=st.lists(conditions(), max_size=3), negated=st.lists(conditions(), max_size=2))
def test_the_database_and_the_documents_agree(content: dict[str, Any], chosen: list[Any], negated: list[Any]) -> None:
    def lookups(given: list[Any]) -> dict[str, Any]:
        return {"__".join([field, *path, lookup]): wanted for field, path, lookup, wanted in given}

    def holds_for(given: list[Any]) -> bool:
        unique = {
            "__".join([field, *path, lookup]): condition
            for condition in given
            for field, path, lookup, _ in [condition]
        }
        return all(
            expected_of(walk(content[field], path), lookup, wanted) for field, path, lookup, wanted in unique.values()
        )

    where = lookups(chosen) | ({"not": lookups(negated)} if negated else {})
    expected = holds_for(chosen) and not (negated and holds_for(negated))
    with transaction.atomic():
        message = stored(**content)
        assert passes(message, where) is bool(expected)
        transaction.set_rollback(True)
    compiled = filters.compile(where)
    assert filters.compile(json.loads(compiled.text)) == compiled


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    value=st.one_of(
        scalars,
        st.datetimes().map(str),
        st.from_regex(
            r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,7})?(Z|[+-][0-9]{2}:[0-9]{2})",
            fullmatch=True,
        ),
        st.from_regex(r"-?[0-9]{1,5}(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,4})?", fullmatch=True),
    )
)
def test_no_stored_value_makes_a_comparison_fail(value: Any) -> None:
    with transaction.atomic():
        message = stored(payload={"a": value})
        passes(message, {"payload__a__gte": TIME})
        passes(message, {"payload__a__lt": Decimal("1.5")})
        transaction.set_rollback(True)
