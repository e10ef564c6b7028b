"""Values that no caller should give, for tests that attack an entrance: made by hypothesis, bounded in time."""

import datetime as dt
import enum
import time
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LONGEST_S = 30
"""How long an attack goes on. Setting up and looking at what has become of it come on top."""

ODD_TEXTS = [
    "",
    " ",
    "x",
    "-1",
    "0",
    "2147483648",
    "9223372036854775808",
    "9" * 20,
    "9" * 5000,
    "1e400",
    "nan",
    "-inf",
    "\x00",
    "\ud800",
    "\udcff",
    "\x1b[2J\n",
    "\u2028\u202e",
    "٣",
    "𒀀" * 600,
    "{}",
    "null",
    "%s%(x)s{0}{x}",
    "'; DROP TABLE outbox_topics; --",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "a" * 10_000,
    "0001-01-01T00:00+15:00",
    "9999-12-31T23:59:59-15:00",
    "2024-02-30",
    "99999999d",
    "1d12h",
]

any_character = st.characters(exclude_categories=())
"""Those that are none, such as half a surrogate pair, included."""
any_text = st.one_of(st.sampled_from(ODD_TEXTS), st.text(any_character, max_size=30), st.text(max_size=30))


class Color(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    def __str__(self) -> str:
        return "another"


class Whole(int):
    def __repr__(self) -> str:
        return "another"


Point = namedtuple("Point", "x y")

integers = st.one_of(
    st.integers(),
    st.sampled_from([2**31, -(2**31) - 1, 2**63, -(2**63) - 1]),
    # Python writes no number of more than 4,300 digits, so that hypothesis could not name it.
    st.sampled_from([400, 4299, 4300, 5000, 131_000]).map(lambda digits: -(10**digits)),
)
zones = st.one_of(st.none(), st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)).map(dt.timezone))
times = st.datetimes(timezones=zones)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    integers,
    st.floats(),
    any_text,
    st.binary(max_size=20),
    st.decimals(),
    st.sampled_from([Decimal("1E+1000000"), Decimal("-0"), Decimal("sNaN"), 1e308, 5e-324, -0.0]),
    st.uuids(),
    times,
    st.dates(),
    st.times(timezones=zones),
    st.timedeltas(),
    st.complex_numbers(),
    any_text.map(Text),
    any_text.map(lazystr),
    any_text.map(mark_safe),
    st.integers().map(Whole),
    st.sampled_from([Color.RED, Number.ONE, Point(1, "x"), object(), object, print, ..., NotImplemented, range(3)]),
    st.sampled_from([MappingProxyType({"a": 1}), iter([1]), memoryview(b"x"), ValueError("x"), {1, 2}]),
)
keys = st.one_of(any_text, integers, st.floats(), st.booleans(), st.none(), st.tuples(st.integers()), st.uuids())


def _nested(levels: int, inner: Any, is_list: bool) -> Any:
    for _ in range(levels):
        inner = [inner] if is_list else {"a": inner}
    return inner


def _within_itself(is_list: bool) -> Any:
    it: Any = [] if is_list else {}
    if is_list:
        it.append(it)
    else:
        it["a"] = it
    return it


deep = st.builds(_nested, st.sampled_from([150, 199, 200, 201, 400, 900, 5000, 100_000]), scalars, st.booleans())
values = st.one_of(
    scalars,
    st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.tuples(inner, inner),
            st.dictionaries(keys, inner, max_size=4),
            st.dictionaries(any_text, inner, max_size=4).map(OrderedDict),
        ),
        max_leaves=12,
    ),
    deep,
    st.booleans().map(_within_itself),
    st.sampled_from([str, list]).map(lambda kind: "x" * 1_100_000 if kind is str else [0] * 600_000),
)

names_anything = pytest.mark.filterwarnings("ignore:Generating overly large repr")
"""For the tests that attack by `values`, some of which are long."""

Test = Callable[..., None]


def attack(examples: int, seconds: float = LONGEST_S, **strategies: Any) -> Callable[[Test], Test]:
    """Calls a test's body with so many examples, or as many as the time allows. The body takes them by name; give it
    what else it needs as a closure."""

    def decorated(body: Test) -> Test:
        until = time.monotonic() + seconds
        has_failed = False

        def while_there_is_time(**example: Any) -> None:
            nonlocal has_failed
            if time.monotonic() > until and not has_failed:
                return
            try:
                body(**example)
            except BaseException:
                has_failed = True  # hypothesis looks for the simplest example, and must find that it fails
                raise

        limits = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        return limits(given(**strategies)(while_there_is_time))

    return decorated
