"""An exception in a form that can be stored, and in one that can be logged, as far as it goes.

Whatever a handler has raised must be written down, or its partition would wait for ever: an exception whose own text
cannot be had, one of twenty megabytes, a hundred thousand causes, characters that the database does not know.
"""

import itertools
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from django.db import DatabaseError, DataError, connections, transaction

from pubsub.db.errors import is_ctrl_c, sqlstate
from pubsub.payloads.redact import REDACTED, Redactor
from pubsub.payloads.visible import visible
from pubsub.subscriptions.task import PartitionTask

logger = logging.getLogger(__name__)

LONGEST = 20_000
"""Characters of a message, or of a traceback, that are kept: of a longer one, the beginning and the end."""

LONGEST_NAME = 200
"""Of an exception's class, which an index holds, or of a handler's name."""

MOST_CAUSES = 100
MOST_FRAMES = 1000
SHOWN_CAUSES = 10
"""Where there are more causes than are formatted, so many are shown, in short."""

R = TypeVar("R")


def store(task: PartitionTask, error: BaseException, write: Callable[[dict[str, Any]], R]) -> R:
    """Writes a failure down in the open transaction; without its texts, where PostgreSQL does not take them."""
    try:
        with transaction.atomic(using=task.using):
            return write(describe_failure(task, error))
    except DatabaseError as refused:
        if not isinstance(refused, DataError) and not (sqlstate(refused) or "").startswith("54"):
            raise
        logger.warning("%s: a failure is kept without its texts: %s", task, refused, extra=task.facts)
        return write(describe_in_short(task, error, refused))


def describe_failure(task: PartitionTask, error: BaseException | None) -> dict[str, Any]:
    """The exception as texts that any column takes, if the database knows their characters."""
    texts = {
        "handler": cut(task.declared.handler_name, LONGEST_NAME),
        "exception_class": cut(class_of(error), LONGEST_NAME) if error else "",
        "exception_message": cut(_message(error)) if error else "",
        "traceback": cut(_traceback(error)) if error else "",
    }
    encoding = "utf-8" if _stores_everything(task.using) else "ascii"
    return {
        name: text.replace("\x00", "\\x00").encode(encoding, "backslashreplace").decode(encoding)
        for name, text in texts.items()
    }


def describe_in_short(task: PartitionTask, error: BaseException, refused: DatabaseError) -> dict[str, Any]:
    """What can be stored in any case."""
    texts = {
        "handler": task.declared.handler_name,
        "exception_class": class_of(error),
        "exception_message": f"(its message could not be stored: SQLSTATE {sqlstate(refused)})",
        "traceback": "",
    }
    return {name: ascii(cut(text, LONGEST_NAME))[1:-1] for name, text in texts.items()}


def loggable(error: BaseException, *, is_ours: bool = False) -> BaseException:
    """The exception as a log may have it, with its traceback: itself, if its text may be shown, and the texts and the
    number of its causes do no harm there. Otherwise a stand-in: of the same name, and from the same lines. `is_ours`:
    it comes from no handler, so its own text may be shown; what it was raised in may have come from one."""
    causes = list(itertools.islice(_causes(error), MOST_CAUSES + 1))
    hides = not Redactor().shows_all
    if not hides and len(causes) <= MOST_CAUSES and all(map(_is_harmless, causes)):
        return error
    stand_ins: dict[int, BaseException] = {}
    causes = causes if len(causes) <= MOST_CAUSES else causes[:SHOWN_CAUSES]
    for cause in reversed(causes):  # what a group consists of comes before it
        text = REDACTED if hides and not (is_ours and cause is error) else visible(cut(_message(cause)), lines=True)
        parts = cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        known = [stand_ins[id(part)] for part in parts if id(part) in stand_ins]
        stand_ins[id(cause)] = _stand_in(type(cause), text, known).with_traceback(cause.__traceback__)
    for cause in causes:
        stand_in = stand_ins[id(cause)]
        stand_in.__cause__ = stand_ins.get(id(cause.__cause__))
        stand_in.__context__ = stand_ins.get(id(cause.__context__))
        stand_in.__suppress_context__ = cause.__suppress_context__
    return stand_ins[id(error)]


def _is_harmless(error: BaseException) -> bool:
    """Whether what it says of itself can be had, is short enough, and has no control characters for terminals."""
    try:
        texts = [str(error), *getattr(error, "__notes__", ())]
        return all(visible(cut(text), lines=True) == text for text in texts)
    except BaseException as second:
        if is_ctrl_c(second):
            raise
        return False


def _stand_in(kind: type[BaseException], text: str, parts: list[BaseException]) -> BaseException:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    like: type[Any] = type(kind.__name__, (BaseExceptionGroup if parts else Exception,), names)
    stand_in: BaseException = like(text, parts) if parts else like(text)
    return stand_in


def cut(text: str, longest: int = LONGEST) -> str:
    """The beginning and the end of a text that is too long.

    >>> cut("short"), cut("from the beginning to the end", 10)
    ('short', 'from [… 19 characters are left out …]e end')
    """
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}[… {len(text) - 2 * half} characters are left out …]{text[-half:]}"


def _stores_everything(using: str) -> bool:
    session = connections[using].connection
    return session is None or session.info.parameter_status("server_encoding") == "UTF8"


def class_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _message(error: BaseException) -> str:
    return _tried(lambda: str(error), "message")


def _traceback(error: BaseException) -> str:
    return _tried(lambda: _formatted(error), "traceback")


def _tried(read: Callable[[], str], what: str) -> str:
    """What an exception says of itself is code of the handler's, too, and may fail as that may."""
    try:
        return read()
    except BaseException as second:
        if is_ctrl_c(second):
            raise
        return f"(its {what} could not be had: {type(second).__name__})"


def _formatted(error: BaseException) -> str:
    causes = list(itertools.islice(_causes(error), MOST_CAUSES + 1))
    if len(causes) <= MOST_CAUSES:
        return "".join(traceback.format_exception(error, limit=-MOST_FRAMES))
    parts = [f"[… it has more than {MOST_CAUSES} causes; the last ones are shown …]\n"]
    for cause in reversed(causes[:SHOWN_CAUSES]):
        parts += traceback.format_tb(cause.__traceback__, -MOST_FRAMES)
        parts.append(f"{class_of(cause)}: {cut(_message(cause), LONGEST_NAME)}\n\n")
    return "".join(parts)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and all that a traceback would show with it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop(0)
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            waiting += cause.exceptions[: MOST_CAUSES + 1]
