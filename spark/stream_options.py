"""The options of the format `pubsub`, checked when a query starts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import InvalidRead

KNOWN = (
    "topic",
    "topics",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "rangeSize",
    "group",
    "failOnDataLoss",
    "pollSeconds",
)

# What Spark itself adds to a query's options.
OF_SPARK = ("checkpointlocation", "path")

NamedOffset = str | int
"""Where to begin or to end: "earliest", "latest", or an offset."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What a query reads, and how."""

    topics: tuple[str, ...]
    starting: Mapping[str, NamedOffset]
    """By topic; the others begin at their group's cursor, or at the default."""
    default_start: str
    ending: Mapping[str, NamedOffset]
    max_offsets: int | None
    range_size: int
    group: str | None
    fail_on_data_loss: bool
    poll_seconds: float


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options as typed values; an error names the option, what was expected and what came.

    >>> read_options({"topic": "orders", "startingOffsets": '{"orders": 12}'}, streaming=True).starting
    {'orders': 12}
    """
    values = {name.lower(): value for name, value in given.items()}
    unknown = set(values) - {name.lower() for name in KNOWN} - set(OF_SPARK)
    if unknown:
        raise InvalidRead(
            f'The format "pubsub" has no option {", ".join(sorted(unknown))}; it reads with {", ".join(KNOWN)}.'
        )
    named = ",".join(filter(None, [values.get("topic"), values.get("topics")]))
    topics = tuple(dict.fromkeys(name.strip() for name in named.split(",") if name.strip()))
    if not topics:
        raise InvalidRead(
            'The format "pubsub" needs the option topic, or topics: a name, or several separated by commas.'
        )
    starting, default_start = _offsets("startingOffsets", values.get("startingoffsets", ""), topics)
    ending, _ = _offsets("endingOffsets", values.get("endingoffsets", ""), topics)
    if streaming and "endingoffsets" in values:
        raise InvalidRead("endingOffsets is for batch reads; to end a stream, use trigger(availableNow=True).")
    group = values.get("group", "").strip() or None
    if group and not streaming:
        raise InvalidRead("group is for streams: a batch read has no cursor to resume from.")
    return ReadOptions(
        topics=topics,
        starting=starting,
        default_start=default_start or ("latest" if streaming else "earliest"),
        ending=ending,
        max_offsets=_number("maxOffsetsPerTrigger", values.get("maxoffsetspertrigger")),
        range_size=_number("rangeSize", values.get("rangesize")) or 50_000,
        group=group,
        fail_on_data_loss=_truth("failOnDataLoss", values.get("failondataloss", "true")),
        poll_seconds=_seconds("pollSeconds", values.get("pollseconds", "0.5")),
    )


def _offsets(name: str, text: str, topics: tuple[str, ...]) -> tuple[dict[str, NamedOffset], str]:
    if text in ("", "earliest", "latest"):
        return (dict.fromkeys(topics, text) if text else {}), text
    try:
        offsets = json.loads(text)
        if not isinstance(offsets, dict):
            raise TypeError
        for topic, offset in offsets.items():
            if topic not in topics or not (
                offset in ("earliest", "latest")
                or (isinstance(offset, int) and not isinstance(offset, bool) and offset >= 1)
            ):
                raise TypeError
    except (ValueError, TypeError):
        raise InvalidRead(
            f"{name} must be earliest, latest, or JSON with an offset for topics of this query, such as "
            f'{{"{topics[0]}": 12}} or {{"{topics[0]}": "earliest"}}, not {text!r}.'
        ) from None
    return offsets, ""


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidRead(f"{name} must be a whole number of at least 1, not {text!r}.")
    return int(text)


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 3600:
        raise InvalidRead(f"{name} must be a number of seconds from 0 to 3600, not {text!r}.")
    return value


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidRead(f"{name} must be true or false, not {text!r}.")
    return text.lower() == "true"
