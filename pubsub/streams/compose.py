"""One statement for many filters."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pubsub.db.sql import load
from pubsub.events import columns_of

if TYPE_CHECKING:
    from .scan import Interest

FILTERS = 500
"""Filters that one statement evaluates."""

PARAMETERS = 5_000
"""Of the filters of one statement, unless one alone has more. PostgreSQL takes 65,535."""

Composed = tuple[str, dict[str, Any]]


def chunks(interests: "Sequence[Interest]") -> "Iterator[list[Interest]]":
    """As many interests as one statement evaluates, and the next."""
    some: list[Interest] = []
    parameters = 0
    for interest in interests:
        if some and (len(some) == FILTERS or parameters + interest.parameters > PARAMETERS):
            yield some
            some, parameters = [], 0
        some.append(interest)
        parameters += interest.parameters
    if some:
        yield some


def compose(interests: "Sequence[Interest]", included: Sequence[list[int]]) -> Composed:
    """The statement that reads for these interests, of which each includes some topics, by number; empty if none does.
    Its text is made of our pieces."""
    topics = sorted(set().union(*included))
    parameters: dict[str, Any] = {"topics": topics}
    conditions: list[str] = []
    for number, (interest, its_topics) in enumerate(zip(interests, included, strict=True)):
        if not its_topics:
            continue
        named = interest.filter.named(f"interest{number}")
        condition = named.sql
        parameters |= named.parameters
        if its_topics != topics:
            parameters[f"interest{number}_topics"] = its_topics
            condition = f"entry.topic_id = ANY (%(interest{number}_topics)s) AND ({condition})"
        conditions.append(f"CASE WHEN {condition} THEN {number} END")
    if not topics:
        return "", parameters
    return load("streams/scan", conditions=", ".join(conditions), columns=columns_of("message")), parameters
