"""The values of a filter's lookups: in JSON's form, and how the database reads stored ones."""

import datetime as dt
import functools
import json
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

from pubsub.errors import InvalidEvent, InvalidSubscription
from pubsub.publishing.encode import check_text, to_json

DECIMAL, TIME = "$decimal", "$time"
"""How values that JSON has no type for are written in a filter's text."""

# Templates over {x}, the stored jsonb value, and {t}, the same as text.

# A date and time with its offset, as Django writes it to JSON. A string of this form can be cast without an error,
# except that the day may be too large for its month: so the day is added separately.
INSTANT = (
    "CASE WHEN jsonb_typeof({x}) = 'string' AND {t} ~ "
    "'^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    "([.][0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])$' THEN "
    "(left({t}, 8) || '01' || substr({t}, 11))::timestamptz + (substr({t}, 9, 2)::integer - 1) * interval '24 hours' "
    "END"
)

# Django cuts a time to milliseconds in JSON: over {t} and {v}, the time that it is compared with, cut where {t} was.
AS_WRITTEN = "CASE WHEN {t} ~ '[.][0-9]{3}(Z|[+-])' THEN date_trunc('milliseconds', {v}) ELSE {v} END"

# Django writes decimals to JSON as strings, so that they stay exact.
NUMERIC = (
    "CASE WHEN jsonb_typeof({x}) = 'number' THEN {t}::numeric "
    "WHEN jsonb_typeof({x}) = 'string' AND length({t}) <= 1000 "
    "AND {t} ~ '^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]{1,3})?$' THEN {t}::numeric END"
)


def as_json(given: str, value: Any) -> Any:
    """The value in JSON's form. A value that JSON has no type for, and that is no string, is tagged."""
    if isinstance(value, Mapping) and len(value) == 1 and isinstance(tagged := next(iter(value.values())), str):
        if TIME in value:
            return {TIME: as_time(given, tagged).isoformat()}
        if DECIMAL in value:
            return {DECIMAL: as_decimal(given, tagged)}
    if isinstance(value, dt.datetime):
        return {TIME: as_time(given, value).isoformat()}
    if isinstance(value, Decimal):
        return {DECIMAL: as_decimal(given, value)}
    if isinstance(value, Mapping):
        value = dict(value)
    elif isinstance(value, set | frozenset):
        value = list(value)
    try:
        return json.loads(to_json(given, value))
    except (InvalidEvent, ValueError) as error:
        raise InvalidSubscription(str(error)) from error


def as_time(given: str, value: Any) -> dt.datetime:
    try:
        time = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(time, dt.datetime) and time.tzinfo is not None:
            return time.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidSubscription(
        f'"{given}" must be a time with its zone, such as timezone.now() or "2026-01-31T12:00:00Z", not {value!r}.'
    )


def as_decimal(given: str, value: Any) -> str:
    try:
        number = Decimal(value)
        if number.is_finite() and len(number.as_tuple().digits) <= 1000 and abs(number.adjusted()) < 1000:
            return str(number.normalize(Context(prec=1000)) if number else Decimal(0))
    except ArithmeticError:
        pass
    raise InvalidSubscription(f'"{given}" must be a finite number of at most 1,000 digits, not {value!r}.')


def storable(given: str, text: str) -> str:
    try:
        return check_text(f'where["{given}"]', text)
    except InvalidEvent as error:
        raise InvalidSubscription(str(error)) from error


def tag_of(value: Any) -> str | None:
    if isinstance(value, dict) and len(value) == 1:
        return next((tag for tag in (DECIMAL, TIME) if isinstance(value.get(tag), str)), None)
    return None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


canonical_text: Callable[[Any], str] = functools.partial(
    json.dumps, sort_keys=True, ensure_ascii=False, separators=(",", ":")
)
