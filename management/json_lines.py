"""Events as lines of JSON, from programs in any language."""

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from pubsub.errors import BadLine, InvalidEvent
from pubsub.publishing.publish import check_event

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def lines(stream: BinaryIO, at_most: int) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines; None for a line that is too long to hold in memory."""
    number = 0
    while line := stream.readline(at_most):
        number += 1
        if len(line) < at_most or line.endswith(b"\n"):
            yield number, line
            continue
        while (rest := stream.readline(at_most)) and not rest.endswith(b"\n"):
            pass
        yield number, None


@dataclass(frozen=True, kw_only=True)
class LineParser:
    """Parses lines into events.

    >>> LineParser(raw=True, key_field="customer.id").event(b'{"customer": {"id": 7}}')
    {'payload': {'customer': {'id': 7}}, 'key': 7}
    """

    raw: bool = False
    """Each line is a payload; else an object with what publish() takes."""
    key_field: str | None = None
    """The path in the payload to the key of an event without one."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Options of events that do not give them."""

    def event(self, line: bytes) -> dict[str, Any]:
        """What publish_many() takes, or a BadLine."""
        value = self.decode(line)
        if self.raw:
            value = {"payload": value}
        elif not isinstance(value, dict) or "payload" not in value:
            raise BadLine(
                f'expected an object such as {{"payload": {{"id": 1}}, "type": "order.created"}}, got '
                f"{line.strip().decode():.80}. If each line is a payload, use --raw."
            )
        event = {**self.defaults, **value}
        if self.key_field and event.get("key") is None:
            event["key"] = self.key_of(event["payload"], self.key_field)
        if isinstance(event.get("deliver_at"), str):
            try:
                event["deliver_at"] = dt.datetime.fromisoformat(event["deliver_at"])
            except ValueError:
                raise BadLine(
                    f'deliver_at must be a time such as "2030-01-31T12:00:00Z", not "{event["deliver_at"]}".'
                ) from None
        try:
            check_event(event)
        except InvalidEvent as error:
            raise BadLine(str(error)) from None
        return event

    def decode(self, line: bytes) -> Any:
        if line.startswith(BYTE_ORDER_MARK):
            raise BadLine("it begins with a byte order mark. Write UTF-8 without one.")
        try:
            return json.loads(line.decode())
        except UnicodeDecodeError as error:
            raise BadLine(f"expected UTF-8, which byte {error.start + 1} is not.") from None
        except json.JSONDecodeError as error:
            raise BadLine(f"expected JSON, but at column {error.colno}: {error.msg}.") from None
        except (ValueError, RecursionError) as error:
            raise BadLine(f"expected JSON of a reasonable depth and with reasonable numbers: {error}.") from None

    def key_of(self, payload: Any, path: str) -> Any:
        found = payload
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            raise BadLine(f'expected the key at "{path}" of the payload, but there is none.')
        return found
