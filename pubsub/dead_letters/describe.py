"""A dead letter as JSON and as text for the terminal."""

import json
from dataclasses import dataclass
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast

from pubsub.models import Attempt, DeadLetter
from pubsub.payloads.redact import Redactor
from pubsub.payloads.visible import visible
from pubsub.payloads.write import write_json

from .quoted import JSON_COLUMNS, look_for_quotations


def describe(letter: DeadLetter) -> dict[str, Any]:
    """What a list tells: no payload, no message, nothing that a publisher could have put a secret into."""
    return {
        "id": letter.pk,
        "state": letter.state,
        "group": letter.group_id,
        "topic": letter.topic.name,
        "partition": letter.partition_id,
        "offset": letter.c_offset,
        "type": letter.type,
        "key": letter.key,
        "host_id": letter.host_id,
        "user_id": letter.user_id,
        "event_id": str(letter.event_id),
        "transaction": str(letter.transaction_id),
        "exception": letter.exception_class,
        "attempts": letter.attempts,
        "next_attempt": letter.next_attempt_at and letter.next_attempt_at.isoformat(),
        "failed_first": letter.created_at.isoformat(),
    }


@dataclass(frozen=True, kw_only=True)
class FullDescription:
    facts: dict[str, Any]
    documents: dict[str, Any]
    """What is JSON itself, decoded."""
    traceback: str

    def as_json(self) -> str:
        # Written piece by piece: json.dumps knows neither all depths nor all numbers that PostgreSQL does.
        parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in self.facts.items()]
        parts += [f"{json.dumps(name)}: {write_json(value)}" for name, value in self.documents.items()]
        parts.append(f'"traceback": {json.dumps(self.traceback)}')
        return "{" + ",\n".join(parts) + "}"

    def as_text(self) -> str:
        lines = [visible(f"{name + ':':<14}{value}") for name, value in self.facts.items() if name != "history"]
        for attempt in self.facts["history"]:
            lines.append(visible(f"attempt {attempt['attempt']} at {attempt['failed']}: {attempt['exception']}"))
        lines += [f"{name}:\n{write_json(value)}" for name, value in self.documents.items() if value is not None]
        return "\n".join([*lines, visible(self.traceback.rstrip(), lines=True)]).rstrip()


def full_description(letter: DeadLetter, *, using: str, reveal: bool = False) -> FullDescription:
    """All of it. What PUBSUB redacts is left out, unless the caller wants it revealed."""
    row = DeadLetter.objects.using(using).filter(pk=letter.pk)
    *texts, message, traceback = row.values_list(
        *(Cast(name, TextField()) for name in JSON_COLUMNS), "exception_message", "traceback"
    ).get()
    redactor = Redactor(raw=reveal)
    documents = {
        name: None if text is None else redactor.json("metadata" if name == "metadata" else "payload", text)
        for name, text in zip(JSON_COLUMNS, texts, strict=True)
    }
    look_for_quotations(letter, redactor, using=using)
    message, traceback = redactor.text(message), redactor.text(traceback)
    history = Attempt.objects.using(using).filter(
        letter__transaction_id=letter.transaction_id,
        letter__group_id=letter.group_id,
        letter__topic_id=letter.topic_id,
        letter__partition_id=letter.partition_id,
    )
    facts = describe(letter) | {
        "handler": letter.handler,
        "message": message,
        "history": [
            {"attempt": it.attempt, "failed": it.failed_at.isoformat(), "exception": it.exception_class}
            for it in history.order_by("id")
        ],
    }
    return FullDescription(facts=facts, documents=documents, traceback=traceback)
