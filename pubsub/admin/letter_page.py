"""What a dead letter's own page shows: the event, its failures, related events and operators' actions."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db import router
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast, Coalesce
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from pubsub.dead_letters.quoted import look_for_quotations
from pubsub.models import Attempt, DeadLetter, OperatorEvent
from pubsub.payloads.redact import Redactor
from pubsub.payloads.visible import visible

from .formats import pre
from .json_display import show_json
from .letter_filters import SHORT_STATES

ROWS_SHOWN = 50
"""Of siblings, parked events and attempts; a link leads to the others."""

EVENTS_SEARCHED = 200
"""Of the group's newest rows in the audit log, those searched for this letter."""

OPEN = (DeadLetter.State.RETRYING, DeadLetter.State.DEAD)


@dataclass
class LetterPage:
    """One letter, as far as the user may see it."""

    letter: DeadLetter
    may_see_payload: bool
    letters: QuerySet[DeadLetter]
    """Those that the user may see."""

    @cached_property
    def _redactor(self) -> Redactor:
        return Redactor(everything=not self.may_see_payload)

    @cached_property
    def _json(self) -> dict[str, Any]:
        """What may be shown. Read as text: there are numbers and depths that Python's own decoder refuses."""
        names = ("payload", "metadata", "original_payload")
        texts = DeadLetter.objects.filter(pk=self.letter.pk).values_list(*(Cast(name, TextField()) for name in names))
        return {
            name: None if text is None else self._redactor.json("metadata" if name == "metadata" else "payload", text)
            for name, text in zip(names, texts.get(), strict=True)
        }

    @cached_property
    def _redactor_of_texts(self) -> Redactor:
        """The same, once it is known what is to be looked for."""
        _ = self._json
        look_for_quotations(self.letter, self._redactor, using=router.db_for_read(DeadLetter))
        return self._redactor

    @property
    def is_edited(self) -> bool:
        return self._json["original_payload"] is not None

    def value(self, name: str) -> Any:
        return self._json[name]

    def json(self, name: str) -> str | SafeString:
        if not self.may_see_payload:
            return _("Hidden: you have no permission to see payloads.")
        whole = reverse("admin:pubsub_deadletter_json", args=[self.letter.pk, name])
        return show_json(self._json[name], whole)

    def text(self, text: str) -> str:
        """An exception's message or traceback, without what must not be seen of the event."""
        return visible(self._redactor_of_texts.text(text), lines=True)

    def traceback(self) -> str | None:
        return pre(self.text(self.letter.traceback)) if self.letter.traceback else None

    def attempts(self) -> str | None:
        """Recorded with the first event of a transaction, they hold for all of it."""
        it = self.letter
        together = self.letters.filter(
            transaction_id=it.transaction_id,
            group_id=it.group_id,
            topic_id=it.topic_id,
            partition_id=it.partition_id,
        )
        found = list(Attempt.objects.filter(letter__in=together.values("pk")).order_by("-id")[:ROWS_SHOWN])
        if not found:
            return None
        rows = [(attempt, self.text(attempt.exception_message), self.text(attempt.traceback)) for attempt in found]
        return render_to_string("admin/pubsub/deadletter/attempts.html", {"attempts": rows[::-1]})

    def siblings(self) -> str | None:
        same = self.letters.filter(group_id=self.letter.group_id, transaction_id=self.letter.transaction_id)
        return self._rows(same.exclude(pk=self.letter.pk).order_by("pk"), f"?q={self.letter.transaction_id}")

    def parked(self) -> str | None:
        ordering_key = self.letter.key or self.letter.host_id
        if ordering_key is None or self.letter.state not in OPEN:
            return None
        behind = (
            self.letters.annotate(ordering_key=Coalesce("key", "host_id"))
            .filter(
                ordering_key=ordering_key,
                group_id=self.letter.group_id,
                topic_id=self.letter.topic_id,
                c_offset__gt=self.letter.c_offset,
                state=DeadLetter.State.PARKED,
            )
            .order_by("c_offset")
        )
        return self._rows(behind, "?state=parked")

    def _rows(self, letters: Any, more: str) -> str | None:
        found = list(
            letters.select_related("topic").only(
                "c_offset", "topic__name", "type", "key", "state", "partition_id", "group_id"
            )[: ROWS_SHOWN + 1]
        )
        if not found:
            return None
        return render_to_string(
            "admin/pubsub/deadletter/rows.html",
            {
                "rows": [(it, SHORT_STATES[it.state]) for it in found[:ROWS_SHOWN]],
                "more": more if len(found) > ROWS_SHOWN else "",
            },
        )

    def operator_actions(self) -> str | None:
        """What operators did to this letter, out of the newest actions on its group."""
        newest = OperatorEvent.objects.filter(group_id=self.letter.group_id, topic=self.letter.topic.name)
        newest = newest.filter(happened_at__gte=self.letter.created_at).order_by("-id")[:EVENTS_SEARCHED]
        events = OperatorEvent.objects.filter(
            pk__in=newest.values("pk"), action__endswith="-dead-letters"
        ) | OperatorEvent.objects.filter(pk__in=newest.values("pk"), action="edit-dead-letter-payload")
        found = list(events.filter(after__ids__contains=self.letter.pk).defer("before", "after").order_by("id"))
        if not found:
            return None
        return render_to_string("admin/pubsub/deadletter/operator_actions.html", {"events": found})
