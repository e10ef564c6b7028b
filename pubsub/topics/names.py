"""The names of topics, and patterns of them: `orders.*` means all topics that match, including those created later."""

import functools
import re

from django.db import connections
from django.utils.translation import gettext as _

from pubsub.errors import UnknownTopic
from pubsub.suggest import shown

DEFAULT_TOPIC = "default"
DEFAULT_TOPIC_ID = 1
"""Other topics are numbered from 2 on."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")
_PATTERN = re.compile(r"[A-Za-z0-9_.:*-]{1,200}")


def check_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UnknownTopic(
            _(
                "%(name)s cannot be the name of a topic: up to 200 letters, digits and the signs . _ : - are allowed, "
                'such as "orders.events".'
            )
            % {"name": shown(name)}
        )
    return name


def is_pattern(name: str) -> bool:
    """Whether this is a pattern: no topic's name contains a star.

    >>> is_pattern("orders.*"), is_pattern("orders.events")
    (True, False)
    """
    return isinstance(name, str) and "*" in name


def check_pattern(pattern: str) -> str:
    """The pattern, or an error that says what a pattern looks like.

    >>> check_pattern("orders.?")
    Traceback (most recent call last):
    pubsub.errors.UnknownTopic: 'orders.?' cannot be a pattern of topics: …
    """
    if not is_pattern(pattern) or not _PATTERN.fullmatch(pattern):
        raise UnknownTopic(
            _(
                "%(pattern)r cannot be a pattern of topics: it is a topic's name in which * stands for any characters, "
                'dots included, such as "orders.*".'
            )
            % {"pattern": pattern}
        )
    return pattern


def matches(pattern: str, topic: str) -> bool:
    """Whether a pattern, or a name, means a topic: a star stands for any characters, or none.

    >>> matches("orders.*", "orders.eu.events"), matches("orders.*", "orders"), matches("*.events", "orders.events")
    (True, False, True)
    """
    return _compiled(pattern).fullmatch(topic) is not None


def expand(pattern: str, *, using: str) -> list[str]:
    """The names of the existing topics that match. Topics that are created later need another call.

    >>> expand("def*", using="default")
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
    # What stands between two stars is matched where it comes first, without backtracking: else many stars take forever.
    between = "".join(f"(?>.*?{part})" for part in others[:-1] if part)
    return re.compile(f"{first}{between}.*{others[-1]}", re.DOTALL)
