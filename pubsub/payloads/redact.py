"""Hiding sensitive values of an event wherever the event is shown.

``PUBSUB["redact_paths"]`` names them: ``"customer.email"``; ``"items.*.card"``, where ``*`` is any key or list index;
``"**.password"``, where ``**`` is any depth. The paths apply to payload and metadata. ``PUBSUB["redact"]`` names a
function for what paths cannot express: it gets "payload", "metadata" or "exception" and the value, and returns what may
be shown. Handlers see everything, and stored data does not change.
"""

import json
import logging
import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from django.utils.module_loading import import_string

from pubsub.conf import conf

from .decode import decode, scalars

logger = logging.getLogger(__name__)

REDACTED = "[redacted]"
"""Shown instead of a hidden value."""

MOST_SEARCHED = 2000
"""At most this many hidden values are searched for in a text. If there are more, the whole text is hidden."""

SHORT = 5
"""Characters of a value that could be part of any word."""

SHORTEST_PART = 12
"""Characters from which on the beginning, or the end, of a longer hidden value is taken for a quotation of it."""

FRAME = re.compile(r'^[ |]*File "[^"\n]*", line \d+, in [^\n]*$', re.MULTILINE)
"""A line of a traceback."""


INDEX = re.compile(r"\s*[-+]?[0-9]+")


class Redactor:
    """Redacts one event: first its payload and metadata, then the texts that may quote them.

    >>> from django.test import override_settings
    >>> with override_settings(PUBSUB={"redact_paths": ["customer.email"]}):
    ...     redactor = Redactor()
    ...     redactor.json("payload", '{"customer": {"id": 7, "email": "zoe@example.org"}}')
    ...     redactor.text("ValueError: zoe@example.org has no mailbox")
    {'customer': {'id': 7, 'email': '[redacted]'}}
    'ValueError: [redacted] has no mailbox'
    """

    def __init__(self, *, everything: bool = False, raw: bool = False) -> None:
        self._everything = everything
        """For users who may not see payloads: hide all values, and of an exception show only where it was raised."""
        self._paths = [] if raw else [tuple(path.split(".")) for path in conf().redact_paths]
        self._hook: Callable[[str, Any], Any] | None = None
        if conf().redact and not raw:
            self._hook = import_string(conf().redact)
        self._taken_out: set[Any] = set()
        self._search: _Search | None = None
        self._hides_texts = False

    @property
    def shows_all(self) -> bool:
        return not (self._everything or self._paths or self._hook)

    def hides(self, path: Sequence[str]) -> bool:
        """Whether what stands at a path, in payload or metadata, may be hidden. A function may hide anything."""
        return self._everything or self._hook is not None or any(_leads_into(path, hidden) for hidden in self._paths)

    @property
    def searches_texts(self) -> bool:
        """Whether it matters which events a text may quote."""
        return bool(self._paths or self._hook) and not self._everything

    def hide_texts(self) -> None:
        """There is more that a text may quote than can be looked at."""
        self._hides_texts = True

    def json(self, field: str, text: str) -> Any:
        """What may be shown of a jsonb; `field` is "payload" or "metadata"."""
        value = decode(text)
        if self._everything:
            self._taken_out |= scalars(value)
            return REDACTED
        if self.shows_all:
            return value
        before = scalars(value)
        for path in self._paths:
            value = _take_out(value, path)
        value = self._call_hook(field, value)
        self._taken_out |= before - scalars(value)
        self._search = None
        return value

    def text(self, text: str) -> str:
        """What may be shown of an exception's message or traceback. Call it after :meth:`json`."""
        if self._everything:
            # A message may say anything in any words; where it was raised says nothing of the payload.
            return "\n".join(FRAME.findall(text)) or REDACTED
        if self._hides_texts or len(self._taken_out) > MOST_SEARCHED:
            return REDACTED
        if self._search is None:
            self._search = _Search(self._taken_out)
        text = self._search.without(text)
        return str(self._call_hook("exception", text))

    def _call_hook(self, field: str, value: Any) -> Any:
        if self._hook is None:
            return value
        try:
            return self._hook(field, value)
        except Exception as error:  # what cannot be redacted is not shown
            # Its message may quote what it was to hide.
            kind, lines = type(error).__qualname__, "".join(traceback.format_tb(error.__traceback__))
            logger.error("PUBSUB['redact'] failed on a %s (%s); all of it is hidden\n%s", field, kind, lines)
            return REDACTED


def _take_out(value: Any, path: tuple[str, ...]) -> Any:
    """The value, changed in place, without the values at the path."""
    root = [value]
    stack: list[tuple[Any, int]] = [(root, -1)]  # the list around the root is not a step of the path
    while stack:
        parent, step = stack.pop()
        for key, item in list(enumerate(parent) if isinstance(parent, list) else parent.items()):
            for following in _steps_after(path, step, str(key)):
                if following == len(path):
                    parent[key] = REDACTED
                elif isinstance(item, dict | list):
                    stack.append((item, following))
    return root[0]


def _steps_after(path: tuple[str, ...], step: int, key: str) -> Iterable[int]:
    """Which steps of the path may follow this key."""
    if step < 0:
        return (0,)
    if path[step] == "**":
        # It also matches no key at all: then this key belongs to the next step.
        return {step, *(_steps_after(path, step + 1, key) if step + 1 < len(path) else (step + 1,))}
    return (step + 1,) if path[step] in ("*", key) else ()


def _leads_into(path: Sequence[str], hidden: tuple[str, ...]) -> bool:
    """Whether a path, as PostgreSQL reads it, ends at a hidden one, or below it."""
    steps = {0}
    for key in path:
        # There are many ways to write an index, such as -1 and 00.
        keys = {key, *filter(str.isdecimal, hidden)} if INDEX.fullmatch(key) else {key}
        steps = {following for step in steps for key in keys for following in _steps_after(hidden, step, key)}
        if len(hidden) in steps:
            return True
    return False


def _spellings(value: Any) -> Iterable[str]:
    """The ways in which a text may write a value: what jsonb has as 1234.50, Python writes as 1234.5."""
    yield str(value)
    if isinstance(value, Decimal | int):
        with suppress(OverflowError):
            yield repr(float(value))
            yield f"{Decimal(value).normalize():f}"


class _Search:
    """Looks for hidden values in many texts."""

    def __init__(self, values: set[Any]) -> None:
        self._written = _written(values)
        self._long = [value for value in self._written if len(value) > 2 * SHORTEST_PART]

    def without(self, text: str) -> str:
        if there := [value for value in self._written if value in text]:
            text = _any_of(there).sub(REDACTED, text)
        for value in self._long:
            text = _without_parts(value, text)
        return text


def _written(values: set[Any]) -> set[str]:
    """The values in every way that Python and JSON write them."""
    written: set[str] = set()
    for value in values:
        for plain in _spellings(value):
            written |= {plain, repr(plain)[1:-1], json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]}
            # Which a traceback of several exceptions indents.
            written.update(line for line in plain.splitlines() if len(line) > SHORT)
    return {it for it in written if it.strip()}


def _any_of(written: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds any of them in a text."""
    alternatives = [
        re.escape(it) if len(it) > SHORT else rf"(?<!\w){re.escape(it)}(?!\w)"
        for it in sorted(written, key=len, reverse=True)
    ]
    return re.compile("|".join(alternatives))


def _without_parts(value: str, text: str) -> str:
    """The text without the beginnings and the ends of a long value: handlers quote it in part, and so do texts that
    were cut."""
    begun, ended = value[:SHORTEST_PART], value[-SHORTEST_PART:]
    at = 0
    while begun.strip() and (at := text.find(begun, at)) >= 0:
        after = at + _in_common(value, text[at : at + len(value)])
        text = f"{text[:at]}{REDACTED}{text[after:]}"
        at += len(REDACTED)
    at = len(text)
    while ended.strip() and (at := text.rfind(ended, 0, at)) >= 0:
        after = at + SHORTEST_PART
        at = after - _in_common(value[::-1], text[max(0, after - len(value)) : after][::-1])
        text = f"{text[:at]}{REDACTED}{text[after:]}"
    return text


def _in_common(one: str, other: str) -> int:
    """How many characters they begin with alike."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
