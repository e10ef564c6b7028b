"""Which events the texts of a failure may quote: all those that failed together share one exception."""

from django.db.models import Q, TextField
from django.db.models.functions import Cast

from pubsub.models import DeadLetter
from pubsub.payloads.redact import Redactor

JSON_COLUMNS = ("payload", "original_payload", "metadata")

MOST_TOGETHER = 500
"""Events that failed together, of which the values are looked for."""

MOST_CHARACTERS = 8_000_000
"""Of their payloads and metadata."""


def look_for_quotations(letter: DeadLetter, redactor: Redactor, *, using: str) -> None:
    """Shows the redactor all that a letter's texts may quote. If that is too much, it hides the texts."""
    if not redactor.searches_texts:
        return
    # A transaction fails as a whole; where nothing is tried twice, so does all that a handler was given.
    given = Q(pk__range=(letter.pk - MOST_TOGETHER, letter.pk + MOST_TOGETHER), traceback=letter.traceback)
    together = DeadLetter.objects.using(using).filter(
        Q(transaction_id=letter.transaction_id) | given,
        group_id=letter.group_id,
        topic_id=letter.topic_id,
        partition_id=letter.partition_id,
    )
    characters = 0
    texts = together.order_by("pk").values_list(*(Cast(name, TextField()) for name in JSON_COLUMNS))
    for number, row in enumerate(texts[: MOST_TOGETHER + 1].iterator(chunk_size=20), start=1):
        characters += sum(len(text) for text in row if text)
        if number > MOST_TOGETHER or characters > MOST_CHARACTERS:
            redactor.hide_texts()
            return
        for name, text in zip(JSON_COLUMNS, row, strict=True):
            if text is not None:
                redactor.json("metadata" if name == "metadata" else "payload", text)
