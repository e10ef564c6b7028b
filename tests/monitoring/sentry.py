"""A consumer with Sentry, as the documents set it up: `python -m tests.monitoring.sentry`. Prints what Sentry sends.

In a process of its own, as the SDK changes Django and the logging of the whole process.
"""

import json
import logging
import re
from pathlib import Path
from typing import Any

import django

django.setup()

from django.test import override_settings  # noqa: E402
from sentry_sdk.envelope import Envelope  # noqa: E402
from sentry_sdk.integrations.logging import LoggingIntegration  # noqa: E402
from sentry_sdk.transport import Transport  # noqa: E402

from pubsub import Event  # noqa: E402
from tests.handlers import declare, drain  # noqa: E402


class Printing(Transport):
    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            print(json.dumps(event), flush=True)


class CardDeclined(Exception):
    pass


def fail(event: Event) -> None:
    local_variable = event.payload["card"]
    if event.payload["declined"]:
        raise CardDeclined(local_variable)
    raise ValueError(f"cannot charge {local_variable}")


def charge(event: Event) -> None:
    fail(event)


def reserve(event: Event) -> None:
    fail(event)


def send_mail(event: Event) -> None:
    fail(event)


def recipe() -> Any:
    page = (Path(__file__).parents[2] / "docs" / "observing.md").read_text()
    (text,) = re.findall(r"```python\n(import sentry_sdk.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(text, names)
    return names["start_sentry"]


if __name__ == "__main__":
    recipe()(
        "https://public@sentry.invalid/1",
        transport=Printing,
        integrations=[LoggingIntegration(event_level=logging.WARNING)],
    )
    with override_settings(PUBSUB={"redact_paths": ["card"]}):
        drain(
            *(declare(handler, topic="work", group=handler.__name__) for handler in (charge, reserve)),
            declare(send_mail, topic="work", group="send_mail", retry=[0.01]),
            wait_period_ms=1,
        )
