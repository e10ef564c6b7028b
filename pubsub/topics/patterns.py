"""Topics by pattern: `orders.*` means every topic of that kind, those that are made later included."""

import functools
import re

from django.db import connections

from pubsub.errors import UnknownTopic

_PATTERN = re.compile(r"[A-Za-z0-9_.:*-]{1,200}")


def is_pattern(name: str) -> bool:
    """Whether this means more than the one topic of that name: no topic's name contains a star.

    >>> is_pattern("orders.*"), is_pattern("orders.events")
    (True, False)
    """
    return isinstance(name, str) and "*" in name


def check_pattern(pattern: str) -> str:
    """The pattern, or an error that says what one looks like.

    >>> check_pattern("orders.?")
    Traceback (most recent call last):
    pubsub.errors.UnknownTopic: 'orders.?' cannot be a pattern of topics: …
    """
    if not is_pattern(pattern) or not _PATTERN.fullmatch(pattern):
        raise UnknownTopic(
            f"{pattern!r} cannot be a pattern of topics: it is a topic's name in which * stands for any characters, "
            f'dots included, such as "orders.*".'
        )
    return pattern


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic is meant: a star stands for any characters, also for none; a name without one for itself.

    >>> matches("orders.*", "orders.eu.events"), matches("orders.*", "orders"), matches("*.events", "orders.events")
    (True, False, True)
    """
    return _compiled(pattern).fullmatch(topic) is not None


def expand(pattern: str, using: str) -> list[str]:
    """The topics that are meant and exist now, by name. Ask again for those that are made later.

    >>> expand("def*", "default")
    ['default']
    """
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT name FROM outbox_topics ORDER BY name")
        return [name for (name,) in cursor.fetchall() if matches(pattern, name)]


@functools.lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    first, *others = map(re.escape, pattern.split("*"))
    if not others:
        return re.compile(first)
    # What stands between two stars is taken where it comes first, for good: else many stars would be tried for ever.
    between = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return re.compile(f"{first}{between}.*{others[-1]}", re.DOTALL)
